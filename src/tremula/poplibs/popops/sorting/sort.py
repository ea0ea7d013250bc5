"""popops.sort: rows are cut into blocks, sorted by workers, and merged by a bitonic network.

In a network every comparator of two elements can be one of two sorted blocks that keeps the smaller
half and the larger half of both. All comparators point the same way, so blocks that do not exist,
or are short, behave like infinities at the end and need no padding.
"""

from collections.abc import Iterator
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from tremula.base.source import user_source
from tremula.base.types import FLOAT, HALF, INT, UNSIGNED_INT, Type
from tremula.hardware import Chip
from tremula.poplar.graph import Graph
from tremula.poplar.programs import Copy, Sequence
from tremula.poplar.tensors.tensor import Tensor
from tremula.poplar.vertices.bulk import Slices
from tremula.poplibs.popops.row_parts import as_rows, checked_dim, mapped_by
from tremula.poplibs.popops.sorting.codelets import (
    merge_slots,
    merge_vertex,
    sort_slots,
    sort_vertex,
)
from tremula.poplibs.poputil.steps import run_vertices
from tremula.poplibs.registry import ErrorCase, Op, PoplibsError, Sample, distinct_values, register

TYPES = (FLOAT, HALF, INT, UNSIGNED_INT)
MIN_BLOCK = 16  # elements
Ints = np.ndarray


class SortBlocks(NamedTuple):
    """Sorted blocks of all rows: [n_rows, n_blocks] tables of places in the flat keys."""

    keys: Tensor  # flat
    values: Tensor | None
    begin: Ints
    end: Ints
    tile: Ints

    @property
    def sizes(self) -> Ints:
        return self.end - self.begin


@cache
def network(n_blocks: int) -> tuple[tuple[Ints, Ints], ...]:
    """The steps of a bitonic network: (lower, upper) blocks that are compared."""
    steps = []
    size = 2
    blocks = np.arange(n_blocks)
    while size < 2 * n_blocks:
        partner = blocks // size * size + (size - 1 - blocks % size)  # the first step mirrors
        steps.append(_pairs(blocks, partner, n_blocks))
        distance = size // 4
        while distance:
            steps.append(_pairs(blocks, blocks ^ distance, n_blocks))
            distance //= 2
        size *= 2
    return tuple(steps)


def _pairs(blocks: Ints, partner: Ints, n_blocks: int) -> tuple[Ints, Ints]:
    chosen = (blocks < partner) & (partner < n_blocks)
    return blocks[chosen], partner[chosen]


