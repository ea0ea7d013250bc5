"""Searches on the device: several words of greedy, sampling or beam search in every call."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from transformers import LogitsProcessorList, StoppingCriteriaList
from transformers.cache_utils import Cache
from transformers.generation.stopping_criteria import EosTokenCriteria, MaxLengthCriteria

import poptorch
from tremula.frontends.optimum.generation import static_cache
from tremula.frontends.optimum.generation.choices import (
    BeamRules,
    Beams,
    Lengths,
    best_words,
    is_end,
    next_beams,
)
from tremula.frontends.optimum.generation.device_steps import (
    BeamStep,
    SearchStep,
    StepInputs,
    WordStep,
)
from tremula.frontends.optimum.generation.processors import OnHostOnly, identity_of, on_device

_RECORDS = ("return_dict_in_generate", "output_scores", "output_logits", "output_attentions")


@dataclass(frozen=True)
class SearchSettings:
    """What `generate` asks for, as far as a device can do it."""

    processors: Any  # LogitsProcessorList, whose declared types of tensors are too narrow
    ends: tuple[int, ...]
    pad: int
    n_most: int  # words, with the prompt
    draws: bool
    beams: BeamRules | None
    n_returned: int

    @staticmethod
    def of(
        processors: LogitsProcessorList,
        criteria: StoppingCriteriaList,
        config: Any,  # noqa: ANN401 - GenerationConfig after generate's changes
    ) -> "SearchSettings":
        """From a generation's arguments; raises OnHostOnly where the host must search."""
        requested = [name for name in _RECORDS if getattr(config, name, False)]
        if requested:
            raise OnHostOnly(f"{requested[0]}=True asks for what the device does not keep")
        for criterion in criteria:
            if not isinstance(criterion, MaxLengthCriteria | EosTokenCriteria):
                raise OnHostOnly(f"{type(criterion).__name__} is called after every word")
        assert criteria.max_length is not None, "generate always limits the length"
        n_beams = config.num_beams or 1
        if n_beams > 1 and config.do_sample:
            raise OnHostOnly("beams that are drawn")
        has_ends = any(isinstance(criterion, EosTokenCriteria) for criterion in criteria)
        ends = tuple(config._eos_token_tensor.tolist()) if has_ends else ()
        pad = int(config._pad_token_tensor or 0)
        beams = None
        if (
            n_beams > 1
        ):  # transformers takes a pad of 0 for none here, and fills with -1 without ends
            pad = (pad or ends[0]) if ends else -1
            beams = BeamRules(n_beams, ends, config.length_penalty, config.early_stopping)
        return SearchSettings(
            processors=processors,
            ends=ends,
            pad=pad,
            n_most=criteria.max_length,
            draws=bool(config.do_sample),
            beams=beams,
            n_returned=config.num_return_sequences or 1,
        )


