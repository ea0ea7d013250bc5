"""A key/value cache in tensors of fixed size, written at a position that is an input."""

import copy
from collections.abc import Iterator
from typing import Any

from torch import Tensor
from transformers.cache_utils import Cache, DynamicLayer, EncoderDecoderCache, StaticLayer

from tremula.base.errors import PoplarError


class HeldLayer(StaticLayer):
    """One layer's keys and values; new ones go to `positions`, which the caller sets."""

    positions: Tensor
    keys: Tensor  # pyright: ignore[reportIncompatibleVariableOverride]
    values: Tensor  # pyright: ignore[reportIncompatibleVariableOverride]

    def update(
        self, key_states: Tensor, value_states: Tensor, *_args: object, **_kwargs: object
    ) -> tuple[Tensor, Tensor]:
        """Write the new keys and values where they belong, and give all of them."""
        self.keys.index_copy_(2, self.positions, key_states)
        self.values.index_copy_(2, self.positions, value_states)
        return self.keys, self.values

    def get_seq_length(self) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        """How many words were seen before these."""
        return self.positions[0]


class GivenLayer(DynamicLayer):
    """Keys and values of an encoder: computed once, read by every step."""

    keys: Tensor  # pyright: ignore[reportIncompatibleVariableOverride]

    def get_seq_length(self) -> int:
        return self.keys.shape[-2]


def _layers_of(cache: Cache) -> Iterator[tuple[str, Any]]:
    """The layers of a cache, with distinct names."""
    if isinstance(cache, EncoderDecoderCache):
        parts = {"own": cache.self_attention_cache, "cross": cache.cross_attention_cache}
    else:
        parts = {"own": cache}
    for part, layer_cache in parts.items():
        for index, layer in enumerate(layer_cache.layers):
            yield f"{part}_{index}", layer


def tensors_of(cache: Cache) -> dict[str, Tensor]:
    """All tensors of a cache that has seen a prompt, by name."""
    result = {}
    for name, layer in _layers_of(cache):
        result[f"{name}_keys"], result[f"{name}_values"] = layer.keys, layer.values
    return result


def advance(cache: Cache, n_words: int) -> None:
    """Let a cache know of words that the device has written."""
    for name, layer in _layers_of(cache):
        if name.startswith("own"):
            layer.cumulative_length += n_words


def length_of(cache: Cache) -> int:
    """How many words a cache holds."""
    return int(next(layer for _, layer in _layers_of(cache)).cumulative_length)


def view_of(cache: Cache, tensors: dict[str, Tensor], positions: Tensor) -> Cache:
    """A cache of the same form whose keys and values are `tensors`."""
    own = cache.self_attention_cache if isinstance(cache, EncoderDecoderCache) else cache
    view: Any = copy.copy(own)
    view.layers = [
        _held(layer, f"own_{i}", tensors, positions) for i, layer in enumerate(own.layers)
    ]
    if not isinstance(cache, EncoderDecoderCache):
        return view
    cross = copy.copy(cache.cross_attention_cache)
    cross.layers = []
    for i in range(len(cache.cross_attention_cache.layers)):
        layer = GivenLayer()
        layer.keys, layer.values = tensors[f"cross_{i}_keys"], tensors[f"cross_{i}_values"]
        layer.is_initialized = True
        cross.layers.append(layer)
    both = copy.copy(cache)
    both.self_attention_cache, both.cross_attention_cache = view, cross
    both.is_updated = dict.fromkeys(range(len(cross.layers)), True)
    return both


def _held(layer: object, name: str, tensors: dict[str, Tensor], positions: Tensor) -> HeldLayer:
    if type(layer) is not StaticLayer:
        raise PoplarError(
            f"{type(layer).__name__} of transformers cannot be kept on the device",
            hint="generate with disable_compile=True",
        )
    layer_cache = HeldLayer(max_cache_len=layer.max_cache_len)
    layer_cache.keys, layer_cache.values = tensors[f"{name}_keys"], tensors[f"{name}_values"]
    layer_cache.positions, layer_cache.is_initialized = positions, True
    layer_cache.device, layer_cache.dtype = layer_cache.keys.device, layer_cache.keys.dtype
    return layer_cache


def empty_like(cache: Cache) -> Cache:
    """A cache of the same form that has seen nothing."""
    result = copy.copy(cache)
    result.layers = [type(layer)(max_cache_len=layer.max_cache_len) for layer in cache.layers]  # pyright: ignore[reportAttributeAccessIssue]
    return result


def room_of(cache: Cache) -> int:
    """How many words a static cache has room for."""
    layer = next(layer for _, layer in _layers_of(cache))
    return layer.max_cache_len


def fill(cache: Cache, tensors: list[Tensor], *, n_words: int) -> None:
    """Let a cache that has seen nothing hold the keys and values of a prompt."""
    for (_, layer), keys, values in zip(
        _layers_of(cache), tensors[::2], tensors[1::2], strict=True
    ):
        layer.lazy_initialization(keys, values)
        layer.keys, layer.values = keys, values
        layer.cumulative_length += n_words
