"""Operations that move elements: shapes, slices, concatenations."""

import functools
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from tremula.frontends.popxl.core.table import Operand, Operands, operation
from tremula.frontends.popxl.core.tensor import Tensor as PopxlTensor

PAGE_SECTION = (2, "Shapes")


def _checked(shape: Sequence[int]) -> tuple[int, ...]:
    result = tuple(shape)
    if any(n == 0 or n < -1 for n in result):
        raise ValueError(f"Invalid shape value in reshape: {result}. Sizes are positive, or one -1")
    if result.count(-1) > 1:
        raise ValueError(f"Reshape shape can contain at most one '-1' value, got {result}")
    return result


@operation("Reshape")
def reshape(t: Operand, shape: Sequence[int]) -> Tensor:
    """The elements in another shape; one dimension may be -1."""
    return t.reshape(_checked(shape)).clone()


@operation("ReshapeInplace", is_view=True)
def reshape_(t: Operand, shape: Sequence[int]) -> Tensor:
    return t.reshape(_checked(shape))


@operation("Reshape")
def flatten(t: Operand) -> Tensor:
    """The elements in one dimension."""
    return t.reshape(-1).clone()


@operation("ReshapeInplace", is_view=True)
def flatten_(t: Operand) -> Tensor:
    return t.reshape(-1)


@operation("Transpose")
def transpose(t: Operand, permutation: Sequence[int] | None = None) -> Tensor:
    """Dimensions in another order; reversed by default."""
    return t.permute(_permutation(t, permutation)).contiguous().clone()


@operation("TransposeInplace", is_view=True)
def transpose_(t: Operand, permutation: Sequence[int] | None = None) -> Tensor:
    return t.permute(_permutation(t, permutation))


def _permutation(t: Tensor, permutation: Sequence[int] | None) -> tuple[int, ...]:
    if permutation is None:
        return tuple(reversed(range(t.dim())))
    result, rank = tuple(permutation), t.dim()
    if any(not -rank <= axis < rank for axis in result):
        raise ValueError(
            f"Values in permutation must be less than the number of dimensions, rank {rank}, got"
            f" {result}"
        )
    return result


@operation("Reshape")
def squeeze(t: Operand, axes: Sequence[int] | None = None) -> Tensor:
    """Without dimensions of size 1: all, or those given, which must be of that size."""
    if axes is None:
        return t.squeeze().clone()
    rank = t.dim()
    if any(not -rank <= axis < rank for axis in axes):
        raise ValueError(f"axes {list(axes)} must be dimensions of {tuple(t.shape)}")
    numbers = [axis % rank for axis in axes]
    if len(set(numbers)) < len(numbers):
        raise ValueError(f"axes {list(axes)} must be different dimensions")
    for axis in numbers:
        if t.shape[axis] != 1:
            raise ValueError(f"dimension {axis} of {tuple(t.shape)} is not of size 1")
    return t.squeeze(tuple(numbers)).clone() if numbers else t.clone()


def _of_one_type(make: Callable) -> Callable:
    """Tensors that are joined have one type."""

    @functools.wraps(make)
    def joined(ts: Sequence[PopxlTensor], axis: int = 0) -> PopxlTensor:
        types = [t.dtype.name for t in ts if isinstance(t, PopxlTensor)]
        if len(set(types)) > 1:
            raise TypeError(
                f"All inputs to a concat operation must have the same type: got {', '.join(types)}."
                " Convert them with popxl.ops.cast"
            )
        return make(list(ts), axis)

    return joined


@operation("Concat", around=_of_one_type)
def concat(ts: Operands, axis: int = 0) -> Tensor:
    return torch.cat(ts, axis)


@operation("ConcatInplace", around=_of_one_type)
def concat_(ts: Operands, axis: int = 0) -> Tensor:
    """The tensors one behind the other: what is written to the whole is written to them."""
    return torch.cat(ts, axis)