class DeviceSearch:
    """Compiled searches of one model, by the form of what they take."""

    def __init__(self, model: nn.Module, options: Callable[[], poptorch.Options]):
        self._model, self._options = model, options
        self._compiled: dict[tuple, tuple[SearchStep, poptorch.PoplarExecutor]] = {}

    def words(
        self, search: SearchSettings, prompt: Tensor, first: Tensor, inputs: StepInputs,
        cache: Cache, n_steps: int,
    ) -> Tensor:  # fmt: skip
        """The rows of a prompt, finished: `first` are the words that the prompt led to."""
        room = static_cache.room_of(cache)
        rows = torch.cat((prompt, first[:, None]), dim=1)
        over = is_end(first, search.ends)
        filled = nn.functional.pad(rows, (0, room + 1 - rows.shape[1]), value=search.pad)
        state = {"words": filled, "is_over": over}
        _, executor = self._program(search, prompt, inputs, cache, n_steps, state)
        while rows.shape[1] < search.n_most and not over.all():
            places = _places(rows.shape[1] - 1, n_steps, room)
            values = {"places": places}
            states = []
            if search.draws:
                values["draws"], states = _draws(n_steps, len(rows), _n_words_known(self._model))
            result = executor(**values).long().view(n_steps, -1)
            n_used = 0
            for column in result[: search.n_most - rows.shape[1]]:
                rows = torch.cat((rows, column[:, None]), dim=1)
                over, n_used = over | is_end(column, search.ends), n_used + 1
                if bool(over.all()):
                    break
            if states:
                torch.set_rng_state(states[n_used - 1])
        return rows

    def beams(
        self, search: SearchSettings, prompt: Tensor, state: Beams, inputs: StepInputs,
        cache: Cache, n_steps: int,
    ) -> Tensor:  # fmt: skip
        """The best sentences of beams that have seen their first word."""
        room, n_words = static_cache.room_of(cache), prompt.shape[1] + 1
        lengths = {
            "n_prompt": torch.tensor([prompt.shape[1]]),
            "n_most": torch.tensor([search.n_most]),
        }
        step, executor = self._program(
            search, prompt, inputs, cache, n_steps, state._asdict() | lengths
        )
        goes_on = bool(state.is_active)
        while goes_on:
            goes_on = bool(executor(places=_places(n_words - 1, n_steps, room)).all())
            n_words += n_steps
        if n_words > prompt.shape[1] + 1:
            executor.copyWeightsToHost()
            state = Beams(*(getattr(step, name) for name in Beams._fields))
        return _best_of(state, search, prompt.shape[1])

    def _program(
        self, search: SearchSettings, prompt: Tensor, inputs: StepInputs, cache: Cache,
        n_steps: int, state: dict[str, Tensor],
    ) -> tuple[SearchStep, poptorch.PoplarExecutor]:  # fmt: skip
        """The compiled search, ready to begin with this prompt."""
        forms = {n: t.shape for n, t in (static_cache.tensors_of(cache) | state).items()}
        form = (
            inputs.form(), tuple(forms.items()), identity_of(search.processors), search.ends,
            search.pad, search.draws, search.beams, n_steps,
        )  # fmt: skip
        tensors = static_cache.tensors_of(cache) | inputs.buffers() | state
        if form not in self._compiled:
            step = self._step(search, prompt, inputs, cache)
            step.load(tensors)
            options = self._options().deviceIterations(n_steps)
            executor = poptorch.inferenceModel(
                step.eval(), options.updatableNamedBuffers(step.names())
            )
            self._compiled[form] = step, executor
        step, executor = self._compiled[form]
        if executor.isCompiled():
            step.load(tensors)
            executor.copyNamedBuffersToDevice()
        return step, executor

    def _step(
        self, search: SearchSettings, prompt: Tensor, inputs: StepInputs, cache: Cache
    ) -> SearchStep:
        processors = on_device(search.processors, prompt.shape[1])
        values = (self._model, cache, inputs, processors)
        if search.beams is not None:
            return BeamStep(*values, rules=search.beams)
        return WordStep(*values, ends=search.ends, pad=search.pad)

    def release(self) -> None:
        """Give the devices back."""
        for _, executor in self._compiled.values():
            executor.destroy()
        self._compiled.clear()


def first_words(search: SearchSettings, prompt: Tensor, logits: Tensor) -> Tensor:
    """The words that a prompt leads to; the host has its scores."""
    scores = search.processors(prompt, logits)
    draws = torch.empty_like(scores).exponential_(1) if search.draws else None
    return best_words(scores, draws)


def first_beams(
    search: SearchSettings, prompt: Tensor, logits: Tensor, room: int
) -> tuple[Beams, Tensor]:
    """The beams after the first word, and which row each continues from."""
    assert search.beams is not None, "a search with beams"
    n_prompt = prompt.shape[1]
    filled = nn.functional.pad(prompt, (0, room + 1 - n_prompt), value=search.pad)
    state = Beams.starting(filled, search.beams.n_beams)
    lengths = Lengths(*(torch.tensor([n]) for n in (n_prompt, n_prompt, search.n_most)))
    log_probs = search.processors(prompt, logits.log_softmax(-1))
    return next_beams(state, log_probs, lengths, search.beams)


def _best_of(state: Beams, search: SearchSettings, n_prompt: int) -> Tensor:
    """The best rows, as long as the longest of them."""
    lengths = state.done_lengths[:, : search.n_returned]
    n_words = n_prompt + int(lengths.max())
    return state.done_words[:, : search.n_returned, :n_words].flatten(0, 1).long()


def _places(first: int, n: int, room: int) -> Tensor:
    """Where the words of a call go; what a call has too many goes over the last place."""
    return torch.arange(first, first + n).clamp(max=room - 1).int()


def _draws(n_steps: int, n_rows: int, n_vocabulary: int) -> tuple[Tensor, list[Tensor]]:
    """Draws of a call, as `multinomial` makes them, and the generator's state after each word's."""
    drawn, states = [], []
    for _ in range(n_steps):
        drawn.append(torch.empty(n_rows, n_vocabulary).exponential_(1))
        states.append(torch.get_rng_state())
    return torch.cat(drawn), states


def _n_words_known(model: Any) -> int:  # noqa: ANN401 - a model of transformers
    return model.config.get_text_config(decoder=True).vocab_size
