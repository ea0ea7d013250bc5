"""The inverses of views: how a write through a view reaches its base."""

from collections.abc import Callable
from typing import Protocol

import torch
from torch import fx

from tremula.ir.errors import CaptureError
from tremula.ir.nodes import ints, overload_of, whole

aten = torch.ops.aten


class Emitter(Protocol):
    """What writes nodes of the graph under construction."""

    def emit(
        self,
        func: Callable,
        args: tuple,
        kwargs: dict | None = None,
        *,
        like: fx.Node | None = None,
        val: object = None,
    ) -> fx.Node: ...


def written_view(
    work: Emitter, view: fx.Node, around: fx.Node, value: fx.Node, item: int | None
) -> fx.Node:
    """`around` with the part that `view` shows replaced by `value`."""
    inverse = VIEW_INVERSES.get(overload_of(view))
    if inverse is None:
        raise CaptureError(
            f"A tensor is written through {view.target}, which a static program cannot follow.",
            hint="write to the tensor itself, or use torch.where",
        )
    return inverse(work, view, around, value, item)


def _reshaped(
    work: Emitter, _view: fx.Node, around: fx.Node, value: fx.Node, _item: None
) -> fx.Node:
    shape = list(around.meta["val"].shape)
    return work.emit(aten.reshape.default, (value, shape), like=around)


def _same(_work: Emitter, _view: fx.Node, _around: fx.Node, value: fx.Node, _item: None) -> fx.Node:
    return value


def _sliced(work: Emitter, view: fx.Node, around: fx.Node, value: fx.Node, _item: None) -> fx.Node:
    return work.emit(aten.slice_scatter.default, (around, value, *view.args[1:]), like=around)


def _selected(
    work: Emitter, view: fx.Node, around: fx.Node, value: fx.Node, _item: None
) -> fx.Node:
    return work.emit(aten.select_scatter.default, (around, value, *view.args[1:]), like=around)


def _permuted(
    work: Emitter, view: fx.Node, around: fx.Node, value: fx.Node, _item: None
) -> fx.Node:
    dims = ints(view.args[1])
    order = [d % len(dims) for d in dims]
    back = sorted(range(len(order)), key=order.__getitem__)
    return work.emit(aten.permute.default, (value, back), like=around)


def _transposed(
    work: Emitter, view: fx.Node, around: fx.Node, value: fx.Node, _item: None
) -> fx.Node:
    return work.emit(overload_of(view), (value, *view.args[1:]), view.kwargs, like=around)


def _part(
    work: Emitter, view: fx.Node, around: fx.Node, value: fx.Node, item: int | None
) -> fx.Node:
    """Split and split_with_sizes: the item is a slice."""
    assert item is not None, "a part of a split is one of its items"
    sizes = [int(part.shape[_dim(view)]) for part in view.meta["val"]]
    start = sum(sizes[:item])
    args = (around, value, _dim(view), start, start + sizes[item])
    return work.emit(aten.slice_scatter.default, args, like=around)


def _unbound(
    work: Emitter, view: fx.Node, around: fx.Node, value: fx.Node, item: int | None
) -> fx.Node:
    dim = view.args[1] if len(view.args) > 1 else 0
    return work.emit(aten.select_scatter.default, (around, value, dim, item), like=around)


def _strided(work: Emitter, view: fx.Node, around: fx.Node, value: fx.Node, _item: None) -> fx.Node:
    return work.emit(aten.as_strided_scatter.default, (around, value, *view.args[1:]), like=around)


def _diagonal(
    work: Emitter, view: fx.Node, around: fx.Node, value: fx.Node, _item: None
) -> fx.Node:
    return work.emit(aten.diagonal_scatter.default, (around, value, *view.args[1:]), like=around)


def _of_parts(
    work: Emitter, _view: fx.Node, around: fx.Node, value: fx.Node, _item: None
) -> fx.Node:
    return work.emit(aten.view_as_complex.default, (value,), like=around)


def _of_complex(
    work: Emitter, _view: fx.Node, around: fx.Node, value: fx.Node, _item: None
) -> fx.Node:
    return work.emit(aten.view_as_real.default, (value,), like=around)


def _dim(view: fx.Node) -> int:
    rank = view.meta["val"][0].dim()
    return whole(view.args[2] if len(view.args) > 2 else 0) % rank


VIEW_INVERSES = {
    aten.view.default: _reshaped,
    aten._unsafe_view.default: _reshaped,
    aten._reshape_alias.default: _reshaped,
    aten.unsqueeze.default: _reshaped,
    aten.squeeze.default: _reshaped,
    aten.squeeze.dim: _reshaped,
    aten.squeeze.dims: _reshaped,
    aten.detach.default: _same,
    aten.alias.default: _same,
    aten.slice.Tensor: _sliced,
    aten.select.int: _selected,
    aten.permute.default: _permuted,
    aten.transpose.int: _transposed,
    aten.t.default: _transposed,
    aten.split.Tensor: _part,
    aten.split_with_sizes.default: _part,
    aten.unbind.int: _unbound,
    aten.as_strided.default: _strided,
    aten.diagonal.default: _diagonal,
    aten.view_as_real.default: _of_parts,
    aten.view_as_complex.default: _of_complex,
    aten._conj.default: _transposed,
    aten._neg_view.default: _transposed,
}
