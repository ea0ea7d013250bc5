"""IPUGenerationMixin: `generate` of transformers, whose step is compiled."""

import functools
from collections.abc import Callable
from typing import Any

import torch
from transformers import GenerationConfig
from transformers.cache_utils import EncoderDecoderCache, StaticCache

from tremula.frontends.optimum.generation.decoding import Decoder
from tremula.frontends.optimum.ipu_config import IPUConfig


class IPUGenerationMixin:
    """Generates with a cache of fixed size; each step runs as one compiled program."""

    _decoder: Decoder | None = None
    _n_beams = 1

    @torch.no_grad()
    def generate(self, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
        """As in transformers: greedy, sampling and beam search, with all its arguments.

        The cache is static unless the arguments say otherwise; `disable_compile=True` runs every
        step as it is.
        """
        given: GenerationConfig | None = kwargs.get("generation_config")
        usual: GenerationConfig = self.generation_config  # pyright: ignore[reportAttributeAccessIssue]
        if getattr(given or usual, "cache_implementation", None) is None:
            kwargs.setdefault("cache_implementation", "static")
        beams = kwargs.get("num_beams") or getattr(given or usual, "num_beams", 1) or 1
        self._n_beams = beams
        was_training: bool = self.training  # pyright: ignore[reportAttributeAccessIssue]
        self.eval()  # pyright: ignore[reportAttributeAccessIssue]
        decoder = self._compiled_decoder()
        decoder.forget()
        try:
            return super().generate(*args, **kwargs)  # pyright: ignore[reportAttributeAccessIssue]
        finally:
            decoder.forget()
            self.train(was_training)  # pyright: ignore[reportAttributeAccessIssue]

    def _compiled_decoder(self) -> Decoder:
        if vars(self).get("_decoder") is None:
            config: IPUConfig | None = getattr(self, "_ipu_config", None)
            own = config or IPUConfig(enable_half_partials=False)
            make = functools.partial(own.to_options, for_inference=True)
            vars(self)["_decoder"] = Decoder(self, make)  # pyright: ignore[reportArgumentType]
        return vars(self)["_decoder"]

    def _valid_auto_compile_criteria(
        self, model_kwargs: dict[str, Any], generation_config: GenerationConfig
    ) -> bool:
        """transformers asks whether steps can be compiled: with a static cache, always."""
        cache = model_kwargs.get("past_key_values")
        own = cache.self_attention_cache if isinstance(cache, EncoderDecoderCache) else cache
        return isinstance(own, StaticCache) and not generation_config.disable_compile

    def get_compiled_call(self, compile_config: object) -> Callable[..., Any]:  # noqa: ARG002
        """transformers asks for the compiled step."""
        decoder, reorders = self._compiled_decoder(), self._n_beams > 1

        def step(**model_inputs: Any) -> Any:  # noqa: ANN401
            return decoder.step(model_inputs, reorders=reorders)

        return step
