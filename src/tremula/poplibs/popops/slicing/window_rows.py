"""Windows of several rows as single rows: the row numbers that a multi-dimensional index names."""

# Fields are annotated with values, and Numba decides what they hold.
# pyright: reportInvalidTypeForm=false, reportOperatorIssue=false, reportArgumentType=false

import math
from typing import Any

import numpy as np

from tremula.base.types import int32, uint32
from tremula.codelets import Input, MultiVertex, Output, Vector
from tremula.codelets.flops import no_flops
from tremula.codelets.spec import CostView
from tremula.hardware import Chip
from tremula.poplar.graph import Graph
from tremula.poplar.programs import Sequence
from tremula.poplar.tensors.tensor import Tensor
from tremula.poplar.vertices.bulk import Slices
from tremula.poplibs.counts import ceil_div
from tremula.poplibs.families import family
from tremula.poplibs.popops.slicing.row_blocks import map_flat
from tremula.poplibs.poputil import tile_regions
from tremula.poplibs.poputil.steps import run_vertices


@family
def window_codelet() -> type:
    """Row numbers of all places of windows whose corners are given."""

    class WindowRows(MultiVertex):
        name = "popops::WindowRows"
        provenance = "derived"
        corners: Input[Vector[uint32]]  # [n, n_dims]
        rows: Output[Vector[uint32]]  # [n, n_places]
        shape: Vector[int32]
        sizes: Vector[int32]
        clamps: uint32  # move windows inside; otherwise those that stick out get invalid rows

        def compute(self: Any, worker_id: int) -> None:
            n_dims, n_places, n_rows = len(self.shape), 1, 1
            for d in range(n_dims):
                n_places *= int(self.sizes[d])
                n_rows *= int(self.shape[d])
            n = len(self.corners) // n_dims
            for i in range(n * worker_id // self.n_workers, n * (worker_id + 1) // self.n_workers):
                base = 0
                is_inside = True
                for d in range(n_dims):
                    last = int(self.shape[d]) - int(self.sizes[d])
                    # Signed: a negative index arrives as a huge unsigned one.
                    corner = int(int32(self.corners[i * n_dims + d]))
                    is_inside = is_inside and 0 <= corner <= last
                    base = base * int(self.shape[d]) + max(0, min(corner, last))
                for place in range(n_places):
                    offset = 0
                    left, stride = place, 1
                    for k in range(n_dims):
                        d = n_dims - 1 - k
                        offset += left % int(self.sizes[d]) * stride
                        left = left // int(self.sizes[d])
                        stride *= int(self.shape[d])
                    is_row = is_inside or self.clamps != 0
                    self.rows[i * n_places + place] = uint32(base + offset if is_row else n_rows)

        @staticmethod
        def cycles(v: CostView, chip: Chip) -> np.ndarray:
            # A multiply, an add and two comparisons per corner; a load, an add and a store per row
            # from a table of offsets made once.
            per_worker = 8 * ceil_div(v.sizes["corners"], chip.n_workers)
            per_worker = per_worker + 4 * ceil_div(v.sizes["rows"], chip.n_workers)
            return 11 + chip.n_workers * (20 + per_worker)

        flops = no_flops

    return WindowRows


def window_rows(
    graph: Graph,
    corners: Tensor,
    shape: tuple[int, ...],
    sizes: tuple[int, ...],
    sequence: Sequence,
    name: str,
    *,
    clamps: bool = True,
) -> Tensor:
    """UNSIGNED_INT [n * places]: rows, in the flattened `shape`, of windows of `sizes`.

    `corners` is [n, len(shape)]. Windows that stick out are moved inside or, without `clamps`, get
    the row number after the last.
    """
    n_dims, n_places = len(shape), math.prod(sizes)
    n = corners.shape[0]
    rows = graph.add_variable("unsigned int", [n * n_places], f"{name}/rows")
    tile, first, last = _lookups_by_tile(graph, corners)
    begin, end = first * n_places, last * n_places
    map_flat(graph, rows, begin, end, tile)
    run_vertices(
        graph,
        window_codelet(),
        {
            "corners": Slices(corners.flatten(), first * n_dims, last * n_dims),
            "rows": Slices(rows, begin, end),
            "shape": np.array(shape, np.int32),
            "sizes": np.array(sizes, np.int32),
            "clamps": int(clamps),
        },
        tile,
        sequence,
        f"{name}/windowRows",
    )
    return rows


def _lookups_by_tile(graph: Graph, corners: Tensor) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(tile, first, last): runs of lookups by the tile that holds their first index."""
    regions = tile_regions(graph, corners[:, 0])
    return regions.tile, regions.begin, regions.end
