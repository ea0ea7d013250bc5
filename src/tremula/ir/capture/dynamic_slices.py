"""x[…] with tensors in it: slices of a length known beforehand, and writes by a mask."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, fx

from tremula.ir.errors import CaptureError
from tremula.ir.ops import composite as dynamic_ops  # noqa: F401  registers tremula::dynamic_*
from tremula.ir.origin import model_line
from tremula.ir.recorder import known_number
from tremula.ir.recording import Recording

aten = torch.ops.aten
Index = Any  # anything allowed in x[…]
Value = Any  # a tensor or a number
# What does not change the number a tensor with one element holds.
_TRANSPARENT = {
    aten.view.default,
    aten._unsafe_view.default,
    aten.reshape.default,
    aten.squeeze.default,
    aten.squeeze.dim,
    aten.unsqueeze.default,
    aten.alias.default,
    aten.detach.default,
    aten.clone.default,
    aten.lift_fresh.default,
    aten.lift_fresh_copy.default,
    aten._to_copy.default,
}
_SIGNS: dict[object, int] = {aten.add.Tensor: 1, aten.sub.Tensor: -1}


def get_item(state: Recording, func: Callable, x: Tensor, index: Index) -> object:
    """Tensor.__getitem__: parts with tensor bounds are cut first, the rest is PyTorch's."""
    index = _with_known_bounds(state, index)
    if not _has_tensor_bounds(index):
        return func(x, index)
    rest = []
    dim = 0
    for part in _parts(x, index):
        if _is_dynamic(part):
            start, size = _bounds(state, part)
            x = torch.ops.tremula.dynamic_slice(x, start, dim, size)
            part = slice(None, None, part.step)
        rest.append(part)
        dim += _n_dims(part)
    return func(x, tuple(rest))


def set_item(
    state: Recording, func: Callable, x: Tensor, index: Index, value: Value,
    *, accumulate: bool = False,
) -> object:  # fmt: skip
    """Tensor.__setitem__: one slice with tensor bounds, or a mask; the rest is PyTorch's."""
    index = _with_known_bounds(state, index)
    if _has_one_mask(index) and not _has_tensor_bounds(index):
        return _set_by_mask(func, x, index, value, accumulate)
    if not _has_tensor_bounds(index):
        return func(x, index, value)
    parts = _parts(x, index)
    dynamic = [dim for dim, part in enumerate(parts) if _is_dynamic(part)]
    others = [part for part in parts if not _is_dynamic(part) and part != slice(None)]
    if len(dynamic) != 1 or others:
        raise _error(state, "Only one dimension can be written by a slice with tensor bounds.")
    start, size = _bounds(state, parts[dynamic[0]])
    shape = [size if d == dynamic[0] else n for d, n in enumerate(x.shape)]
    value = value if isinstance(value, Tensor) else torch.full((), value, device=x.device)
    value = value.to(x.dtype).expand(shape)
    return x.copy_(torch.ops.tremula.dynamic_update(x, value, start, dynamic[0]))


def _has_one_mask(index: Index) -> bool:
    """Whether it is a mask among numbers and slices."""
    parts = index if isinstance(index, tuple) else (index,)
    others = [part for part in parts if not _is_mask(part)]
    return len(others) == len(parts) - 1 and all(_is_plain(part) for part in others)


def _is_plain(part: Index) -> bool:
    """A number or a slice: x[part] is a view."""
    if isinstance(part, bool):
        return False
    return part is None or part is Ellipsis or isinstance(part, int | slice)


def index_put(
    state: Recording, func: Callable, x: Tensor, indices: list | tuple, values: Value,
    accumulate: bool = False,
) -> object:  # fmt: skip
    """Tensor.index_put with one mask and values that are trained: PyTorch's gradient selects by it.

    Anything else is PyTorch's.
    """
    parts = tuple(slice(None) if index is None else index for index in indices)
    is_trained = isinstance(values, Tensor) and values.requires_grad
    if not is_trained or not _has_one_mask(parts):
        return func(x, indices, values, accumulate)
    target = x if func in (Tensor.index_put_, torch.index_put_) else x.clone()
    set_item(state, Tensor.__setitem__, target, parts, values, accumulate=accumulate)
    return target


