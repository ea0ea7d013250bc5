"""Steps of a search as modules: run the model, choose, remember; nothing returns to the host."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from transformers.cache_utils import Cache
from transformers.modeling_outputs import BaseModelOutput

from tremula.frontends.optimum.generation import static_cache
from tremula.frontends.optimum.generation.choices import (
    BeamRules,
    Beams,
    Lengths,
    best_words,
    is_end,
    next_beams,
)
from tremula.frontends.optimum.generation.processors import OnHostOnly, Processor, known_words

_SAME_IN_EVERY_STEP = ("attention_mask", "token_type_ids")


@dataclass(frozen=True)
class StepInputs:
    """What a model's forward takes in every step after the prompt, apart from the words."""

    ids: str  # the names of inputs
    mask: str
    positions: str | None
    mask_dtype: torch.dtype
    visible: Tensor  # (rows, room): which words of the prompt count
    offsets: Tensor  # (rows,): position of a word less its place
    tensors: dict[str, Tensor]  # the same in every step
    constants: dict[str, object]

    @staticmethod
    def of(inputs: dict[str, Any], seen: Tensor | None, place: int, room: int) -> "StepInputs":
        """From what transformers prepared for the step at a place; `seen` masks the prompt."""
        rest = {n: v for n, v in inputs.items() if n != "past_key_values" and v is not None}
        has_decoder = "decoder_input_ids" in rest
        prefix = "decoder_" if has_decoder else ""
        words: Tensor = rest.pop(f"{prefix}input_ids")
        mask = rest.pop(f"{prefix}attention_mask", None)
        positions = rest.pop(f"{prefix}position_ids", None)
        if not isinstance(mask, Tensor) or mask.shape != (len(words), 1, 1, room):
            raise OnHostOnly("the model has a custom kind of attention mask")
        offsets = torch.zeros(len(words), dtype=torch.long)
        if positions is not None:
            offsets = positions[:, -1] - place
        values = {}
        if (encoded := rest.pop("encoder_outputs", None)) is not None:
            values["encoded"] = encoded[0]
        values |= {n: v for n, v in rest.items() if isinstance(v, Tensor)}
        for name in values:
            if name not in ("encoded", *_SAME_IN_EVERY_STEP):
                raise OnHostOnly(f"the model's input {name} may change from word to word")
        visible = torch.ones(len(words), room, dtype=torch.bool)
        if seen is not None:
            visible[:, : seen.shape[1]] = seen.bool()
        result = StepInputs(
            ids=f"{prefix}input_ids",
            mask=f"{prefix}attention_mask",
            positions=None if positions is None else f"{prefix}position_ids",
            mask_dtype=mask.dtype,
            visible=visible,
            offsets=offsets,
            tensors=values,
            constants={n: v for n, v in rest.items() if not isinstance(v, Tensor)},
        )
        if not torch.equal(mask_at(visible, torch.tensor([place]), mask.dtype), mask):
            raise OnHostOnly("the model has a custom kind of attention mask")
        return result

    def form(self) -> tuple:
        """What a program depends on."""
        names = (self.ids, self.mask, self.positions, self.mask_dtype, self.visible.shape)
        values = tuple((name, value.shape, value.dtype) for name, value in self.tensors.items())
        return names, values, tuple(sorted((n, str(v)) for n, v in self.constants.items()))

    def buffers(self) -> dict[str, Tensor]:
        """The tensors, by names of buffers."""
        values = {f"tensor_{name}": value for name, value in self.tensors.items()}
        return {"visible": self.visible, "offsets": self.offsets, **values}


def mask_at(visible: Tensor, place: Tensor, dtype: torch.dtype) -> Tensor:
    """Which words the word at a place looks at: the ones that count, up to itself."""
    places = torch.arange(visible.shape[1], device=visible.device)
    seen = (visible & (places <= place))[:, None, None]
    if dtype == torch.bool:
        return seen
    return torch.where(seen, 0.0, torch.finfo(dtype).min).to(dtype)


