"""Processors of scores inside a compiled search, where lengths are values and shapes are fixed."""

import math
from collections.abc import Callable, Iterable

import torch
from torch import Tensor
from transformers.generation import logits_process as theirs

# Words so far (rows, room), scores (rows, vocabulary), how many words there are [1].
Processor = Callable[[Tensor, Tensor, Tensor], Tensor]

# These look at scores, or at the set of words so far: filling rows up with a word of theirs, as
# `known_words` does, changes nothing.
_AS_THEY_ARE = (
    theirs.EpsilonLogitsWarper,
    theirs.InfNanRemoveLogitsProcessor,
    theirs.LogitNormalization,
    theirs.MinPLogitsWarper,
    theirs.RepetitionPenaltyLogitsProcessor,
    theirs.SuppressTokensLogitsProcessor,
    theirs.TemperatureLogitsWarper,
    theirs.TopKLogitsWarper,
    theirs.TopPLogitsWarper,
    theirs.TypicalLogitsWarper,
)


class OnHostOnly(Exception):
    """Why a search cannot run on the device; it runs on the host then, with the same words."""


def known_words(sequences: Tensor, n_known: Tensor) -> Tensor:
    """Rows of words whose unknown ends are filled up with the first word."""
    places = torch.arange(sequences.shape[-1], device=sequences.device)
    return torch.where(places < n_known, sequences, sequences[..., :1])


def on_device(processors: Iterable[theirs.LogitsProcessor], n_prompt: int) -> list[Processor]:
    """Processors for words after the first, which the host chooses."""
    result = (_form_of(processor, n_prompt) for processor in processors)
    return [form for form in result if form is not None]


def identity_of(processors: Iterable[theirs.LogitsProcessor]) -> tuple:
    """What makes processors alike: programs with alike ones are the same program."""
    return tuple(
        (type(p).__name__, *((name, str(value)) for name, value in sorted(vars(p).items())))
        for p in processors
    )


def _form_of(processor: theirs.LogitsProcessor, n_prompt: int) -> Processor | None:
    if isinstance(processor, theirs.RepetitionPenaltyLogitsProcessor) and (
        processor.prompt_ignore_length
    ):
        raise OnHostOnly("a repetition penalty that ignores the prompt")
    if isinstance(processor, _AS_THEY_ARE):
        return lambda words, scores, _n: processor(words.long(), scores)  # pyright: ignore[reportArgumentType]
    if isinstance(processor, theirs.MinLengthLogitsProcessor):
        return _no_end_before(processor.min_length, processor.eos_token_id)
    if isinstance(processor, theirs.MinNewTokensLengthLogitsProcessor):
        n_words = processor.prompt_length_to_skip + processor.min_new_tokens
        return _no_end_before(n_words, processor.eos_token_id)
    if isinstance(processor, theirs.ForcedEOSTokenLogitsProcessor):
        return _end_at(processor.max_length - 1, processor.eos_token_id)
    if isinstance(processor, theirs.ForcedBOSTokenLogitsProcessor):
        return None  # concerns the first word
    begins = getattr(processor, "begin_index", math.inf)
    if isinstance(processor, theirs.SuppressTokensAtBeginLogitsProcessor) and begins <= n_prompt:
        return None  # likewise
    raise OnHostOnly(f"{type(processor).__name__} looks at words in ways only the host can")


def _is_one_of(words: Tensor, scores: Tensor) -> Tensor:
    every = torch.arange(scores.shape[-1], device=scores.device)
    return (every[:, None] == words.to(scores.device)).any(dim=1)


def _no_end_before(n_words: int, ends: Tensor) -> Processor:
    def process(_words: Tensor, scores: Tensor, n_known: Tensor) -> Tensor:
        return torch.where(_is_one_of(ends, scores) & (n_known < n_words), -math.inf, scores)

    return process


def _end_at(n_words: int, ends: Tensor) -> Processor:
    def process(_words: Tensor, scores: Tensor, n_known: Tensor) -> Tensor:
        forced = torch.where(_is_one_of(ends, scores), 0.0, -math.inf)
        return torch.where(n_known == n_words, forced, scores)

    return process
