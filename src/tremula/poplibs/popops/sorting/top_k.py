"""popops.top_k: the k largest or smallest elements of each row.

Blocks of a row are sorted where they lie; then pairs of blocks are merged, and only the first k
elements of each pair go on, until one block is left.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np

from tremula.base.errors import suggest
from tremula.base.source import user_source
from tremula.base.types import UNSIGNED_INT, Type
from tremula.poplar.graph import Graph
from tremula.poplar.programs import Sequence
from tremula.poplar.tensors.tensor import Tensor
from tremula.poplar.tensors.tile_map import TileMapping
from tremula.poplibs.popops.row_parts import as_rows
from tremula.poplibs.popops.sorting.codelets import merge_vertex, sort_vertex
from tremula.poplibs.popops.sorting.sort import (
    TYPES,
    Merge,
    SortBlocks,
    block_layout,
    check_pair,
    check_sortable,
    merge_blocks,
    new_blocks,
    sort_blocks,
)
from tremula.poplibs.registry import ErrorCase, Op, PoplibsError, Sample, distinct_values, register

ORDERS = ("NONE", "ASCENDING", "DESCENDING")


def top_k(
    graph: Graph, tensor: Tensor, k: int, sequence: Sequence, name: str = "", *,
    largest: bool = True, sort_order: str = "NONE",
) -> Tensor:  # fmt: skip
    """The k largest (or smallest) elements of the last dimension, [..., k].

    `sort_order` is NONE, ASCENDING or DESCENDING.
    """
    return _top_k(graph, tensor, None, k, sequence, name, largest=largest, sort_order=sort_order)[0]


def top_k_key_value(
    graph: Graph, keys: Tensor, values: Tensor, k: int, sequence: Sequence, name: str = "", *,
    largest: bool = True, sort_order: str = "NONE",
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """The k largest (or smallest) keys of the last dimension, and their values."""
    check_sortable("top_k_key_value", values, values.rank - 1)
    check_pair("top_k_key_value", keys, values)
    result, with_them = _top_k(
        graph, keys, values, k, sequence, name, largest=largest, sort_order=sort_order
    )
    assert with_them is not None
    return result, with_them


def top_k_with_permutation(
    graph: Graph, tensor: Tensor, k: int, sequence: Sequence, name: str = "", *,
    largest: bool = True, sort_order: str = "NONE",
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """The k largest (or smallest) elements of the last dimension, and where they were."""
    check_sortable("top_k_with_permutation", tensor, tensor.rank - 1)
    n = tensor.shape[-1]
    places = graph.add_constant(UNSIGNED_INT, [n], np.arange(n), f"{name}/places", mapping="linear")
    for size in reversed(tensor.shape[:-1]):
        places = places.expand([0]).broadcast(size)
    result, indices = _top_k(
        graph, tensor, places, k, sequence, name, largest=largest, sort_order=sort_order
    )
    assert indices is not None
    return result, indices


def create_top_k_input(graph: Graph, type: Type, shape: tuple[int, ...], name: str = "") -> Tensor:
    """A tensor laid out as top_k wants it: rows cut into blocks, evenly over the tiles."""
    tensor = graph.add_variable(type, shape, name)
    if tensor.n_elems:
        n = tensor.shape[-1]
        n_rows = tensor.n_elems // n
        cuts, tile = block_layout(graph, n_rows, n, type, None)
        base = np.arange(n_rows)[:, None] * n
        begin, end = (base + cuts[:-1]).ravel(), (base + cuts[1:]).ravel()
        mapping = TileMapping(begin, end, tile.ravel(), graph.target.n_tiles)
        graph.set_tile_mapping(tensor, mapping)
    return tensor


def _top_k(
    graph: Graph, keys: Tensor, values: Tensor | None, k: int, sequence: Sequence, name: str, *,
    largest: bool, sort_order: str,
) -> tuple[Tensor, Tensor | None]:  # fmt: skip
    _check(keys, k, sort_order)
    name = name or "top_k"
    shape = (*keys.shape[:-1], k)
    if 0 in shape:
        none = None if values is None else graph.add_variable(values.type, shape)
        return graph.add_variable(keys.type, shape), none
    last = keys.rank - 1
    rows = as_rows(keys, last), None if values is None else as_rows(values, last)
    blocks = sort_blocks(graph, *rows, largest, sequence, name)
    blocks = _first_of_each(blocks, k)
    step = 0
    while blocks.begin.shape[1] > 1:
        blocks = _half_as_many(graph, blocks, k, largest, sequence, f"{name}/merge{step}")
        step += 1
    is_reversed = sort_order == ("ASCENDING" if largest else "DESCENDING")
    results = [_first_k(t, blocks, shape, is_reversed) for t in (blocks.keys, blocks.values)]
    result = results[0]
    assert result is not None
    return result, results[1]


def _first_of_each(blocks: SortBlocks, k: int) -> SortBlocks:
    return blocks._replace(end=np.minimum(blocks.end, blocks.begin + k))


def _half_as_many(
    graph: Graph, blocks: SortBlocks, k: int, descends: bool, sequence: Sequence, name: str
) -> SortBlocks:
    """Merge pairs of blocks; an odd one out goes on alone."""
    n_blocks = blocks.begin.shape[1]
    first = np.arange(0, n_blocks, 2)
    second = np.where(first + 1 < n_blocks, first + 1, -1)
    sizes = blocks.sizes[:, first] + np.where(second >= 0, blocks.sizes[:, second], 0)
    like = (blocks.keys.type, None if blocks.values is None else blocks.values.type)
    merged = new_blocks(graph, like, np.minimum(sizes, k), blocks.tile[:, first], name)
    step = Merge(first, second, np.zeros(len(first), bool))
    merge_blocks(graph, blocks, merged, step, descends, sequence, name)
    return merged


def _first_k(
    flat: Tensor | None, blocks: SortBlocks, shape: tuple[int, ...], is_reversed: bool
) -> Tensor | None:
    """The first k elements of every row's only block."""
    if flat is None:
        return None
    n_rows, k = len(blocks.begin), shape[-1]
    result = flat.reshape((n_rows, flat.n_elems // n_rows))[:, :k]
    return (result.reverse(1) if is_reversed else result).reshape(shape)


def _check(keys: Tensor, k: int, sort_order: str) -> None:
    if not keys.rank:
        raise PoplibsError(
            "top_k got a scalar.", source=user_source(), hint="give a tensor with dimensions"
        )
    check_sortable("top_k", keys, keys.rank - 1)
    if not 0 <= k <= keys.shape[-1]:
        raise PoplibsError(
            f"top_k got k = {k} for rows of {keys.shape[-1]} elements.",
            source=user_source(),
            hint=f"use 0 to {keys.shape[-1]}",
        )
    if sort_order not in ORDERS:
        raise PoplibsError(
            f"top_k got the order {sort_order!r}.",
            source=user_source(),
            hint=suggest(str(sort_order), ORDERS),
        )


# -- registry --------------------------------------------------------------------------------------

_CASES: tuple[tuple[tuple[int, ...], dict[str, Any]], ...] = (
    ((150,), {"k": 7, "sort_order": "DESCENDING"}),
    ((5, 60), {"k": 60, "sort_order": "ASCENDING"}),
    ((3, 2, 9), {"k": 4, "largest": False, "sort_order": "ASCENDING"}),
    ((4, 33), {"k": 1, "largest": False}),
    ((100,), {"k": 10, "largest": False, "sort_order": "DESCENDING"}),
    ((1,), {"k": 1}),
    ((3, 5), {"k": 0}),
)


def _samples(type: Type, rng: np.random.Generator) -> Iterator[Sample]:
    for shape, options in _CASES:
        yield Sample((distinct_values(type, shape, rng),), options)


def _pair_samples(type: Type, rng: np.random.Generator) -> Iterator[Sample]:
    for shape, options in _CASES:
        values = rng.integers(0, 99, shape).astype(np.int32)
        yield Sample((distinct_values(type, shape, rng), values), options)


def _places(
    values: np.ndarray, k: int, largest: bool = True, sort_order: str = "NONE"
) -> np.ndarray:
    order = np.argsort(values, axis=-1)
    order = order[..., ::-1] if largest else order
    first = order[..., :k]
    is_reversed = sort_order == ("ASCENDING" if largest else "DESCENDING")
    return first[..., ::-1] if is_reversed else first


def _with_places(values: np.ndarray, **options: object) -> tuple[np.ndarray, np.ndarray]:
    places = _places(values, **options)  # pyright: ignore[reportArgumentType]
    return np.take_along_axis(values, places, -1), places.astype(np.uint32)


def _with_values(
    keys: np.ndarray, values: np.ndarray, **options: object
) -> tuple[np.ndarray, np.ndarray]:
    places = _places(keys, **options)  # pyright: ignore[reportArgumentType]
    return np.take_along_axis(keys, places, -1), np.take_along_axis(values, places, -1)


_ERRORS = (
    ErrorCase(Sample((np.ones(3, np.float32),), {"k": 4}), "k = 4 for rows of 3 elements"),
    ErrorCase(Sample((np.ones(3, bool),), {"k": 1}), "top_k does not work on bool"),
    ErrorCase(
        Sample((np.ones(3, np.float32),), {"k": 1, "sort_order": "ASCENDIN"}),
        "did you mean 'ASCENDING'",
    ),
)

register(
    Op(
        name="popops.top_k",
        function=top_k,
        about="the k largest or smallest elements of the last dimension",
        types=TYPES,
        samples=_samples,
        reference=lambda values, **options: _with_places(values, **options)[0],
        codelets=(sort_vertex, merge_vertex),
        errors=_ERRORS,
    )
)
register(
    Op(
        name="popops.top_k_key_value",
        function=top_k_key_value,
        about="the k largest or smallest keys of the last dimension, and their values",
        types=TYPES,
        samples=_pair_samples,
        reference=_with_values,
        codelets=(sort_vertex, merge_vertex),
    )
)
register(
    Op(
        name="popops.top_k_with_permutation",
        function=top_k_with_permutation,
        about="the k largest or smallest elements of the last dimension, and where they were",
        types=TYPES,
        samples=_samples,
        reference=_with_places,
        codelets=(sort_vertex, merge_vertex),
    )
)
