"""map: one generated vertex per tile (or worker) for a whole element-wise expression."""

from collections.abc import Sequence as ListOf

import numpy as np

from tremula.base.source import user_source
from tremula.base.types import Type
from tremula.poplar.graph import Graph
from tremula.poplar.programs import Sequence
from tremula.poplar.tensors.tensor import Tensor
from tremula.poplibs.popops.elementwise.codelets import CodeletPlan, element_codelet
from tremula.poplibs.popops.elementwise.fused import FusedBody, fuse
from tremula.poplibs.popops.elementwise.nodes import Expr, as_expr
from tremula.poplibs.popops.vertex_layout import aligned, run_spread
from tremula.poplibs.poputil import (
    broadcast_shape,
    clone_in_order,
    in_memory_order,
    is_writeable,
    repeats_elements,
    replayed,
)
from tremula.poplibs.registry import PoplibsError


@replayed
def map(
    graph: Graph, expr: Expr, tensors: ListOf[Tensor], sequence: Sequence, name: str = ""
) -> Tensor:
    """A new tensor with the expression's value for every element; shapes broadcast as in NumPy."""
    body = fuse(as_expr(expr), [t.type for t in tensors])
    shape = broadcast_shape([tensors[i - 1].shape for i in body.used])
    out = create_output(graph, tensors, body.result, shape, name or "map")
    _add_map(graph, body, tensors, out, sequence, name, is_in_place=False)
    return out


@replayed
def map_in_place(
    graph: Graph, expr: Expr, tensors: ListOf[Tensor], sequence: Sequence, name: str = ""
) -> None:
    """Write the expression's value over the first tensor."""
    body = fuse(as_expr(expr), [t.type for t in tensors])
    _check_target(body, tensors, tensors[0], "in place")
    _add_map(graph, body, tensors, tensors[0], sequence, name, is_in_place=True)


@replayed
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
            hint="only the other operands are broadcast",
        )
    if body.result is not target.type:
        raise PoplibsError(
            f"a result of type {body.result} cannot be written {how} to {target.type}.",
            source=user_source(),
            hint="cast the expression: Cast(…, type)",
        )
    if not is_writeable(target):
        raise PoplibsError(
            f"{target!r} cannot be written {how}: it repeats an element or is constant.",
            source=user_source(),
            hint="write to a plain variable",
        )


def create_output(
    graph: Graph, tensors: ListOf[Tensor], type: Type, shape: tuple[int, ...], name: str
) -> Tensor:
    """The output PopLibs would make: like the operand that is spread best, else linear.

    Best: fewest elements on the fullest tile, then most tiles, then fewest regions.
    """
    candidates = [t for t in tensors if t.shape == shape and not repeats_elements(t)]
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
    mapping = graph.get_tile_mapping(in_memory_order(tensor, [])[0])
    per_tile = mapping.n_elems_per_tile()
    return int(per_tile.max(initial=0)), -int(np.count_nonzero(per_tile)), len(mapping.begin)


def _add_map(
    graph: Graph, body: FusedBody, tensors: ListOf[Tensor], out: Tensor, sequence: Sequence,
    name: str, *, is_in_place: bool,
) -> None:  # fmt: skip
    if out.n_elems == 0:
        return
    flat_out, operands = aligned(out, {f"in{i}": tensors[i - 1] for i in body.used})
    forms = tuple(o.form for o in operands)
    plans = [CodeletPlan(body, forms, is_in_place, is_multi) for is_multi in (False, True)]
    run_spread(
        graph, lambda is_multi: element_codelet(plans[is_multi]), plans[0].out, flat_out, operands,
        sequence, name or _plain_name(body),
    )  # fmt: skip


def _plain_name(body: FusedBody) -> str:
    return body.single_op[0] if body.single_op else "map"
