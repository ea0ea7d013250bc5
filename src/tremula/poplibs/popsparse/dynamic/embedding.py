"""Embeddings with a sparse table: rows of it, and additions to what it has.

The rows that are looked up are split across the plan's tiles: tile (x, y, z) has a share of the row
numbers, and of those rows the columns of part y. For slices all buckets of a part come by, once
around x, and again for every y that pieces may have spilled to; for updates buckets stay, and rows,
their numbers and their part's number travel.
"""

from dataclasses import dataclass

import numpy as np

from tremula.base.source import user_source
from tremula.base.types import FLOAT, INT, UNSIGNED_INT, Type, as_type
from tremula.poplar.graph import Graph
from tremula.poplar.programs import Copy, Sequence
from tremula.poplar.tensors.tensor import Tensor, concat
from tremula.poplar.vertices.bulk import Slices
from tremula.poplibs.counts import ceil_div
from tremula.poplibs.popops import cast, scaled_add_to, zero
from tremula.poplibs.popsparse.dynamic import embedding_codelets as codelets
from tremula.poplibs.popsparse.dynamic.buckets import (
    BucketRing,
    Buckets,
    SparseTensor,
    TileCoordinates,
    of_group,
    on_tiles,
)
from tremula.poplibs.popsparse.dynamic.params import FullyConnectedParams
from tremula.poplibs.popsparse.dynamic.plan import DynamicPlan
from tremula.poplibs.popsparse.errors import SparsityError
from tremula.poplibs.poputil.steps import run_vertices

_NO_ROW = 2**32 - 1  # fills up the shares of row numbers


def create_indices_tensor(
    graph: Graph, params: FullyConnectedParams, n_indices: int | None = None, name: str = "indices"
) -> Tensor:
    """Room for row numbers: as many as the params' batch, unless a number is given."""
    n = params.n_batch if n_indices is None else n_indices
    return graph.add_variable(UNSIGNED_INT, [n], name, mapping="linear")


def create_slice_tensor(
    graph: Graph, type: Type | str, params: FullyConnectedParams, n_indices: int | None = None,
    name: str = "slices",
) -> Tensor:  # fmt: skip
    """Room for rows: [number of indices, columns]."""
    n = params.n_batch if n_indices is None else n_indices
    return graph.add_variable(as_type(type), [n, params.n_in], name, mapping="linear")


def embedding_slice(
    graph: Graph, table: SparseTensor, indices: Tensor, sequence: Sequence,
    name: str = "embeddingSlice",
) -> Tensor:  # fmt: skip
    """Rows of the table, dense: [number of indices, columns]; zeros for rows that it lacks."""
    return _EmbeddingRows(graph, table, _checked(indices, name), name).taken(indices, sequence)


def embedding_update_add(
    graph: Graph, table: SparseTensor, slices: Tensor, indices: Tensor, sequence: Sequence, *,
    scale: float = 1.0, name: str = "embeddingUpdateAdd",
) -> None:  # fmt: skip
    """Add scale · slices to rows of the table, where it has values; repeated rows add up."""
    p, n = table.plan.problem, _checked(indices, name)
    if not p.with_grad_w:
        raise SparsityError(
            f"{name} got a table that was made without do_grad_w_pass.",
            source=user_source(),
            hint="create it with do_grad_w_pass=True",
        )
    if slices.shape != (n, p.n_in) or slices.type != p.element:
        raise SparsityError(
            f"{name} got slices of {slices.type} {list(slices.shape)}, expected {p.element} "
            f"{[n, p.n_in]}.",
            source=user_source(),
            hint="create_slice_tensor makes them",
        )
    change = _EmbeddingRows(graph, table, n, name).added(slices, indices, sequence)
    if p.element is not FLOAT:
        change = cast(graph, change, p.element, sequence, f"{name}/cast")
    scaled_add_to(graph, table.nz_values, change, scale, sequence, f"{name}/add")


def _checked(indices: Tensor, name: str) -> int:
    if indices.rank != 1 or indices.type != UNSIGNED_INT:
        raise SparsityError(
            f"{name} got indices of {indices.type} {list(indices.shape)}, expected "
            f"{UNSIGNED_INT} [number of rows].",
            source=user_source(),
            hint="create_indices_tensor makes them",
        )
    return len(indices)


