"""Which non-zero blocks a vertex of a static product has, and what it reads and writes for them.

Blocks are stored in *device order*: band by band, in each row by row. An interval of columns deals
the blocks of a band to its tiles in runs of that order, so that what a vertex has is one slice.
Take six blocks of two bands, and an interval with three tiles:

    device order        0 1 2 3 | 4 5         bands
    tiles               0 0 1 1 | 2 2         runs of ceil(blocks / tiles of the band)

A vertex reads the dense rows of the columns that its blocks have, each once, and writes partial
results of the rows they have. For the gradient of the dense operand rows and columns change places.
"""

from dataclasses import dataclass

import numpy as np

from tremula.poplar.tensors.runs import expand
from tremula.poplibs.popsparse.static.plan import StaticPlan

Ints = np.ndarray


@dataclass(frozen=True, eq=False)
class Dealt:
    """The vertices of a product: their tiles, columns of the dense operand, and blocks."""

    order: Ints  # int64[n_blocks]: number in the order of rows of each block of the device order
    row: Ints  # int64[n_blocks], in device order
    column: Ints
    tile: Ints  # int64[n_vertices]
    n_begin: Ints
    n_end: Ints
    first: Ints  # blocks first … last of the device order
    last: Ints

    @property
    def widths(self) -> Ints:
        return self.n_end - self.n_begin


def deal(plan: StaticPlan, row: Ints, column: Ints, n: int) -> Dealt:
    """Deal blocks, given in the order of rows, to the tiles of a plan with n columns."""
    place = np.empty(len(plan.column_order), np.int64)
    place[np.array(plan.column_order, np.int64)] = np.arange(len(place))
    band = np.searchsorted(plan.band_cuts, place[column], side="right") - 1
    order = np.argsort(band, kind="stable")
    ends = np.concatenate(([0], np.cumsum(np.bincount(band, minlength=len(plan.band_cuts) - 1))))
    parts = []
    for interval, tiles in enumerate(plan.band_tiles):
        first_tile = plan.tile_cuts[interval]
        for number, n_tiles in enumerate(tiles):
            begin, end = int(ends[number]), int(ends[number + 1])
            if end > begin:
                size = -(-(end - begin) // n_tiles)
                first = np.arange(begin, end, size)
                last = np.minimum(first + size, end)
                number_of = np.full(len(first), interval)
                parts.append((first_tile + np.arange(len(first)), number_of, first, last))
            first_tile += n_tiles
    empty = np.empty(0, np.int64)
    columns = [np.concatenate(c) for c in zip(*parts, strict=True)] if parts else [empty] * 4
    tile, interval, first, last = columns
    cuts = np.minimum(plan.n_cuts, n)  # a plan has whole grains
    return Dealt(
        order, row[order], column[order], tile, cuts[interval], cuts[interval + 1], first, last
    )


@dataclass(frozen=True, eq=False)
class WorkLists:
    """What vertices do: outputs they have, and for each the blocks that it sums up.

    Vertex v has the outputs out_start[v] … out_start[v + 1] and reads the inputs in_start[v] …
    in_start[v + 1]; blocks of vertices follow each other. `source` says where each block is in the
    device order.
    """

    out_start: Ints
    out_index: Ints  # row of the result
    in_start: Ints
    in_index: Ints  # row of the dense operand
    block_start: Ints  # int64[n_vertices + 1]
    first_block: Ints  # int64[n_outputs]: of its vertex's blocks
    n_blocks: Ints  # int64[n_outputs]
    input_of_block: Ints  # number among its vertex's inputs
    source: Ints


def work_lists(dealt: Dealt, *, is_transposed: bool = False) -> WorkLists:
    """The work of all vertices; transposed, columns are outputs and rows are inputs."""
    counts = dealt.last - dealt.first
    vertex, within = expand(counts)
    source = dealt.first[vertex] + within
    out, inner = dealt.row[source], dealt.column[source]
    if is_transposed:
        out, inner = inner, out
        order = np.lexsort((inner, out, vertex))
        vertex, out, inner, source = vertex[order], out[order], inner[order], source[order]
    n_vertices = len(counts)
    out_start, out_index, out_of_block = _distinct(vertex, out, n_vertices)
    in_start, in_index, in_of_block = _distinct(vertex, inner, n_vertices)
    block_start = np.concatenate(([0], np.cumsum(counts)))
    n_blocks = np.bincount(out_of_block, minlength=len(out_index))
    first = np.cumsum(n_blocks) - n_blocks
    owner = np.repeat(np.arange(n_vertices), np.diff(out_start))
    return WorkLists(
        out_start, out_index, in_start, in_index, block_start, first - block_start[owner], n_blocks,
        in_of_block - in_start[vertex], source,
    )  # fmt: skip


def _distinct(vertex: Ints, index: Ints, n_vertices: int) -> tuple[Ints, Ints, Ints]:
    """(start per vertex, the distinct indices of each vertex, the number of each entry's)."""
    n = int(index.max(initial=0)) + 1
    keys, number = np.unique(vertex * n + index, return_inverse=True)
    start = np.searchsorted(keys, np.arange(n_vertices + 1) * n)
    return start, keys % n, number