@cache
def choose_blocks(
    n_rows: int, n: int, n_bytes: int, has_values: bool, chip: Chip, n_tiles: int
) -> int:
    """How many blocks a row is cut into: fewer steps against less to sort in each."""
    most = max(1, min(-(-n // MIN_BLOCK), chip.n_workers * n_tiles // n_rows))
    candidates = {1, most} | {2**k for k in range(1, 14) if 2**k < most}
    return min(
        sorted(candidates), key=lambda b: _cycles(n_rows, n, b, n_bytes, has_values, chip, n_tiles)
    )


def _cycles(
    n_rows: int, n: int, n_blocks: int, n_bytes: int, has_values: bool, chip: Chip, n_tiles: int
) -> float:
    size = np.array(-(-n // n_blocks))
    n_rounds = -(-n_rows * n_blocks // (n_tiles * chip.n_workers))
    n_on_tile = -(-n_rows * n_blocks // n_tiles)
    levels = int(np.ceil(np.log2(n_blocks)))
    n_steps = levels * (levels + 1) // 2
    moved = n_on_tile * int(size) * n_bytes / chip.exchange_bytes_per_cycle
    fixed = chip.sync_cycles + chip.exchange_latency_cycles + moved
    workers = chip.n_workers * n_rounds
    first = fixed + workers * float(sort_slots(size, has_values))
    return first + n_steps * (fixed + workers * float(merge_slots(size, has_values)))


def block_layout(
    graph: Graph, n_rows: int, n: int, type: Type, values: Type | None
) -> tuple[Ints, Ints]:
    """(where each row is cut, [n_rows, n_blocks] tiles in order): blocks, evenly over the tiles."""
    target = graph.target
    n_bytes = type.n_bytes + (0 if values is None else values.n_bytes)
    n_blocks = choose_blocks(n_rows, n, n_bytes, values is not None, target.chip, target.n_tiles)
    size = -(-n // n_blocks)  # of all blocks but the last
    n_blocks = -(-n // size)
    index = np.arange(n_rows * n_blocks)
    tile = index * min(target.n_tiles, len(index)) // len(index)
    return np.minimum(np.arange(n_blocks + 1) * size, n), tile.reshape(n_rows, n_blocks)


def new_blocks(
    graph: Graph, like: tuple[Type, Type | None], sizes: Ints, tile: Ints, name: str
) -> SortBlocks:
    """Storage for blocks of the given sizes, [n_rows, n_blocks], one after the other."""
    flat = sizes.ravel()
    end = np.cumsum(flat).reshape(sizes.shape)
    keys = mapped_by(graph, like[0], flat, tile.ravel(), f"{name}/keys")
    values = None
    if like[1] is not None:
        values = mapped_by(graph, like[1], flat, tile.ravel(), f"{name}/values")
    return SortBlocks(keys, values, end - sizes, end, tile)


def sort_blocks(
    graph: Graph, keys: Tensor, values: Tensor | None, descends: bool, sequence: Sequence, name: str
) -> SortBlocks:
    """Cut the rows of a matrix into blocks, and sort each."""
    n_rows, n = keys.shape
    cuts, tile = block_layout(graph, n_rows, n, keys.type, None if values is None else values.type)
    n_blocks = len(cuts) - 1
    sizes = np.broadcast_to(np.diff(cuts), (n_rows, n_blocks))
    like = (keys.type, None if values is None else values.type)
    blocks = new_blocks(graph, like, sizes, tile, name)
    begin, end = blocks.begin.ravel(), blocks.end.ravel()
    fields: dict[str, Any] = {
        "keys": Slices(keys, begin, end), "out": Slices(blocks.keys, begin, end),
        "descends": descends,
    }  # fmt: skip
    if values is not None and blocks.values is not None:
        fields["values"] = Slices(values, begin, end)
        fields["out_values"] = Slices(blocks.values, begin, end)
    run_vertices(graph, sort_vertex(*like), fields, tile.ravel(), sequence, f"{name}/blocks")
    return blocks


class Merge(NamedTuple):
    """Blocks `first` and `second` of every row are merged into block `out` of the result."""

    first: Ints
    second: Ints  # -1: none
    takes_end: Ints


def merge_blocks(
    graph: Graph, old: SortBlocks, new: SortBlocks, merge: Merge, descends: bool,
    sequence: Sequence,
    name: str,
) -> None:  # fmt: skip
    """One step: each block of the result from one or two blocks of the source."""
    exists = merge.second >= 0
    second_end = old.end[:, merge.second].ravel()
    second_begin = np.where(
        np.tile(exists, len(old.end)), old.begin[:, merge.second].ravel(), second_end
    )
    first = (old.begin[:, merge.first].ravel(), old.end[:, merge.first].ravel())
    out = (new.begin.ravel(), new.end.ravel())
    fields: dict[str, Any] = {
        "first": Slices(old.keys, *first),
        "second": Slices(old.keys, second_begin, second_end),
        "out": Slices(new.keys, *out),
        "takes_end": np.tile(merge.takes_end, len(old.end)),
        "descends": descends,
    }
    if old.values is not None and new.values is not None:
        fields["first_values"] = Slices(old.values, *first)
        fields["second_values"] = Slices(old.values, second_begin, second_end)
        fields["out_values"] = Slices(new.values, *out)
    vertex = merge_vertex(old.keys.type, None if old.values is None else old.values.type)
    run_vertices(graph, vertex, fields, new.tile.ravel(), sequence, name)


def _sorted_rows(
    graph: Graph, keys: Tensor, values: Tensor | None, sequence: Sequence, name: str,
    descends: bool = False,
) -> SortBlocks:  # fmt: skip
    """All rows of a matrix sorted; the blocks of a row lie in order, side by side."""
    blocks = sort_blocks(graph, keys, values, descends, sequence, name)
    n_blocks = blocks.begin.shape[1]
    if n_blocks == 1:
        return blocks
    like = (keys.type, None if values is None else values.type)
    other = new_blocks(graph, like, blocks.sizes, blocks.tile, name)
    for number, (lower, upper) in enumerate(network(n_blocks)):
        first, second = np.arange(n_blocks), np.full(n_blocks, -1)
        takes_end = np.zeros(n_blocks, bool)
        second[lower] = second[upper] = upper
        first[upper], takes_end[upper] = lower, True
        step = Merge(first, second, takes_end)
        merge_blocks(graph, blocks, other, step, descends, sequence, f"{name}/step{number}")
        blocks, other = other, blocks
    return blocks


def sort(graph: Graph, tensor: Tensor, dim: int, sequence: Sequence, name: str = "") -> Tensor:
    """The elements in ascending order along a dimension."""
    dim = check_sortable("sort", tensor, dim)
    if not tensor.n_elems:
        return graph.clone(tensor, name)
    blocks = _sorted_rows(graph, as_rows(tensor, dim), None, sequence, name or "sort")
    return rows_as(blocks.keys, tensor.shape, dim)


def sort_in_place(
    graph: Graph, tensor: Tensor, dim: int, sequence: Sequence, name: str = ""
) -> None:
    """Bring a tensor's elements into ascending order along a dimension."""
    if tensor.n_elems:
        sequence.add(Copy(sort(graph, tensor, dim, sequence, name), tensor))


def sort_key_value(
    graph: Graph, keys: Tensor, values: Tensor, dim: int, sequence: Sequence, name: str = ""
) -> Tensor:
    """The values in ascending order of their keys; those of equal keys ascend."""
    return sort_pairs(graph, keys, values, dim, sequence, name)[1]


def sort_key_value_in_place(
    graph: Graph, keys: Tensor, values: Tensor, dim: int, sequence: Sequence, name: str = ""
) -> None:
    """Bring keys into ascending order along a dimension, and values with them."""
    new_keys, new_values = sort_pairs(graph, keys, values, dim, sequence, name)
    if keys.n_elems:
        sequence.add(Copy(new_keys, keys), Copy(new_values, values))


def sort_pairs(
    graph: Graph, keys: Tensor, values: Tensor, dim: int, sequence: Sequence, name: str = "", *,
    descends: bool = False,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Keys in order, and values with them; values of equal keys ascend."""
    dim = check_sortable("sort_key_value", keys, dim)
    check_sortable("sort_key_value", values, dim)
    check_pair("sort_key_value", keys, values)
    if not keys.n_elems:
        return graph.clone(keys), graph.clone(values)
    rows = as_rows(keys, dim), as_rows(values, dim)
    blocks = _sorted_rows(graph, *rows, sequence, name or "sort_key_value", descends)
    assert blocks.values is not None
    return rows_as(blocks.keys, keys.shape, dim), rows_as(blocks.values, keys.shape, dim)


def rows_as(flat: Tensor, shape: tuple[int, ...], dim: int) -> Tensor:
    """The reverse of as_rows, of rows that may be longer or shorter than before."""
    others = [s for d, s in enumerate(shape) if d != dim]
    n = flat.n_elems // int(np.prod(others, dtype=np.int64))
    return flat.reshape((*others, n)).dim_roll(len(others), dim)


def check_sortable(what: str, tensor: Tensor, dim: int) -> int:
    if tensor.type not in TYPES:
        raise PoplibsError(
            f"{what} does not work on {tensor.type}.",
            source=user_source(),
            hint="it works on " + ", ".join(str(t) for t in TYPES),
        )
    return checked_dim(what, tensor, dim)


def check_pair(what: str, keys: Tensor, values: Tensor) -> None:
    if keys.shape != values.shape:
        raise PoplibsError(
            f"{what} got keys of shape {list(keys.shape)} and values of shape "
            f"{list(values.shape)}.",
            source=user_source(),
            hint="give one value for each key",
        )


# -- registry --------------------------------------------------------------------------------------

_SHAPES = (((200,), 0), ((7, 40), 1), ((37, 3), 0), ((1,), 0), ((2, 0), 1), ((130,), 0))


def _samples(type: Type, rng: np.random.Generator) -> Iterator[Sample]:
    for shape, dim in _SHAPES:
        yield Sample((distinct_values(type, shape, rng),), {"dim": dim})
    yield Sample((rng.integers(0, 4, 90).astype(type.dtype),), {"dim": 0})


def _pair_samples(type: Type, rng: np.random.Generator) -> Iterator[Sample]:
    for shape, dim in _SHAPES:
        values = rng.integers(0, 99, shape).astype(np.float32)
        yield Sample((distinct_values(type, shape, rng), values), {"dim": dim})


def _reference_values(keys: np.ndarray, values: np.ndarray, dim: int) -> np.ndarray:
    return np.take_along_axis(values, np.argsort(keys, axis=dim), dim)


_BAD_TYPE = ErrorCase(Sample((np.ones(3, bool),), {"dim": 0}), "sort does not work on bool")
_BAD_DIM = ErrorCase(Sample((np.ones(3, np.int32),), {"dim": 2}), "sort got dimension 2")
_PAIR = (np.ones(3, np.float32), np.ones(4, np.float32))
_BAD_PAIR = ErrorCase(Sample(_PAIR, {"dim": 0}), "keys of shape [3] and values of shape [4]")

register(
    Op(
        name="popops.sort",
        function=sort,
        about="elements in ascending order along a dimension",
        types=TYPES,
        samples=_samples,
        reference=lambda values, dim: np.sort(values, axis=dim),
        codelets=(sort_vertex, merge_vertex),
        errors=(_BAD_TYPE, _BAD_DIM),
    )
)
register(
    Op(
        name="popops.sort_in_place",
        function=sort_in_place,
        about="bring elements into ascending order along a dimension",
        types=TYPES,
        samples=_samples,
        reference=lambda values, dim: np.sort(values, axis=dim),
        codelets=(sort_vertex, merge_vertex),
        is_in_place=True,
    )
)
register(
    Op(
        name="popops.sort_key_value",
        function=sort_key_value,
        about="values in ascending order of their keys",
        types=TYPES,
        samples=_pair_samples,
        reference=_reference_values,
        codelets=(sort_vertex, merge_vertex),
        errors=(_BAD_PAIR,),
    )
)
