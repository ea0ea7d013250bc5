"""Transposing operands on the tiles: for tensors whose contiguous dimension is not the last.

Moving such a tensor into blocks element by element would make as many messages as it has elements.
So its rows are moved as they are, into blocks with that dimension last, and each tile transposes
what it received.
"""

from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from math import prod
from typing import Any

import numpy as np

from tremula.base.types import FLOAT, QUARTER, UNSIGNED_CHAR, Type, int32
from tremula.codelets import Input, MultiVertex, Output, Vector
from tremula.codelets.flops import no_flops
from tremula.codelets.spec import CostView
from tremula.hardware import Chip
from tremula.poplar.graph import Graph
from tremula.poplar.programs import Copy, Sequence
from tremula.poplar.tensors.tensor import Tensor
from tremula.poplar.vertices.bulk import Slices
from tremula.poplibs.counts import ceil_div
from tremula.poplibs.families import family
from tremula.poplibs.poplin.product.blocks import (
    OperandBlocks,
    Spread,
    Stored,
    add_blocked,
    map_spread,
    view_of,
)
from tremula.poplibs.poplin.product.methods import Count
from tremula.poplibs.poputil.layout import is_contiguous_along
from tremula.poplibs.poputil.memo import N_PLANS
from tremula.poplibs.poputil.steps import run_vertices

Ints = np.ndarray


@family
def turn(element: Type) -> type:
    """Transposes matrices: [n, rows, cols] to [n, cols, rows]."""

    class Turn(MultiVertex):
        name = f"poplin::Transpose<{element}>"
        provenance = "published"
        source: Input[Vector[element]]  # type: ignore[valid-type]
        out: Output[Vector[element]]  # type: ignore[valid-type]
        n_matrices: int32  # type: ignore[valid-type]
        n_rows: int32  # type: ignore[valid-type]
        n_cols: int32  # type: ignore[valid-type]

        def compute(self: Any, worker_id: int) -> None:
            n_rows, n_cols = self.n_rows, self.n_cols
            n = self.n_matrices * n_cols  # rows of the result
            begin = n * worker_id // self.n_workers
            end = n * (worker_id + 1) // self.n_workers
            for row in range(begin, end):
                matrix = row // n_cols
                first = matrix * n_rows * n_cols + row - matrix * n_cols
                for i in range(n_rows):
                    self.out[row * n_rows + i] = self.source[first + i * n_cols]

        @staticmethod
        def cycles(v: CostView, chip: Chip) -> np.ndarray:
            n_matrices, n_rows, n_cols = (
                v.state[n].astype(np.int64) for n in ("n_matrices", "n_rows", "n_cols")
            )
            return transpose_cycles(n_matrices, n_rows, n_cols, chip, element)

        flops = no_flops

    return Turn


# PopLibs' estimator of Transpose: supervisor cycles; worker slots, once and per row of grains.
TURN_LAUNCH, TURN_START, TURN_ROW = 7, 29 + 18, 12


def transpose_cycles(
    n_matrices: Count, n_rows: Count, n_cols: Count, chip: Chip, element: Type
) -> Ints:
    """Transposing matrices of [n_rows, n_cols] in grains of 4x4 halves or 2x2 floats."""
    grain, slots = (2, 3) if element is FLOAT else (4, 4)
    rows, cols = ceil_div(n_rows, grain), ceil_div(n_cols, grain)
    share = ceil_div(np.asarray(n_matrices) * rows, chip.n_workers)  # rows of grains
    worker = TURN_START + share * (TURN_ROW + slots * cols)
    return TURN_LAUNCH + chip.n_workers * worker


def contiguous_dim(tensor: Tensor) -> int | None:
    """The dimension, not the last, along which elements follow each other in memory."""
    if tensor.rank < 2 or tensor.shape[-1] == 1 or is_contiguous_along(tensor, tensor.rank - 1):
        return None
    dims = (d for d in range(tensor.rank - 1) if is_contiguous_along(tensor, d))
    return next(dims, None)