class SearchStep(nn.Module):
    """The part that all searches share: a model with its cache and inputs as buffers."""

    def __init__(
        self, model: nn.Module, cache: Cache, inputs: StepInputs, processors: list[Processor]
    ):
        super().__init__()
        self.model, self._inputs, self._processors = model, inputs, processors
        self._cache = cache
        self._cached = list(static_cache.tensors_of(cache))
        self.load(static_cache.tensors_of(cache) | inputs.buffers())

    def load(self, tensors: dict[str, Tensor]) -> None:
        """Copy what a search begins with into the buffers."""
        for name, tensor in tensors.items():
            if name in self._buffers:
                getattr(self, name).copy_(tensor)
            else:
                self.register_buffer(name, tensor.detach().clone())

    def names(self) -> list[str]:
        """The buffers of this step, without the model's own."""
        return [name for name, _ in self.named_buffers(recurse=False)]

    def processed(self, words: Tensor, rows: Tensor, place: Tensor, *, log: bool) -> Tensor:
        """Scores of the next word, after the words at a place were read."""
        inputs, cached = self._inputs, {name: getattr(self, name) for name in self._cached}
        values: dict[str, Any] = {name: getattr(self, f"tensor_{name}") for name in inputs.tensors}
        if "encoded" in values:
            values["encoder_outputs"] = BaseModelOutput(last_hidden_state=values.pop("encoded"))
        if inputs.positions is not None:
            values[inputs.positions] = (self.offsets + place)[:, None]  # pyright: ignore[reportOperatorIssue]
        values[inputs.ids] = words[:, None]
        values[inputs.mask] = mask_at(self.visible, place, inputs.mask_dtype)  # pyright: ignore[reportArgumentType]
        view = static_cache.view_of(self._cache, cached, place)
        logits = self.model(**values, **inputs.constants, past_key_values=view).logits[:, -1]
        scores = logits.float().log_softmax(-1) if log else logits.float()
        known = known_words(rows, place + 1) if self._processors else rows
        for process in self._processors:
            scores = process(known, scores, place + 1)
        return scores


class WordStep(SearchStep):
    """The best word after each row, or a drawn one."""

    words: Tensor  # (rows, room + 1)
    is_over: Tensor  # (rows,)

    def __init__(self, *args: Any, ends: tuple[int, ...], pad: int):  # noqa: ANN401
        super().__init__(*args)
        self._ends, self._pad = ends, pad

    def forward(self, places: Tensor, draws: Tensor | None = None) -> Tensor:
        newest = self.words.index_select(1, places)[:, 0]
        scores = self.processed(newest, self.words, places, log=False)
        result = best_words(scores, draws).to(self.words.dtype)
        if self._ends:
            result = torch.where(self.is_over, self._pad, result)
            self.is_over.copy_(self.is_over | is_end(result, self._ends))
        self.words.index_copy_(1, places + 1, result[:, None])
        return result


class BeamStep(SearchStep):
    """Beams, one word further."""

    n_prompt: Tensor
    n_most: Tensor

    def __init__(self, *args: Any, rules: BeamRules):  # noqa: ANN401
        super().__init__(*args)
        self._rules = rules

    def forward(self, places: Tensor) -> Tensor:
        state = Beams(*(getattr(self, name) for name in Beams._fields))
        rows = state.words.flatten(0, 1)
        newest = rows.index_select(1, places)[:, 0]
        log_probs = self.processed(newest, rows, places, log=True)
        lengths = Lengths(places + 1, self.n_prompt, self.n_most)
        later, parents = next_beams(state, log_probs, lengths, self._rules)
        for name in self._cached:
            if name.startswith("own"):
                tensor = getattr(self, name)
                tensor.copy_(tensor.index_select(0, parents))
        for name, value in later._asdict().items():
            getattr(self, name).copy_(value)
        return later.is_active.int()
