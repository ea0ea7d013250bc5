"""What a search does with scores: words one by one, or beams; the same on the host and on tiles."""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

_NEVER = -1.0e9  # the score of what must not be chosen, as transformers has it


def best_words(scores: Tensor, draws: Tensor | None) -> Tensor:
    """The best word of each row, or one drawn: exponential `draws` make it a multinomial one."""
    if draws is None:
        return scores.argmax(dim=-1)
    return (scores.softmax(dim=-1) / draws).argmax(dim=-1)


def is_end(words: Tensor, ends: tuple[int, ...]) -> Tensor:
    """Which words end a sentence."""
    result = torch.zeros_like(words, dtype=torch.bool)
    for end in ends:
        result = result | (words == end)
    return result


@dataclass(frozen=True)
class BeamRules:
    """The settings of a beam search."""

    n_beams: int
    ends: tuple[int, ...]
    length_penalty: float
    early_stopping: bool | str

    @property
    def n_kept(self) -> int:
        """Continuations looked at: as many can end at once as there are ends for each beam."""
        return max(2, 1 + len(self.ends)) * self.n_beams


class Beams(NamedTuple):
    """The state of a beam search over (batch, beams)."""

    words: Tensor  # (batch, beams, room): of the beams that continue
    scores: Tensor
    done_words: Tensor
    done_scores: Tensor
    done_lengths: Tensor  # words after the prompt
    is_done: Tensor
    can_improve: Tensor  # (batch, 1)
    is_active: Tensor  # [1]: nothing changes once it is False

    @staticmethod
    def starting(words: Tensor, n_beams: int) -> "Beams":
        """All beams begin with the prompt; the first one alone counts, as all are alike."""
        batch = len(words) // n_beams
        rows = words.view(batch, n_beams, -1)
        scores = torch.zeros(batch, n_beams)
        scores[:, 1:] = _NEVER
        nothing = torch.zeros(batch, n_beams, dtype=torch.bool)
        done_scores = torch.full((batch, n_beams), _NEVER)
        lengths = torch.zeros(batch, n_beams, dtype=words.dtype)
        yes = torch.ones(batch, 1, dtype=torch.bool)
        return Beams(rows, scores, rows.clone(), done_scores, lengths, nothing, yes, yes[0].clone())


class Lengths(NamedTuple):
    """Places of a beam search in words, each [1]: values, so that they need no new program."""

    n_words: Tensor  # so far
    n_prompt: Tensor
    n_most: Tensor


def _picked(values: Tensor, beams: Tensor) -> Tensor:
    """Values of some beams: (batch, beams, …) by (batch, picks)."""
    while beams.dim() < values.dim():
        beams = beams.unsqueeze(-1)
    return values.take_along_dim(beams, dim=1)


def next_beams(
    state: Beams, log_probs: Tensor, lengths: Lengths, rules: BeamRules
) -> tuple[Beams, Tensor]:
    """The state one word later, and which row each beam continues from.

    `log_probs` are (batch × beams, vocabulary), processed. The rules are those of transformers:
    kept are the best continuations, those that end compete with the ones done before.
    """
    batch, n_beams = state.scores.shape
    total = log_probs.view(batch, n_beams, -1) + state.scores[:, :, None]
    n_vocabulary = total.shape[-1]
    scores, places = total.flatten(1).topk(rules.n_kept)
    parents, newest = places // n_vocabulary, places % n_vocabulary
    words = _with_word(_picked(state.words, parents), newest, lengths.n_words)
    ends = is_end(newest, rules.ends) | (lengths.n_words + 1 >= lengths.n_most)
    running = scores + ends.float() * _NEVER
    going = running.topk(n_beams).indices
    done = _best_done(state, words, scores, ends, lengths, rules)
    later = state._replace(
        words=_picked(words, going),
        scores=_picked(running, going),
        **done,
    )
    improvable = _can_improve(later, lengths, rules)
    goes_on = improvable.any() & ~ends.all()
    if rules.early_stopping is True:
        goes_on = goes_on & ~later.is_done.all()
    later = later._replace(can_improve=improvable, is_active=goes_on.view(1))
    first_rows = torch.arange(batch, device=places.device)[:, None] * n_beams
    rows = (_picked(parents, going) + first_rows).flatten()
    return _unless_over(state, later), rows


def _with_word(words: Tensor, newest: Tensor, place: Tensor) -> Tensor:
    is_place = torch.arange(words.shape[-1], device=words.device) == place
    return torch.where(is_place, newest[..., None].to(words.dtype), words)


def _best_done(
    state: Beams, words: Tensor, scores: Tensor, ends: Tensor, lengths: Lengths, rules: BeamRules
) -> dict[str, Tensor]:
    """The best sentences that are done, new ones among them."""
    n_new = lengths.n_words + 1 - lengths.n_prompt
    is_top = torch.arange(rules.n_kept, device=scores.device) < rules.n_beams
    just_done = ends & is_top
    scores = scores / n_new.float() ** rules.length_penalty
    if rules.early_stopping is True:
        scores = scores + state.is_done.all(dim=-1, keepdim=True).float() * _NEVER
    scores = scores + (~state.can_improve).float() * _NEVER
    scores = scores + (~just_done).float() * _NEVER
    merged = torch.cat((state.done_scores, scores), dim=1)
    best = merged.topk(rules.n_beams).indices
    new_lengths = n_new.to(state.done_lengths.dtype).expand(scores.shape)

    def chosen(before: Tensor, now: Tensor) -> Tensor:
        return _picked(torch.cat((before, now), dim=1), best)

    return {
        "done_words": chosen(state.done_words, words),
        "done_scores": _picked(merged, best),
        "done_lengths": chosen(state.done_lengths, new_lengths),
        "is_done": chosen(state.is_done, just_done),
    }


def _can_improve(state: Beams, lengths: Lengths, rules: BeamRules) -> Tensor:
    """Whether the best running beam may still become better than the worst that is done."""
    is_patient = rules.early_stopping == "never" and rules.length_penalty > 0
    longest = lengths.n_most if is_patient else lengths.n_words + 1
    n_new = (longest - lengths.n_prompt).float()
    hoped = state.scores[:, :1] / n_new**rules.length_penalty
    worst = torch.where(state.is_done, state.done_scores.amin(dim=1, keepdim=True), _NEVER)
    return state.can_improve & (hoped > worst).any(dim=-1, keepdim=True)


def _unless_over(before: Beams, later: Beams) -> Beams:
    """A search that is over stays as it is."""
    return Beams(*(torch.where(before.is_active, b, a) for a, b in zip(before, later, strict=True)))