@dataclass(frozen=True)
class _EmbeddingRows:
    """Rows of a table, dealt to the tiles of its plan."""

    graph: Graph
    table: SparseTensor
    n_indices: int
    name: str

    @property
    def plan(self) -> DynamicPlan:
        return self.table.plan

    @property
    def n_share(self) -> int:
        """Row numbers of a tile."""
        return max(-(-self.n_indices // (self.plan.x * self.plan.z)), 1)

    @property
    def width(self) -> int:
        """Columns of a part."""
        return self.plan.tile_y * self.plan.problem.side

    def taken(self, indices: Tensor, sequence: Sequence) -> Tensor:
        plan, p, places = self.plan, self.plan.problem, TileCoordinates.of(self.plan)
        out = on_tiles(self.graph, p.element, plan, self.n_share * self.width, f"{self.name}/rows")
        zero(self.graph, out, sequence, f"{self.name}/zero")
        offsets, buckets = self._offsets(indices, sequence), Buckets.of(self.table)
        ring = BucketRing(self.graph, self.table, [buckets.words, buckets.values], 1, self.name)
        group, step = np.arange(plan.n_tiles) // plan.z, Sequence()
        fields = {
            "words": of_group(ring.buffers[0], group, plan.z),
            "values": of_group(ring.buffers[1], group, plan.z),
            "offsets": _each(offsets),
            "out": _each(out),
            "partition": places.y,
            "n_buckets": plan.z,
            **self._state(self.n_share, plan.rows_per_tile),
        }
        codelet = codelets.take_rows(p.element)
        run_vertices(self.graph, codelet, fields, places.tile, step, f"{self.name}/take")
        ring.add_around_x(step, sequence)
        return self._view(out)

    def added(self, slices: Tensor, indices: Tensor, sequence: Sequence) -> Tensor:
        """The sum of slices for every value of the table, in float."""
        plan, p, places = self.plan, self.plan.problem, TileCoordinates.of(self.plan)
        rows = on_tiles(self.graph, p.element, plan, self.n_share * self.width, f"{self.name}/rows")
        zero(self.graph, rows, sequence, f"{self.name}/pad")
        sequence.add(Copy(slices, self._view(rows)))
        total = on_tiles(self.graph, FLOAT, plan, plan.n_values, f"{self.name}/total")
        zero(self.graph, total, sequence, f"{self.name}/zero")
        part = self.graph.add_constant(
            INT, [plan.x, plan.y, plan.z, 1], places.y, f"{self.name}/part"
        )
        self.graph.set_tile_mapping(part, 0)
        own = [rows, self._offsets(indices, sequence), part]
        ring = BucketRing(self.graph, self.table, own, -1, self.name)
        group, step = np.arange(plan.n_tiles) // plan.z, Sequence()
        fields = {
            "words": _each(Buckets.of(self.table).words),
            "slices": of_group(ring.buffers[0], group, plan.z),
            "offsets": of_group(ring.buffers[1], group, plan.z),
            "partition": _each(ring.buffers[2]),
            "out": _each(total),
            **self._state(self.n_share * plan.z, -(-plan.rows_per_tile // plan.z)),
        }
        codelet = codelets.add_rows(p.element)
        run_vertices(self.graph, codelet, fields, places.tile, step, f"{self.name}/add")
        ring.add_around_x(step, sequence)
        return total.flatten()

    def _state(self, n_offsets: int, n_rows: int) -> dict[str, int]:
        """The state of a vertex, and what to expect of a uniform pattern."""
        plan, p = self.plan, self.plan.problem
        return {
            "n_columns": self.width,
            "n_planned_columns": plan.tile_z,
            "rows_of_partition": plan.tile_x,
            "side": p.side,
            "n_offsets": n_offsets,
            "planned_rows": n_rows,
            "planned_row_columns": plan.blocks_per_row * p.side,
            "planned_matches": int(ceil_div(n_offsets * n_rows, plan.rows_per_tile * plan.x or 1)),
        }

    def _offsets(self, indices: Tensor, sequence: Sequence) -> Tensor:
        """[x, y, z, share]: every part of the columns has the same numbers."""
        plan, shape = self.plan, (self.plan.x, 1, self.plan.z, self.n_share)
        n_rest = plan.x * plan.z * self.n_share - self.n_indices
        if n_rest:
            rest = self.graph.add_constant(
                UNSIGNED_INT, [n_rest], np.full(n_rest, _NO_ROW, np.uint32), f"{self.name}/noRow"
            )
            self.graph.set_tile_mapping(rest, 0)
            indices = concat([indices, rest])
        result = on_tiles(self.graph, UNSIGNED_INT, plan, self.n_share, f"{self.name}/offsets")
        sequence.add(Copy(indices.reshape(shape).broadcast(plan.y, 1), result))
        return result

    def _view(self, rows: Tensor) -> Tensor:
        """[x, y, z, share · width] as [number of indices, columns]."""
        plan = self.plan
        parts = rows.reshape((plan.x, plan.y, plan.z, self.n_share, self.width))
        whole = parts.dim_shuffle([0, 2, 3, 1, 4]).reshape(
            (plan.x * plan.z * self.n_share, plan.y * self.width)
        )
        return whole.slice(0, self.n_indices, 0).slice(0, plan.problem.n_in, 1)


def _each(tensor: Tensor) -> Slices:
    """For each tile its own entry of [x, y, z, size]."""
    size = tensor.shape[3]
    at = np.arange(tensor.n_elems // max(size, 1))
    return Slices(tensor.flatten(), at * size, (at + 1) * size)
