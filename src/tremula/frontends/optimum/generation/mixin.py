"""IPUGenerationMixin: `generate` of transformers, whose step is compiled."""

import functools
from typing import Any

import torch
from torch import nn
from transformers.cache_utils import EncoderDecoderCache, StaticCache

from tremula.frontends.optimum.generation.decoding import Decoder
from tremula.frontends.optimum.ipu_config import IPUConfig
from tremula.ir.settings import host_settings


class IPUGenerationMixin:
    """Generates with a cache of fixed size; each step runs as one compiled program."""

    _decoder: Decoder | None = None
    _steps_by: Decoder | None = None  # while it generates
    _n_beams = 1

    @torch.no_grad()
    def generate(self, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
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

    def __call__(self, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
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

    def _compiled_decoder(self) -> Decoder:
        if vars(self).get("_decoder") is None:
            config: IPUConfig | None = getattr(self, "_ipu_config", None)
            own = config or IPUConfig(enable_half_partials=False)
            make = functools.partial(own.to_options, for_inference=True)
            vars(self)["_decoder"] = Decoder(self, make)  # pyright: ignore[reportArgumentType]
        return vars(self)["_decoder"]

    def _valid_auto_compile_criteria(self, *_args: Any, **_kwargs: Any) -> bool:  # noqa: ANN401
        """Steps are compiled here, not by torch.compile."""
        return False


def _can_be_compiled(cache: object) -> bool:
    """Steps with a static cache can. Of prompts, each length is compiled by itself: on a GPU."""
    own = cache.self_attention_cache if isinstance(cache, EncoderDecoderCache) else cache
    if not isinstance(own, StaticCache):
        return False
    is_alone = own is cache  # an encoder's keys are made by its own call
    return _has_prompt(own) or (is_alone and host_settings().torch_device().type == "cuda")


def _has_prompt(cache: Any) -> bool:  # noqa: ANN401
    """Whether a cache has seen the prompt."""
    return bool(cache.get_seq_length() > 0)


def generating(model: nn.Module) -> nn.Module:
    """The same model; its `generate` is compiled from now on."""
    if not isinstance(model, IPUGenerationMixin):
        kind = type(model)
        model.__class__ = type(kind.__name__, (IPUGenerationMixin, kind), {"__module__": __name__})
    return model
