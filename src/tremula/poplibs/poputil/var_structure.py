"""The structure of variables: groups of elements side by side, and tensors made of blocks."""

import math
from collections.abc import Sequence

import numpy as np

from tremula.base.source import user_source
from tremula.base.types import Type
from tremula.poplar.graph import Graph
from tremula.poplar.tensors.tensor import Tensor, concat
from tremula.poplibs.registry import PoplibsError


def detect_innermost_grouping(graph: Graph, tensor: Tensor) -> int:  # noqa: ARG001 - Poplar's form
    """How many elements along the last dimension lie side by side, in groups of that size."""
    groups = detect_dim_groupings(tensor)
    inner = tensor.rank - 1
    return groups[0][1] if groups and groups[0][0] == inner else 1


def detect_dim_groupings(tensor: Tensor) -> list[tuple[int, int]]:
    """(dimension, group size) from the innermost in memory outwards.

    A dimension appears more than once if memory order leaves it and comes back: a tensor of shape
    [32, 4] stored as [2, 4, 16] has groupings [(0, 16), (1, 4), (0, 2)].
    """
    if tensor.n_elems == 0:
        return []
    address = tensor.addresses()
    sizes = list(tensor.shape)
    done = [1] * tensor.rank
    groups: list[tuple[int, int]] = []
    step = 1
    while True:
        result = _next_group(address, sizes, done, step)
        if result is None:
            return groups
        dim, n = result
        groups.append((dim, n))
        done[dim] *= n
        step *= n


def _next_group(
    address: np.ndarray, sizes: list[int], done: list[int], step: int
) -> tuple[int, int] | None:
    """The dimension along which blocks found so far continue at `step`, and for how many."""
    for dim in reversed(range(len(sizes))):
        left = sizes[dim] // done[dim]
        if left < 2:
            continue
        blocks = np.moveaxis(address, dim, -1)[..., :: done[dim]]
        jumps = np.diff(blocks, axis=-1).reshape(-1, left - 1)
        breaks = np.flatnonzero((jumps != step).any(axis=0)) + 1
        n = math.gcd(left, *breaks.tolist()) if len(breaks) else left
        if n > 1:
            return dim, n
    return None


def create_partitionable_tensor(
    graph: Graph, type: Type, shape: Sequence[int], n_partitions: Sequence[int], name: str = ""
) -> Tensor:
    """An unmapped tensor in which every part of a partition is contiguous.

    Dimension d is cut into n_partitions[d] parts of ceil(size / parts) elements.
    """
    if len(shape) != len(n_partitions) or any(n < 1 for n in n_partitions):
        raise PoplibsError(
            f"{list(n_partitions)} does not partition shape {list(shape)}.",
            source=user_source(),
            hint="give a number of parts, 1 or more, for every dimension",
        )
    if not len(shape):
        return graph.add_variable(type, [], name)
    flat = graph.add_variable(type, [math.prod(shape)], name)
    return _partitioned(flat, tuple(shape), tuple(n_partitions))


def _partitioned(flat: Tensor, shape: tuple[int, ...], n_parts: tuple[int, ...]) -> Tensor:
    """A view of contiguous elements, cut along the first dimension, then inside each part."""
    if len(shape) == 0:
        return flat.reshape(())
    size = -(-shape[0] // n_parts[0]) or 1
    inner = math.prod(shape[1:])
    parts = []
    for low in range(0, shape[0], size):
        n = min(size, shape[0] - low)
        block = flat.slice(low * inner, (low + n) * inner)
        parts.append(_inner_partitioned(block, n, shape[1:], n_parts[1:]))
    return concat(parts) if parts else flat.reshape(shape)


def _inner_partitioned(
    block: Tensor, n_outer: int, shape: tuple[int, ...], n_parts: tuple[int, ...]
) -> Tensor:
    """Rows [n_outer, *shape] whose inner parts hold all n_outer rows contiguously."""
    if not shape:
        return block.reshape((n_outer,))
    size = -(-shape[0] // n_parts[0]) or 1
    inner = math.prod(shape[1:])
    parts, at = [], 0
    for low in range(0, shape[0], size):
        n = min(size, shape[0] - low)
        piece = block.slice(at, at + n_outer * n * inner)
        at += n_outer * n * inner
        part = _inner_partitioned(piece, n_outer * n, shape[1:], n_parts[1:])
        parts.append(part.reshape((n_outer, n, *shape[1:])))
    return concat(parts, 1) if parts else block.reshape((n_outer, *shape))