@dataclass(frozen=True)
class _Turning:
    """What a transposition needs that depends on blocks, their users and the dimension alone."""

    order: tuple[int, ...]  # of dimensions, the contiguous one last
    blocks: OperandBlocks
    spread: Spread
    source_begin: Ints
    out_begin: Ints
    size: Ints
    tile: Ints
    state: dict[str, Ints]


def add_turning(
    graph: Graph, tensor: Tensor, dim: int, stored: Stored, parts: "TilesOfParts",
    sequence: Sequence, name: str,
) -> None:  # fmt: skip
    """Fill a blocked variable from a tensor whose dimension `dim` is contiguous."""
    plan = _turning(stored.blocks, parts, dim)
    if tensor.type is QUARTER:  # codes are moved as bytes
        stored = Stored(stored.blocks, stored.flat.reinterpret(UNSIGNED_CHAR))
        tensor = tensor.reinterpret(UNSIGNED_CHAR)
    turned = add_blocked(graph, tensor.type, plan.blocks, f"{name}/turned")
    map_spread(graph, turned.flat, plan.spread)
    sequence.add(Copy(tensor.dim_shuffle(list(plan.order)), view_of(turned)))
    fields = {
        "source": Slices(turned.flat, plan.source_begin, plan.source_begin + plan.size),
        "out": Slices(stored.flat, plan.out_begin, plan.out_begin + plan.size),
        **plan.state,
    }
    run_vertices(graph, turn(tensor.type), fields, plan.tile, sequence, f"{name}/Transpose")


@dataclass(frozen=True, eq=False)
class TilesOfParts:
    """The tiles of each block's parts: int64[n_blocks, n]. Compared by identity."""

    tiles: Ints


@lru_cache(N_PLANS)
def _turning(blocks: OperandBlocks, parts: TilesOfParts, dim: int) -> _Turning:
    """Each block is cut along its outermost dimension, a part for each tile that has one of its."""
    rank = len(blocks.cuts)
    split = next(d for d in range(rank) if d == dim or max(np.diff(blocks.cuts[d])) > 1)
    cuts = list(blocks.cuts)
    cuts[split], parent, chunk = _refined(cuts[split], parts.tiles.shape[1])
    order = (*(d for d in range(rank) if d != dim), dim)
    fine = OperandBlocks(tuple(cuts))
    turned = OperandBlocks(tuple(cuts[d] for d in order))
    index = np.indices(fine.n_blocks).reshape(rank, -1)
    low = [np.asarray(c, np.int64)[i] for c, i in zip(cuts, index, strict=True)]
    sizes = [np.diff(c)[i] for c, i in zip(cuts, index, strict=True)]
    number = np.ravel_multi_index([index[d] for d in order], turned.n_blocks)
    source = turned.starts().ravel()[number]
    size = prod(sizes[1:], start=sizes[0])
    coarse = list(index)
    coarse[split] = parent[index[split]]
    block = np.ravel_multi_index(coarse, blocks.n_blocks)
    tile = parts.tiles[block, chunk[index[split]]]
    ones = np.ones_like(size)
    state = {
        "n_matrices": prod(sizes[:dim], start=ones),
        "n_rows": prod(sizes[dim + 1 :], start=ones),
        "n_cols": sizes[dim],
    }
    spread = Spread(source, source + size, tile)
    return _Turning(order, turned, spread, source, blocks.addresses(low), size, tile, state)


def _refined(cuts: tuple[int, ...], n_parts: int) -> tuple[tuple[int, ...], Ints, Ints]:
    """Every part cut again: new boundaries, each new part's parent, and its place of n_parts."""
    result, parent, chunk = [0], [], []
    for j, (low, high) in enumerate(pairwise(cuts)):
        n = max(1, min(n_parts, high - low))
        ends = [low + (high - low) * (p + 1) // n for p in range(n)]
        result += ends
        parent += [j] * n
        chunk += [p * n_parts // n for p in range(n)]
    return tuple(result), np.array(parent), np.array(chunk)
