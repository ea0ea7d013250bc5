"""IPUGenerationMixin: `generate` of transformers, whose search runs on the device."""

import functools
from typing import Any, TypeGuard

import torch
from torch import Tensor, nn
from transformers import GenerationConfig, LogitsProcessorList, StoppingCriteriaList
from transformers.cache_utils import Cache, EncoderDecoderCache, StaticCache
from transformers.modeling_outputs import CausalLMOutputWithPast
from transformers.utils.generic import ModelOutput

from tremula.frontends.optimum.generation import static_cache
from tremula.frontends.optimum.generation.decoding import Decoder
from tremula.frontends.optimum.generation.device_search import (
    DeviceSearch,
    SearchSettings,
    first_beams,
    first_words,
)
from tremula.frontends.optimum.generation.device_steps import StepInputs
from tremula.frontends.optimum.generation.processors import OnHostOnly, on_device
from tremula.frontends.optimum.ipu_config import IPUConfig
from tremula.ir.settings import host_settings

_MOST_STEPS = 16  # words a call, unless `on_device_generation_steps` says so
_ROOMS = 32  # caches have room for a multiple of it: prompts of similar lengths share a program


class IPUGenerationMixin:
    """Generates with a cache of fixed size; several words are one call of a compiled program."""

    _decoder: Decoder | None = None
    _searches: DeviceSearch | None = None
    _steps_by: Decoder | None = None  # while it generates
    _prefilled: CausalLMOutputWithPast | None = (
        None  # outputs of a prompt that transformers' search continues from
    )
    _n_beams = 1
    on_device_generation_steps: int | None = None

    @torch.no_grad()
    def generate(self, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - those of transformers
        """As in transformers: greedy, sampling and beam search, with all its arguments.

        The cache is static unless the arguments say otherwise; `disable_compile=True` runs every
        step as it is.
        """
        usual = kwargs.get("generation_config") or self.generation_config  # pyright: ignore[reportAttributeAccessIssue]
        if getattr(usual, "cache_implementation", None) is None:
            kwargs.setdefault("cache_implementation", "static")
        self._n_beams = kwargs.get("num_beams") or getattr(usual, "num_beams", 1) or 1
        is_plain = kwargs.get("disable_compile", getattr(usual, "disable_compile", False))
        decoder = self._compiled_decoder()
        was_training: bool = self.training  # pyright: ignore[reportAttributeAccessIssue]
        self.eval()  # pyright: ignore[reportAttributeAccessIssue]
        self._steps_by = None if is_plain else decoder
        try:
            return super().generate(*args, **kwargs)  # pyright: ignore[reportAttributeAccessIssue]
        finally:
            self._steps_by = None
            decoder.forget()
            self.train(was_training)  # pyright: ignore[reportAttributeAccessIssue]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - those of the model
        """Steps of generation are compiled; on a GPU prompts are, too."""
        decoder, cache = self._steps_by, kwargs.get("past_key_values")
        if decoder is None or not _can_be_compiled(cache):
            return super().__call__(*args, **kwargs)  # pyright: ignore[reportAttributeAccessIssue]
        self._steps_by = None  # what is compiled is this very call
        try:
            if _has_prompt(cache):
                return decoder.step(kwargs, reorders=self._n_beams > 1)
            return decoder.prompt(kwargs)
        finally:
            self._steps_by = decoder

    # -- searches on the device --------------------------------------------------------------------

    def _sample(self, input_ids: Tensor, *args: Any, **kwargs: Any) -> Tensor | ModelOutput:  # noqa: ANN401
        """Greedy and sampling, where possible on the device."""
        if kwargs.get("streamer") is None:
            try:
                return self._searched(input_ids, *args, **kwargs)
            except OnHostOnly:
                pass
        return super()._sample(input_ids, *args, **kwargs)  # pyright: ignore[reportAttributeAccessIssue]

    def _beam_search(self, input_ids: Tensor, *args: Any, **kwargs: Any) -> Tensor | ModelOutput:  # noqa: ANN401
        """Beams, where possible on the device."""
        try:
            return self._searched(input_ids, *args, **kwargs)
        except OnHostOnly:
            return super()._beam_search(input_ids, *args, **kwargs)  # pyright: ignore[reportAttributeAccessIssue]

    def _prefill(self, *args: object, **kwargs: object) -> CausalLMOutputWithPast:
        """The outputs of a prompt, if they are not there already."""
        result, self._prefilled = self._prefilled, None
        return result or super()._prefill(*args, **kwargs)  # pyright: ignore[reportAttributeAccessIssue]

    def _searched(
        self,
        prompt: Tensor,
        logits_processor: LogitsProcessorList,
        stopping_criteria: StoppingCriteriaList,
        generation_config: GenerationConfig,
        synced_gpus: bool = False,  # noqa: ARG002 (transformers passes them)
        streamer: None = None,  # noqa: ARG002
        **model_kwargs: object,
    ) -> Tensor:
        """Words chosen by the device; OnHostOnly before anything was done, or after the prompt."""
        cache: Any = model_kwargs.get("past_key_values")
        if self._steps_by is None or not _is_static(cache) or _has_prompt(cache):
            raise OnHostOnly("no compiled steps, or a cache that is not new")
        if self._most_steps() == 0:
            raise OnHostOnly("on_device_generation_steps=0")
        search = SearchSettings.of(logits_processor, stopping_criteria, generation_config)
        on_device(logits_processor, prompt.shape[1])  # raises for those that need the host
        outputs = self._prefill(prompt, generation_config, model_kwargs, is_first_iteration=True)
        try:
            inputs = self._step_inputs(prompt, outputs, dict(model_kwargs), cache)
        except OnHostOnly:
            self._prefilled = outputs
            raise
        assert outputs.logits is not None, "a model that generates gives scores"
        logits = outputs.logits[:, -1].float()
        n_steps = self._n_steps(search.n_most - prompt.shape[1] - 1)
        decoder, self._steps_by = self._steps_by, None  # the model's forward runs as it is now
        try:
            if search.beams is None:
                first = first_words(search, prompt, logits)
                return self._device_search().words(search, prompt, first, inputs, cache, n_steps)
            state, rows = first_beams(search, prompt, logits, static_cache.room_of(cache))
            cache.reorder_cache(rows)
            return self._device_search().beams(search, prompt, state, inputs, cache, n_steps)
        finally:
            self._steps_by = decoder

    def _step_inputs(
        self,
        prompt: Tensor,
        outputs: CausalLMOutputWithPast,
        model_kwargs: dict[str, Any],
        cache: Cache,
    ) -> StepInputs:
        """What the model takes after the prompt, seen from the step that comes next."""
        model: Any = self
        decodes = model.config.is_encoder_decoder
        later = model._update_model_kwargs_for_generation(
            outputs, model_kwargs, is_encoder_decoder=decodes
        )
        rows = torch.cat((prompt, prompt[:, -1:]), dim=1)
        inputs = model.prepare_inputs_for_generation(rows, next_sequence_length=1, **later)
        seen = later.get("decoder_attention_mask" if decodes else "attention_mask")
        inputs["return_dict"] = True
        return StepInputs.of(inputs, seen, prompt.shape[1], static_cache.room_of(cache))

    def _most_steps(self) -> int:
        """The most words a call may find: few calls where a call costs; 0 lets the host search."""
        if self.on_device_generation_steps is not None:
            return self.on_device_generation_steps
        settings = host_settings()
        is_host = settings.tiles != "run" and settings.torch_device().type == "cpu"
        return 1 if is_host else _MOST_STEPS

    def _n_steps(self, n_words: int) -> int:
        """Words a call: as few calls as can be, and no more words than they need."""
        n_calls = max(1, -(-n_words // self._most_steps()))
        return max(1, -(-n_words // n_calls))

    def _device_search(self) -> DeviceSearch:
        if vars(self).get("_searches") is None:
            vars(self)["_searches"] = DeviceSearch(self, self._search_options())  # pyright: ignore[reportArgumentType]
        return vars(self)["_searches"]

    # -- steps on the device -----------------------------------------------------------------------

    def _compiled_decoder(self) -> Decoder:
        if vars(self).get("_decoder") is None:
            vars(self)["_decoder"] = Decoder(self, self._search_options())  # pyright: ignore[reportArgumentType]
        return vars(self)["_decoder"]

    def _search_options(self) -> functools.partial:
        config: IPUConfig | None = getattr(self, "_ipu_config", None)
        own = config or IPUConfig(enable_half_partials=False)
        return functools.partial(own.to_options, for_inference=True)

    def _prepare_static_cache(self, *args: object, max_cache_len: int, **kwargs: object) -> Cache:
        """A cache with some room to spare."""
        room = -(-max_cache_len // _ROOMS) * _ROOMS
        return super()._prepare_static_cache(*args, max_cache_len=room, **kwargs)  # pyright: ignore[reportAttributeAccessIssue]

    def _valid_auto_compile_criteria(self, *_args: object, **_kwargs: object) -> bool:
        """Steps are compiled here, not by torch.compile."""
        return False


def _is_static(cache: object) -> bool:
    own = cache.self_attention_cache if isinstance(cache, EncoderDecoderCache) else cache
    return isinstance(own, StaticCache)


def _can_be_compiled(cache: object) -> TypeGuard[Cache]:
    """Steps with a static cache can. Of prompts, each length is compiled by itself: on a GPU."""
    if not isinstance(cache, Cache) or not _is_static(cache):
        return False
    is_alone = isinstance(cache, StaticCache)  # an encoder's keys are made by its own call
    return _has_prompt(cache) or (is_alone and host_settings().torch_device().type == "cuda")


def _has_prompt(cache: Cache) -> bool:
    """Whether a cache has seen the prompt."""
    return bool(cache.get_seq_length() > 0)


def generating(model: nn.Module, *, on_device_generation_steps: int | None = None) -> nn.Module:
    """The model itself; its `generate` is compiled from now on.

    `on_device_generation_steps` words are generated in each call of the device: 0 lets the host
    search, None chooses.
    """
    if not isinstance(model, IPUGenerationMixin):
        kind = type(model)
        model.__class__ = type(kind.__name__, (IPUGenerationMixin, kind), {"__module__": __name__})
    if on_device_generation_steps is not None:
        vars(model)["on_device_generation_steps"] = on_device_generation_steps
    return model
