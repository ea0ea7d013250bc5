"""Vertices over a tensor: one MultiVertex for a tile with one region, else workers over lists.

Every element-wise family builds its vertices here, whatever its codelets compute.
"""

from collections.abc import Callable, Mapping
from enum import Enum
from typing import NamedTuple

import numpy as np

from tremula.base.types import Type
from tremula.poplar.graph import Graph
from tremula.poplar.programs import Execute, Sequence
from tremula.poplar.tensors.tensor import Tensor
from tremula.poplar.vertices.bulk import Slices
from tremula.poplar.vertices.compute_set import ComputeSet
from tremula.poplibs.poputil import (
    TileRegions,
    WorkerSlices,
    broadcast_view,
    cut_rows,
    pattern_of,
    simplified,
    split_between_workers,
    tile_regions,
)
from tremula.poplibs.poputil.broadcast import AnyPattern, pattern_of_pieces


class Form(Enum):
    """How an operand is laid out relative to the output."""

    VECTOR = "V"  # as long as the output
    SCALAR = "S"
    INNER = "I"  # one element per column of the output's rows
    OUTER = "O"  # one element per row


class Operand(NamedTuple):
    """One input of an element-wise vertex."""

    field: str
    form: Form
    tensor: Tensor  # a scalar, the repeated vector, or a flat tensor in the output's order
    pattern: AnyPattern | None = None

    def slices(self, begin: np.ndarray, end: np.ndarray, start: np.ndarray | None) -> Slices:
        """Its part for each region of the output."""
        if self.pattern is not None:
            begin, end = self.pattern.part(begin, end)
        return Slices(self.tensor, begin, end, start)


def aligned(
    out: Tensor, inputs: Mapping[str, Tensor], *, has_rows: bool = True
) -> tuple[Tensor, list[Operand]]:
    """The output flat in memory order, and each input (by field) in the form that fits it.

    Without `has_rows` the forms are scalar and vector only.
    """
    is_scalar = {f: t.n_elems == 1 < out.n_elems for f, t in inputs.items()}
    wide = [f for f in inputs if not is_scalar[f]]
    simple_out, views = simplified(out, [broadcast_view(inputs[f], out.shape) for f in wide])
    view_of = dict(zip(wide, views, strict=True))
    operands = [
        Operand(field, Form.SCALAR, tensor.flatten())
        if is_scalar[field]
        else _operand(field, view_of[field], has_rows)
        for field, tensor in inputs.items()
    ]
    return simple_out.flatten(), _with_one_row_length(operands)


def _operand(field: str, view: Tensor, has_rows: bool) -> Operand:
    pattern = pattern_of(view) or pattern_of_pieces(view) if has_rows else None
    if pattern is None:
        return Operand(field, Form.VECTOR, view.flatten())
    form = Form.INNER if pattern.is_inner else Form.OUTER
    return Operand(field, form, pattern.vector, pattern)


def _with_one_row_length(operands: list[Operand]) -> list[Operand]:
    """Rows must be equally long for all broadcast operands; one that disagrees is materialised."""
    rows = [o.pattern.n_cols for o in operands if o.pattern is not None]
    return [
        o
        if o.pattern is None or o.pattern.n_cols == rows[0]
        else Operand(o.field, Form.VECTOR, o.pattern.view.flatten())
        for o in operands
    ]


def run_spread(
    graph: Graph,
    codelet: Callable[[bool], type],
    out_field: str,
    out: Tensor,
    operands: list[Operand],
    sequence: Sequence,
    name: str,
    *,
    state: Mapping[str, object] | None = None,
) -> None:
    """`spread_vertices` as the next step of a program."""
    compute_set = graph.add_compute_set(name)
    spread_vertices(graph, compute_set, codelet, out_field, out, operands, state)
    sequence.add(Execute(compute_set))


def spread_vertices(
    graph: Graph,
    compute_set: ComputeSet,
    codelet: Callable[[bool], type],
    out_field: str,
    out: Tensor,
    operands: list[Operand],
    state: Mapping[str, object] | None = None,
) -> None:
    """Add vertices where `out` (flat, in memory order) lives; `codelet(is_multi)` gives theirs.

    Fields that are vectors in the MultiVertex are vectors of vectors in the other; scalars and
    state are the same in both.
    """
    patterns = [o.pattern for o in operands if o.pattern is not None]
    regions = tile_regions(graph, out)
    owner, begin, end = cut_rows(regions.begin, regions.end, patterns)
    tile = regions.tile[owner]
    n_pieces = np.bincount(tile, minlength=graph.target.n_tiles)
    is_alone = n_pieces[tile] == 1
    more = dict(state or {})
    if is_alone.any():
        fields = _fields(operands, begin[is_alone], end[is_alone], None, int(is_alone.sum()))
        fields[out_field] = Slices(out, begin[is_alone], end[is_alone])
        graph.add_vertices(compute_set, codelet(True), fields | more, tiles=tile[is_alone])
    if not is_alone.all():
        work = worker_pieces(graph, regions.on_tiles(n_pieces > 1), patterns, out.type)
        fields = _fields(operands, work.begin, work.end, work.start, len(work.tile))
        fields[out_field] = Slices(out, work.begin, work.end, work.start)
        graph.add_vertices(compute_set, codelet(False), fields | more, tiles=work.tile)


def worker_pieces(
    graph: Graph, regions: TileRegions, patterns: list[AnyPattern], type: Type
) -> WorkerSlices:
    """Regions split across workers, and cut at the ends of rows."""
    chip = graph.target.chip
    # Two workers must not write to one store of the memory.
    grain = max(chip.vector_width(type), chip.atomic_store_bytes // type.n_bytes)
    work = split_between_workers(regions, graph.target.n_worker_contexts, grain)
    piece, begin, end = cut_rows(work.begin, work.end, patterns)
    vertex = np.repeat(np.arange(len(work.tile)), np.diff(work.start))[piece]
    counts = np.bincount(vertex, minlength=len(work.tile))
    return WorkerSlices(work.tile, np.concatenate(([0], np.cumsum(counts))), begin, end)


def _fields(
    operands: list[Operand], begin: np.ndarray, end: np.ndarray, start: np.ndarray | None,
    n_vertices: int,
) -> dict[str, object]:  # fmt: skip
    zeros = np.zeros(n_vertices, np.int64)
    return {
        o.field: Slices(o.tensor, zeros, zeros + 1)
        if o.form is Form.SCALAR
        else o.slices(begin, end, start)
        for o in operands
    }
