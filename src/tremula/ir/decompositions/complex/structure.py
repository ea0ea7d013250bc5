"""Complex numbers: views, copies, lookups and sums, which treat both parts alike; new tensors."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_map

from tremula.ir.complex_pair import Operand, Pair, as_pair, part_type, parts
from tremula.ir.op_table import decomposes, decomposes_complex
from tremula.ir.ops.markers import GRADIENT_MARK

aten = torch.ops.aten

# -- the same operation for either part ------------------------------------------------------------

# Linear in the elements of their tensors; all other arguments are sizes, places, masks.
_ALIKE = (
    aten._reshape_alias.default, aten._unsafe_view.default, aten.view.default,
    aten.reshape.default, aten.squeeze.default, aten.squeeze.dim, aten.squeeze.dims,
    aten.unsqueeze.default, aten.t.default, aten.permute.default, aten.transpose.int,
    aten.expand.default, aten.slice.Tensor, aten.select.int, aten.split.Tensor,
    aten.split_with_sizes.default, aten.unbind.int, aten.diagonal.default, aten.unfold.default,
    aten.flip.default, aten.roll.default, aten.repeat.default, aten.rot90.default,
    aten.repeat_interleave.self_int, aten.alias.default, aten.detach.default,
    aten.lift_fresh.default, aten.clone.default, aten.contiguous.default,
    aten.cat.default, aten.stack.default, aten.tril.default, aten.triu.default,
    aten.diag_embed.default, aten.index.Tensor, aten._unsafe_index.Tensor,
    aten.index_select.default, aten.gather.default, aten.take.default, aten.embedding.default,
    aten.slice_scatter.default, aten.select_scatter.default, aten.diagonal_scatter.default,
    aten.scatter.src, aten.scatter_add.default, aten.index_add.default, aten.index_copy.default,
    aten.index_put.default, aten._unsafe_index_put.default, aten._index_put_impl.default,
    aten.select_backward.default, aten.slice_backward.default, aten.diagonal_backward.default,
    aten.unfold_backward.default, aten.embedding_dense_backward.default,
    aten.sum.default, aten.sum.dim_IntList, aten.mean.default, aten.mean.dim,
    aten.cumsum.default, aten.trace.default, aten.neg.default, aten.positive.default,
    aten.pixel_shuffle.default, aten.pixel_unshuffle.default, aten.im2col.default,
    aten.col2im.default, aten.reflection_pad1d.default, aten.reflection_pad2d.default,
    aten.replication_pad1d.default, aten.replication_pad2d.default,
    aten.masked_scatter.default, aten.logcumsumexp.default,
)  # fmt: skip


def _of_part(function: Callable, place: int, args: tuple, kwargs: dict) -> Any:  # noqa: ANN401
    """An operation of one part; what is real counts only in the first."""

    def part(value: object) -> object:
        if isinstance(value, Pair):
            return parts(value)[place]
        if isinstance(value, Tensor) and value.is_floating_point() and place:
            return torch.zeros_like(value)
        return part_type(value) if isinstance(value, torch.dtype) else value

    args, kwargs = tree_map(part, (args, kwargs))
    return function(*args, **kwargs)


def _joined(re: Any, im: Any) -> Any:  # noqa: ANN401 - what an operation gives
    """Pairs of the results for either part."""
    if isinstance(re, tuple | list):
        return [Pair(a, b) for a, b in zip(re, im, strict=True)]
    return Pair(re, im)


def _enter_alike() -> None:
    # A part may have other strides than the complex tensor; a reshape does not mind.
    instead = {
        aten.view.default: aten.reshape.default,
        aten._unsafe_view.default: aten.reshape.default,
        aten._reshape_alias.default: lambda x, size, _strides: aten.reshape.default(x, size),
    }
    for overload in _ALIKE:
        decomposes_complex(overload)(_alike(instead.get(overload, overload)))


def _alike(function: Callable) -> Callable:
    def of_both_parts(*args: object, **kwargs: object) -> object:
        """Itself, of either part."""
        result = (_of_part(function, place, args, kwargs) for place in (0, 1))
        return _joined(*result)

    return of_both_parts


_enter_alike()


@decomposes_complex(GRADIENT_MARK)
def gradient_mark(x: Pair, parameter: int) -> Pair:
    """Either part's gradient is reduced."""
    return Pair(GRADIENT_MARK(x.re, parameter), GRADIENT_MARK(x.im, parameter))