def _set_by_mask(func: Callable, x: Tensor, index: Index, value: Value, accumulate: bool) -> object:
    """A choice between old and new, unless values are taken one after another and not trained."""
    parts = _parts(x, index)
    place = next(i for i, part in enumerate(parts) if _is_mask(part))
    mask = parts[place]
    seen = x[(*parts[:place], *[slice(None)] * mask.dim(), *parts[place + 1 :])]
    n_before = sum(not isinstance(part, int) for part in parts[:place])
    n_behind = seen.dim() - n_before - mask.dim()
    if not _is_of_mask(seen, mask, n_before):
        return func(x, index, value)  # PyTorch says what is wrong
    if isinstance(value, Tensor):
        is_one_by_one = value.dim() > n_behind and value.shape[value.dim() - n_behind - 1] != 1
        if is_one_by_one and not value.requires_grad:
            return func(x, index, value)  # PyTorch counts how many there must be
        value = _over_mask(value.to(x.dtype), mask, n_behind)
    mask = mask.bool().reshape(mask.shape + (1,) * n_behind)
    return seen.copy_(torch.where(mask, seen + value if accumulate else value, seen))


def _over_mask(value: Tensor, mask: Tensor, n_behind: int) -> Tensor:
    """A value with the dimensions of a mask where it has one for the selected places.

    Where it has several, the n-th place takes the n-th: a running count says which that is.
    """
    if value.dim() <= n_behind:
        return value
    if value.numel() == 1:
        return value.reshape(())
    dim = value.dim() - n_behind - 1
    n, shape = value.shape[dim], (1,) * mask.dim()
    if n != 1:
        places = torch.cumsum(mask.flatten().to(torch.int32), 0, dtype=torch.int32) - 1
        value, shape = value.index_select(dim, places.clamp(0, n - 1)), mask.shape
    return value.reshape(value.shape[:dim] + shape + value.shape[dim + 1 :])


def _is_of_mask(seen: Tensor, mask: Tensor, n_before: int) -> bool:
    return seen.shape[n_before : n_before + mask.dim()] == mask.shape


def _with_known_bounds(state: Recording, index: Index) -> Index:
    """The index with numbers for the bounds that constants tell."""
    if not _has_tensor_bounds(index):
        return index
    parts = index if isinstance(index, tuple) else (index,)
    known = tuple(
        slice(*(_number(state, bound) for bound in (part.start, part.stop, part.step)))
        if _is_dynamic(part)
        else part
        for part in parts
    )
    return known if isinstance(index, tuple) else known[0]


def _number(state: Recording, bound: Value) -> Value:
    known = known_number(state.recorder, bound) if isinstance(bound, Tensor) else None
    return bound if known is None else known


def _is_mask(index: Index) -> bool:
    return isinstance(index, Tensor) and index.dtype in (torch.bool, torch.uint8)


def _has_tensor_bounds(index: Index) -> bool:
    return any(_is_dynamic(part) for part in (index if isinstance(index, tuple) else (index,)))


def _is_dynamic(part: Index) -> bool:
    return isinstance(part, slice) and any(
        isinstance(bound, Tensor) and getattr(bound, "constant", None) is None
        for bound in (part.start, part.stop)
    )


def _parts(x: Tensor, index: Index) -> list:
    """The index with its ellipsis written out."""
    parts = list(index) if isinstance(index, tuple) else [index]
    n_named = sum(_n_dims(part) for part in parts)
    for position, part in enumerate(parts):
        if part is Ellipsis:
            return parts[:position] + [slice(None)] * (x.dim() - n_named) + parts[position + 1 :]
    return parts


def _n_dims(part: Index) -> int:
    if part is None or part is Ellipsis:
        return 0
    return part.dim() if _is_mask(part) else 1


def _bounds(state: Recording, part: slice) -> tuple[Tensor, int]:
    """Where a slice starts and how many elements it spans."""
    start, stop = part.start, part.stop
    if isinstance(start, Tensor) and isinstance(stop, Tensor):
        nodes = state.recorder.node_of
        (root, before), (other, behind) = _linear(nodes(start)), _linear(nodes(stop))
        if root is other and behind > before:
            return start, behind - before
    raise _error(
        state,
        "A slice with tensor bounds needs a length that is known when the model is compiled: its"
        " end must be its start plus a constant.",
    )


def _linear(node: fx.Node, added: int = 0) -> tuple[fx.Node, int]:
    """The node a number comes from, and what was added to it."""
    if node.target in _TRANSPARENT:
        return _linear(node.all_input_nodes[0], added)
    sign = _SIGNS.get(node.target)
    if sign is not None and isinstance(node.args[1], int) and not node.kwargs:
        return _linear(node.all_input_nodes[0], added + sign * node.args[1])
    return node, added


def _error(state: Recording, what: str) -> CaptureError:
    return CaptureError(
        what,
        source=model_line(state.source_excludes),
        hint="write x[start : start + n], or use poptorch.dynamic_slice",
    )
