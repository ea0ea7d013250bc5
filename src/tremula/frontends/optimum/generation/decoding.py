"""The step of generation: a word in, scores of the next one out; the cache stays where it is."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from transformers.cache_utils import Cache
from transformers.modeling_outputs import BaseModelOutput, CausalLMOutputWithPast

import poptorch
from tremula.frontends.optimum.generation import static_cache

ENCODED = "encoder_hidden_states_given"


class DecodeStep(nn.Module):
    """Runs a model on the newest words, with keys and values as buffers it writes to."""

    def __init__(
        self, model: nn.Module, cache: Cache, constants: dict[str, object], *, reorders: bool
    ):
        super().__init__()
        self.model, self.constants, self.reorders = model, constants, reorders
        self._cache = cache
        self._names = []
        for name, tensor in static_cache.tensors_of(cache).items():
            self.register_buffer(name, tensor.detach().clone())
            self._names.append(name)

    def load(self, tensors: dict[str, Tensor]) -> None:
        """Copy keys and values into the buffers."""
        for name in self._names:
            getattr(self, name).copy_(tensors[name])

    def forward(self, positions: Tensor, order: Tensor | None = None, **inputs: Tensor) -> Tensor:
        cached = {name: getattr(self, name) for name in self._names}
        if order is not None:  # beams continue from others than their own
            for name, tensor in cached.items():
                if name.startswith("own"):
                    tensor.copy_(tensor.index_select(0, order))
        if ENCODED in inputs:
            words = inputs.pop(ENCODED)
            inputs["encoder_outputs"] = BaseModelOutput(last_hidden_state=words)  # pyright: ignore[reportArgumentType]
        view = static_cache.view_of(self._cache, cached, positions)
        outputs = self.model(**inputs, **self.constants, past_key_values=view)
        return outputs.logits[:, -1:]


class PromptStep(nn.Module):
    """Runs a model on a whole prompt; returns the last scores, and all keys and values."""

    def __init__(self, model: nn.Module, cache: Cache, constants: dict[str, object]):
        super().__init__()
        self.model, self.constants = model, constants
        self._cache = cache

    def forward(self, **inputs: Tensor) -> tuple[Tensor, ...]:
        cache = static_cache.empty_like(self._cache)
        outputs = self.model(**inputs, **self.constants, past_key_values=cache)
        return outputs.logits[:, -1:], *static_cache.tensors_of(cache).values()


class Decoder:
    """Compiled steps of one model, by the form of what they take."""

    def __init__(self, model: nn.Module, options: Callable[[], poptorch.Options]):
        self._model, self._options = model, options
        self._compiled: dict[tuple, tuple[DecodeStep, poptorch.PoplarExecutor]] = {}
        self._prompts: dict[tuple, poptorch.PoplarExecutor] = {}
        self._cache: Cache | None = None  # the one whose words are on the device
        self._form: tuple | None = None  # of the program that has them
        self._order: Tensor | None = None

    def prompt(self, model_inputs: dict[str, Any]) -> CausalLMOutputWithPast:
        """A prompt, compiled for its length: worth it where the device is not the host."""
        values = dict(model_inputs)
        cache: Cache = values.pop("past_key_values")
        tensors = {name: v for name, v in values.items() if isinstance(v, Tensor)}
        constants = {n: v for n, v in values.items() if not isinstance(v, Tensor) and v is not None}
        form = (*((name, v.shape, v.dtype) for name, v in tensors.items()), *sorted(constants))
        form = (*form, static_cache.room_of(cache))
        if form not in self._prompts:
            step = PromptStep(self._model, cache, constants).eval()
            self._prompts[form] = poptorch.inferenceModel(step, self._options())
        with torch.no_grad():
            logits, *cached = self._prompts[form](**tensors)
        static_cache.fill(cache, cached, n_words=_n_words(tensors))
        return CausalLMOutputWithPast(logits=logits, past_key_values=cache)  # pyright: ignore[reportArgumentType]

    def step(self, model_inputs: dict[str, Any], *, reorders: bool) -> CausalLMOutputWithPast:
        """One word further: the arguments that transformers passes to the model's forward."""
        values = dict(model_inputs)
        cache: Cache = values.pop("past_key_values")
        tensors = {name: v for name, v in values.items() if isinstance(v, Tensor)}
        encoded = values.pop("encoder_outputs", None)
        if encoded is not None:
            tensors[ENCODED] = encoded[0]
        constants = {n: v for n, v in values.items() if not isinstance(v, Tensor) and v is not None}
        n_words = _n_words(tensors)
        n_before = static_cache.length_of(cache)
        tensors["positions"] = torch.arange(n_before, n_before + n_words)
        if reorders:
            n_rows = len(next(iter(static_cache.tensors_of(cache).values())))
            order = torch.arange(n_rows) if self._order is None else self._order
            tensors["order"] = order.to(torch.int32)  # the type from beam search varies
        logits = self._run(cache, tensors, constants, reorders=reorders)
        self._order = None
        static_cache.advance(cache, n_words)
        return CausalLMOutputWithPast(logits=logits, past_key_values=cache)  # pyright: ignore[reportArgumentType]

    def _run(
        self,
        cache: Cache,
        tensors: dict[str, Tensor],
        constants: dict[str, object],
        *,
        reorders: bool,
    ) -> Tensor:
        form = (
            tuple((name, v.shape, v.dtype) for name, v in tensors.items()),
            tuple((name, v.shape) for name, v in static_cache.tensors_of(cache).items()),
            tuple(sorted(constants)),
        )
        if form not in self._compiled:
            step = DecodeStep(self._model, cache, constants, reorders=reorders).eval()
            options = self._options().updatableNamedBuffers(list(step._names))
            self._compiled[form] = step, poptorch.inferenceModel(step, options)
        step, executor = self._compiled[form]
        if self._cache is not cache or self._form != form:
            step.load(self._words_so_far(cache))
            self._adopt(cache)
            self._form = form
            if executor.isCompiled():
                executor.copyNamedBuffersToDevice()
        with torch.no_grad():
            return executor(**tensors)

    def _words_so_far(self, cache: Cache) -> dict[str, Tensor]:
        """Keys and values of a prompt, or of steps that another program has taken."""
        if self._cache is not cache or self._form is None:
            return static_cache.tensors_of(cache)
        step, executor = self._compiled[self._form]
        executor.copyWeightsToHost()
        return dict(step.named_buffers(recurse=False))

    def _adopt(self, cache: Cache) -> None:
        """From now on the device has the words of this cache, and beams are reordered there."""
        self._cache = cache

        def reorder(beam_idx: Tensor) -> None:
            before = self._order
            self._order = beam_idx if before is None else before.index_select(0, beam_idx)

        cache.reorder_cache = reorder  # pyright: ignore[reportAttributeAccessIssue]

    def forget(self) -> None:
        """The next step begins with a new cache."""
        self._cache = self._form = self._order = None

    def release(self) -> None:
        """Give the devices back."""
        for executor in (*(e for _, e in self._compiled.values()), *self._prompts.values()):
            executor.destroy()
        self._compiled.clear()
        self._prompts.clear()
        self.forget()


def _n_words(tensors: dict[str, Tensor]) -> int:
    for name in ("decoder_input_ids", "input_ids"):
        if name in tensors:
            return tensors[name].shape[1]
    return 1