# -- between real and complex tensors --------------------------------------------------------------


@decomposes_complex(aten.view_as_real.default, aten.view_as_real_copy.default)
def view_as_real(x: Pair) -> Tensor:
    """Both parts beside each other, a view."""
    return torch.stack([x.re, x.im], -1)


@decomposes_complex(aten.view_as_complex.default, aten.view_as_complex_copy.default)
def view_as_complex(x: Tensor) -> Pair:
    """The places 0 and 1 of the last dimension, views."""
    return Pair(x.select(-1, 0), x.select(-1, 1))


@decomposes_complex(aten.complex.default)
def complex_(re: Tensor, im: Tensor) -> Pair:
    """The two operands, broadcast."""
    return Pair(*torch.broadcast_tensors(re, im))


@decomposes_complex(aten.polar.default)
def polar(radius: Tensor, angle: Tensor) -> Pair:
    """The radius times cosine and sine of the angle."""
    return Pair(radius * torch.cos(angle), radius * torch.sin(angle))


@decomposes_complex(aten._to_copy.default)
def to_copy(x: Pair | Tensor, *, dtype: torch.dtype | None = None, **_how: object) -> Pair | Tensor:
    """Either part in the new type; a real type drops the imaginary one."""
    if isinstance(x, Pair) and dtype is not None and not dtype.is_complex:
        return x.re.to(dtype)
    x, type = as_pair(x), part_type(dtype)
    return x if type is None else Pair(x.re.to(type), x.im.to(type))


@decomposes_complex(aten.copy.default)
def copy(old: Pair | Tensor, source: Pair | Tensor, *_how: object) -> Pair | Tensor:
    """The source in the shape and type of the old value."""
    if isinstance(old, Tensor):
        re = source.re if isinstance(source, Pair) else source
        return re.to(old.dtype).expand(old.shape)
    source = as_pair(source)
    re, im = (x.to(old.dtype).expand(old.shape) for x in (source.re, source.im))
    return Pair(re, im)


@decomposes_complex(aten._conj.default, aten._conj_physical.default, aten.conj_physical.default)
def conj(x: Pair | complex) -> Pair:
    """The imaginary part negated; gradients take it of numbers too."""
    return Pair(x.re, -x.im) if isinstance(x, Pair) else full([], x.conjugate())


@decomposes_complex(aten._neg_view.default, aten._neg_view_copy.default)
def neg_view(x: Pair) -> Pair:
    """Both parts negated."""
    return Pair(-x.re, -x.im)


@decomposes(aten._neg_view.default)
def neg_view_of_real(x: Tensor) -> Tensor:
    """Negated: the imaginary part of a conjugate is seen through this view."""
    return -x


@decomposes_complex(aten.resolve_conj.default, aten.resolve_neg.default)
def resolved(x: Pair) -> Pair:
    """The tensor itself."""
    return x


# -- choices and numbers to fill with --------------------------------------------------------------


def _filled(function: Callable, *tensors: Pair | Tensor, value: Operand) -> Pair:
    """`function(parts…, value's part)` of either part."""
    pairs = [as_pair(x) for x in tensors]
    re, im = parts(value)
    return Pair(function(*(x.re for x in pairs), re), function(*(x.im for x in pairs), im))


@decomposes_complex(aten.where.self, aten.where.ScalarOther, aten.where.ScalarSelf)
def where(condition: Tensor, a: Operand, b: Operand) -> Pair:
    """A choice of either part."""
    (a_re, a_im), (b_re, b_im) = parts(a), parts(b)
    re, im = torch.where(condition, a_re, b_re), torch.where(condition, a_im, b_im)
    return Pair(*torch.broadcast_tensors(re, im))


@decomposes_complex(aten.masked_fill.Scalar, aten.masked_fill.Tensor)
def masked_fill(x: Pair, mask: Tensor, value: Operand) -> Pair:
    """Either part filled with the value's."""
    return where(mask, value, x)


