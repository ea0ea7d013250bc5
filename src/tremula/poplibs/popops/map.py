"""map: one generated vertex per tile (or worker) for a whole element-wise expression."""

from collections.abc import Sequence as ListOf
from typing import NamedTuple

import numpy as np

from tremula.base.source import user_source
from tremula.base.types import Type
from tremula.poplar.bulk import Slices
from tremula.poplar.compute_set import ComputeSet
from tremula.poplar.graph import Graph
from tremula.poplar.programs import Execute, Sequence
from tremula.poplar.tensor import Tensor
from tremula.poplibs.popops.element_codelets import CodeletPlan, Form, element_codelet
from tremula.poplibs.popops.expr import Expr, as_expr
from tremula.poplibs.popops.fused import FusedBody, fuse
from tremula.poplibs.poputil import (
    Pattern,
    TileRegions,
    WorkerSlices,
    broadcast_shape,
    broadcast_view,
    clone_in_order,
    cut_rows,
    pattern_of,
    simplified,
    split_between_workers,
    tile_regions,
)
from tremula.poplibs.registry import PoplibsError

ATOMIC_STORE_BYTES = 4  # a tile stores at least this much at once; workers must not share it


def map(
    graph: Graph, expr: Expr, tensors: ListOf[Tensor], sequence: Sequence, name: str = ""
) -> Tensor:
    """A new tensor with the expression's value for every element; shapes broadcast as in NumPy."""
    body = fuse(as_expr(expr), [t.type for t in tensors])
    shape = broadcast_shape([tensors[i - 1].shape for i in body.used])
    out = create_output(graph, tensors, body.result, shape, name or "map")
    _add_map(graph, body, tensors, out, sequence, name, is_in_place=False)
    return out


def map_in_place(
    graph: Graph, expr: Expr, tensors: ListOf[Tensor], sequence: Sequence, name: str = ""
) -> None:
    """Write the expression's value over the first tensor."""
    body = fuse(as_expr(expr), [t.type for t in tensors])
    _check_target(body, tensors, tensors[0], "in place")
    _add_map(graph, body, tensors, tensors[0], sequence, name, is_in_place=True)


def map_with_output(
    graph: Graph, expr: Expr, tensors: ListOf[Tensor], out: Tensor, sequence: Sequence,
    name: str = "",
) -> None:  # fmt: skip
    """Write the expression's value to a tensor that exists."""
    body = fuse(as_expr(expr), [t.type for t in tensors])
    _check_target(body, tensors, out, "as output")
    _add_map(graph, body, tensors, out, sequence, name, is_in_place=False)


def _check_target(body: FusedBody, tensors: ListOf[Tensor], target: Tensor, how: str) -> None:
    shape = broadcast_shape([target.shape, *(tensors[i - 1].shape for i in body.used)])
    if shape != target.shape:
        raise PoplibsError(
            f"a result of shape {list(shape)} cannot be written {how} to shape "
            f"{list(target.shape)}.",
            source=user_source(),
            mend="only the other operands are broadcast",
        )
    if body.result is not target.type:
        raise PoplibsError(
            f"a result of type {body.result} cannot be written {how} to {target.type}.",
            source=user_source(),
            mend="cast the expression: Cast(…, type)",
        )
    if not target.is_parallel_writeable:
        raise PoplibsError(
            f"{target!r} cannot be written {how}: it repeats an element or is constant.",
            source=user_source(),
            mend="write to a plain variable",
        )


def create_output(
    graph: Graph, tensors: ListOf[Tensor], type: Type, shape: tuple[int, ...], name: str
) -> Tensor:
    """The output PopLibs would make: like the operand that is spread best, else linear.

    Best: fewest elements on the fullest tile, then most tiles, then fewest regions.
    """
    candidates = [t for t in tensors if t.shape == shape and not t.contains_aliases]
    if len(candidates) > 1:
        candidates = [min(candidates, key=lambda t: _spread(graph, t))]
    if candidates:
        return clone_in_order(graph, candidates[0], name, type=type)
    out = graph.add_variable(type, shape, name)
    if out.n_elems == 1 and tensors:
        first = graph.get_tile_mapping(tensors[0])
        graph.set_tile_mapping(out, int(first.tile[0]) if len(first.tile) else 0)
    else:
        width = graph.target.vector_width(type)
        graph.map_linearly(out, grain=width)
    return out


def _spread(graph: Graph, tensor: Tensor) -> tuple[int, int, int]:
    mapping = graph.get_tile_mapping(tensor)
    per_tile = mapping.n_elems_per_tile()
    return int(per_tile.max(initial=0)), -int(np.count_nonzero(per_tile)), len(mapping.begin)


# -- vertices ----------------------------------------------------------------------------------