@operation("Split")
def split(t: Operand, splits: Sequence[int] | int, axis: int = 0) -> list[Tensor]:
    """Parts along a dimension: equal ones, as many as an integer says, or of given sizes."""
    if isinstance(splits, int):
        size, rest = divmod(t.shape[axis], splits)
        if rest:
            raise ValueError(f"{t.shape[axis]} elements do not split into {splits} equal parts")
        splits = [size] * splits
    return [part.clone() for part in torch.split(t, list(splits), axis)]


def _slices(t: Tensor, start: object, stop: object, step: object, axis: object) -> list[slice]:
    """A slice for each dimension."""
    axes = _listed(axis)
    n = max((len(_listed(v)) for v in (start, stop, step) if v is not None), default=1)
    if axis is None:
        axes = list(range(n))
    lengths = {len(_listed(v)) for v in (start, stop, step, axis) if v is not None}
    if len(lengths) > 1:
        raise ValueError(
            f"start {start}, stop {stop}, step {step} and axis {axis} must be of one length"
        )
    result = [slice(None)] * t.dim()
    starts, stops, steps = (_listed(v, len(axes)) for v in (start, stop, step))
    for i, a in enumerate(axes):
        if not -t.dim() <= a < t.dim():
            raise IndexError(f"there is no dimension {a} in {tuple(t.shape)}")
        result[a] = slice(starts[i], stops[i], steps[i] or 1)
    return result


def _listed(value: object, n: int = 1) -> list:
    if value is None:
        return [None] * n
    return list(value) if isinstance(value, list | tuple) else [value]


def _sliced(t: Tensor, slices: list[slice]) -> Tensor:
    """A slice whose steps may be negative."""
    backwards = [axis for axis, s in enumerate(slices) if s.step is not None and s.step < 0]
    forwards = [
        _reversed(s, t.shape[axis]) if axis in backwards else s for axis, s in enumerate(slices)
    ]
    result = t[tuple(forwards)]
    return torch.flip(result, backwards) if backwards else result


def _reversed(s: slice, n: int) -> slice:
    """The elements of a slice with a negative step, in ascending order."""
    elements = range(n)[s]
    if not len(elements):
        return slice(0, 0)
    return slice(elements[-1], elements[0] + 1, -s.step)


Bound = Sequence[int | None] | int | None


def _or_all_of_it(cut: Callable) -> Callable:
    """A slice without any bounds is the tensor itself."""

    @functools.wraps(cut)
    def make(
        t: Operand, start: Bound = None, stop: Bound = None, step: Bound = None, axis: Bound = None
    ) -> Tensor:
        if start is None and stop is None and step is None:
            return t
        return cut(t, start, stop, step, axis)

    return make


@operation("Slice", name="slice", around=_or_all_of_it)
def slice_copy(
    t: Operand, start: Bound = None, stop: Bound = None, step: Bound = None, axis: Bound = None
) -> Tensor:
    """A part of a tensor: starts, stops and steps by dimension, negative ones as in Python."""
    return _sliced(t, _slices(t, start, stop, step, axis)).clone()


@operation("SliceInplace", is_view=True, around=_or_all_of_it)
def slice_(
    t: Operand, start: Bound = None, stop: Bound = None, step: Bound = None, axis: Bound = None
) -> Tensor:
    """A part of a tensor's memory."""
    return _sliced(t, _slices(t, start, stop, step, axis))


@operation("Subsample")
def subsample(t: Operand, strides: Sequence[int] | int) -> Tensor:
    """Every n-th element of each dimension."""
    steps = [strides] * t.dim() if isinstance(strides, int) else list(strides)
    if len(steps) != t.dim():
        raise ValueError(f"{t.dim()} dimensions need as many strides, got {steps}")
    if any(step < 1 for step in steps):
        raise ValueError(f"strides must be at least 1, got {steps}")
    return t[tuple(slice(None, None, step) for step in steps)].clone()