@decomposes_complex(aten.constant_pad_nd.default)
def constant_pad_nd(x: Pair, pad: list[int], value: complex = 0) -> Pair:
    """Either part padded with the value's."""
    return _filled(lambda part, v: aten.constant_pad_nd.default(part, pad, v), x, value=value)


@decomposes_complex(aten.index_fill.int_Scalar, aten.index_fill.int_Tensor)
def index_fill(x: Pair, dim: int, index: Tensor, value: Operand) -> Pair:
    """Either part filled with the value's."""
    return _filled(lambda part, v: part.index_fill(dim, index, v), x, value=value)


@decomposes_complex(aten.scatter.value)
def scatter_value(x: Pair, dim: int, index: Tensor, value: complex) -> Pair:
    """The value's part into either part."""
    return _filled(lambda part, v: part.scatter(dim, index, v), x, value=value)


@decomposes_complex(aten.fill.Scalar, aten.fill.Tensor)
def fill(x: Pair, value: Operand) -> Pair:
    """The value's part into either part."""
    return _filled(lambda part, v: torch.zeros_like(part) + v, x, value=value)


@decomposes_complex(aten.full.default)
def full(size: list[int], value: complex, *, dtype: torch.dtype | None = None, **_how: object) -> (
    Pair
):  # fmt: skip
    """Parts of one number each."""
    type = part_type(dtype) or torch.get_default_dtype()
    re, im = parts(value)
    return Pair(torch.full(size, re, dtype=type), torch.full(size, im, dtype=type))


@decomposes_complex(aten.full_like.default)
def full_like(
    x: Pair | Tensor, value: complex, *, dtype: torch.dtype | None = None, **_how: object
) -> Pair | Tensor:
    """Parts of one number each."""
    if dtype is not None and not dtype.is_complex:
        return torch.full(x.shape, value, dtype=dtype)
    return full(list(x.shape), value, dtype=part_type(dtype) or x.dtype)


@decomposes_complex(aten.scalar_tensor.default)
def scalar_tensor(value: complex, *, dtype: torch.dtype | None = None, **_how: object) -> Pair:
    """Parts of one number each."""
    return full([], value, dtype=dtype)


@decomposes_complex(aten.zeros.default, aten.empty.memory_format)
def zeros(size: list[int], *, dtype: torch.dtype | None = None, **_how: object) -> Pair:
    """Parts of zeros."""
    return full(size, 0, dtype=dtype)


@decomposes_complex(aten.ones.default)
def ones(size: list[int], *, dtype: torch.dtype | None = None, **_how: object) -> Pair:
    """Parts of ones and zeros."""
    return full(size, 1, dtype=dtype)


@decomposes_complex(aten.zeros_like.default, aten.empty_like.default)
def zeros_like(
    x: Pair | Tensor, *, dtype: torch.dtype | None = None, **_how: object
) -> Pair | Tensor:
    """Parts of zeros."""
    return full_like(x, 0, dtype=dtype)


@decomposes_complex(aten.ones_like.default)
def ones_like(
    x: Pair | Tensor, *, dtype: torch.dtype | None = None, **_how: object
) -> Pair | Tensor:
    """Parts of ones and zeros."""
    return full_like(x, 1, dtype=dtype)


@decomposes_complex(aten.new_zeros.default, aten.new_empty.default, aten.new_empty_strided.default)
def new_zeros(
    x: Pair | Tensor, size: list[int], *_strides: object, dtype: torch.dtype | None = None,
    **_how: object,
) -> Pair | Tensor:  # fmt: skip
    """Parts of zeros."""
    return new_full(x, size, 0, dtype=dtype)


@decomposes_complex(aten.new_ones.default)
def new_ones(
    x: Pair | Tensor, size: list[int], *, dtype: torch.dtype | None = None, **_how: object
) -> Pair | Tensor:
    """Parts of ones and zeros."""
    return new_full(x, size, 1, dtype=dtype)


@decomposes_complex(aten.new_full.default)
def new_full(
    x: Pair | Tensor, size: list[int], value: complex, *, dtype: torch.dtype | None = None,
    **_how: object,
) -> Pair | Tensor:  # fmt: skip
    """Parts of one number each."""
    if dtype is not None and not dtype.is_complex:
        return torch.full(size, value, dtype=dtype)
    return full(size, value, dtype=part_type(dtype) or x.dtype)