class Operand(NamedTuple):
    """One tensor of an expression beside the output."""

    field: str
    form: Form
    tensor: Tensor  # a scalar, the repeated vector, or a flat tensor in the output's order
    pattern: Pattern | None

    def slices(self, begin: np.ndarray, end: np.ndarray, start: np.ndarray | None) -> Slices:
        """Its part for each region of the output."""
        if self.pattern is not None:
            begin, end = self.pattern.part(begin, end)
        return Slices(self.tensor, begin, end, start)


def _add_map(
    graph: Graph, body: FusedBody, tensors: ListOf[Tensor], out: Tensor, sequence: Sequence,
    name: str, *, is_in_place: bool,
) -> None:  # fmt: skip
    if out.n_elems == 0:
        return
    inputs = [tensors[i - 1] for i in body.used]
    is_scalar = [t.n_elems == 1 < out.n_elems for t in inputs]
    views = [
        broadcast_view(t, out.shape)
        for t, scalar in zip(inputs, is_scalar, strict=True)
        if not scalar
    ]
    flat_out, views = simplified(out, views)
    remaining = iter(views)
    operands = [
        Operand(f"in{i}", Form.SCALAR, t.flatten(), None) if scalar
        else _operand(i, next(remaining))
        for i, t, scalar in zip(body.used, inputs, is_scalar, strict=True)
    ]  # fmt: skip
    operands = _with_one_row_length(operands)
    plan = CodeletPlan(body, tuple(o.form for o in operands), is_in_place, is_multi=True)
    compute_set = graph.add_compute_set(name or _plain_name(body))
    _add_vertices(graph, compute_set, plan, operands, flat_out.flatten())
    sequence.add(Execute(compute_set))


def _plain_name(body: FusedBody) -> str:
    return body.single_op[0] if body.single_op else "map"


def _operand(index: int, view: Tensor) -> Operand:
    pattern = pattern_of(view)
    if pattern is None:
        return Operand(f"in{index}", Form.VECTOR, view.flatten(), None)
    form = Form.INNER if pattern.n_repeats_each == 1 else Form.OUTER
    return Operand(f"in{index}", form, pattern.vector, pattern)


def _with_one_row_length(operands: list[Operand]) -> list[Operand]:
    """Rows must be as long for all broadcast operands; one that disagrees is spread out."""
    rows = [o.pattern.n_cols for o in operands if o.pattern is not None]
    return [
        o if o.pattern is None or o.pattern.n_cols == rows[0]
        else Operand(o.field, Form.VECTOR, o.pattern.view.flatten(), None)
        for o in operands
    ]  # fmt: skip


def _add_vertices(
    graph: Graph, compute_set: ComputeSet, plan: CodeletPlan, operands: list[Operand], out: Tensor
) -> None:
    patterns = [o.pattern for o in operands if o.pattern is not None]
    regions = tile_regions(graph, out)
    owner, begin, end = cut_rows(regions.begin, regions.end, patterns)
    n_pieces = np.bincount(regions.tile[owner], minlength=graph.target.n_tiles)
    is_alone = n_pieces[regions.tile[owner]] == 1
    if is_alone.any():
        one = element_codelet(plan)
        tiles = regions.tile[owner[is_alone]]
        fields = _fields(plan, operands, out, begin[is_alone], end[is_alone], None, len(tiles))
        graph.add_vertices(compute_set, one, fields, tiles=tiles)
    if not is_alone.all():
        shared = regions.on_tiles(n_pieces > 1)
        work = _worker_pieces(graph, shared, patterns, out.type)
        several = element_codelet(
            CodeletPlan(plan.body, plan.forms, plan.is_in_place, is_multi=False)
        )
        fields = _fields(plan, operands, out, work.begin, work.end, work.start, len(work.tile))
        graph.add_vertices(compute_set, several, fields, tiles=work.tile)


def _worker_pieces(
    graph: Graph, regions: TileRegions, patterns: list[Pattern], type: Type
) -> WorkerSlices:
    """Regions of tiles that hold several, dealt to workers and cut at the ends of rows."""
    grain = max(graph.target.vector_width(type), ATOMIC_STORE_BYTES // type.n_bytes)
    work = split_between_workers(regions, graph.target.n_worker_contexts, grain)
    piece, begin, end = cut_rows(work.begin, work.end, patterns)
    vertex = np.repeat(np.arange(len(work.tile)), np.diff(work.start))[piece]
    counts = np.bincount(vertex, minlength=len(work.tile))
    return WorkerSlices(work.tile, np.concatenate(([0], np.cumsum(counts))), begin, end)


def _fields(
    plan: CodeletPlan, operands: list[Operand], out: Tensor, begin: np.ndarray, end: np.ndarray,
    start: np.ndarray | None, n_vertices: int,
) -> dict[str, Slices]:  # fmt: skip
    zeros = np.zeros(n_vertices, np.int64)
    fields = {
        o.field: Slices(o.tensor, zeros, zeros + 1)
        if o.form is Form.SCALAR
        else o.slices(begin, end, start)
        for o in operands
    }
    fields[plan.out] = Slices(out, begin, end, start)
    return fields
