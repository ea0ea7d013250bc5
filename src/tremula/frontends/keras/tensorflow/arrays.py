"""TensorFlow's functions that make, cut, join and look up tensors, on Keras's operations."""

from collections.abc import Iterator, Sequence
from typing import Any, cast

import keras
import numpy as np
import torch
from torch import Tensor

from tremula.frontends.keras.errors import keras_error
from tremula.frontends.keras.loops.tape import loop_range
from tremula.frontends.keras.tensorflow.types import TensorShape, as_dtype, inferred_dtype, ops

Value = Any  # a tensor, an array, a number, or a symbolic tensor of a model
newaxis = None


def constant(value: Value, dtype: object = None, shape: object = None, name: str = "") -> Value:
    """A tensor of a value: Python's numbers are float32 or int32; one number fills a shape."""
    del name
    if _is_text(value):
        result = np.asarray(value, dtype=object)
        return result if shape is None else np.broadcast_to(result, _sizes(shape))
    kind = inferred_dtype(value) if dtype is None else as_dtype(dtype)
    result = convert_to_tensor(value, kind)
    if shape is None:
        return result
    sizes = _sizes(shape)
    n_elements = int(np.prod(sizes, dtype=np.int64))
    n_values = int(np.prod(tuple(result.shape), dtype=np.int64))
    if n_values not in (1, n_elements):
        raise TypeError(f"tf.constant: {n_values} values do not fill the shape {tuple(sizes)}.")
    if n_values == n_elements:
        return ops.reshape(result, sizes)
    return ops.broadcast_to(ops.reshape(result, ()), sizes)


def convert_to_tensor(
    value: Value, dtype: object = None, dtype_hint: object = None, name: str = ""
) -> Value:
    """A tensor of a value, with TensorFlow's types for Python's numbers."""
    del name, dtype_hint
    if isinstance(value, _Range):
        value = value.tensor
    if _is_text(value):
        return np.asarray(value, dtype=object)
    kind = inferred_dtype(value) if dtype is None else as_dtype(dtype)
    if isinstance(value, list | tuple) and any(isinstance(each, Tensor) for each in value):
        value = ops.stack([convert_to_tensor(each, kind) for each in value])
    return ops.convert_to_tensor(value, dtype=str(kind))


def cast_(x: Value, dtype: object, name: str = "") -> Value:
    """`tf.cast`: the values in another type."""
    del name
    return ops.cast(_plain(x), str(as_dtype(dtype)))


def shape(input: Value, out_type: object = None, name: str = "") -> TensorShape:
    """The sizes of a tensor, which a compiled step knows: whole numbers, None for a batch."""
    del out_type, name
    return TensorShape(ops.shape(_plain(input)))


def size(input: Value, out_type: object = None, name: str = "") -> int:
    """The number of elements."""
    del out_type, name
    return int(np.prod(tuple(ops.shape(_plain(input))), dtype=np.int64))


def rank(input: Value, name: str = "") -> int:
    """The number of dimensions."""
    del name
    return len(ops.shape(_plain(input)))


def reshape(tensor: Value, shape: object, name: str = "") -> Value:
    """The values in another shape; one size may be -1."""
    del name
    sizes = [-1 if each is None else each for each in _sizes(shape)]
    if sizes.count(-1) > 1:
        raise keras_error(
            f"tf.reshape to {sizes}: only one size may be unknown.",
            hint="give Input(batch_size=…), or use -1 for one size only",
        )
    return ops.reshape(_plain(tensor), tuple(sizes))


def zeros(shape: object, dtype: object = "float32", name: str = "") -> Value:
    del name
    return ops.zeros(_sizes(shape), dtype=str(as_dtype(dtype)))


def ones(shape: object, dtype: object = "float32", name: str = "") -> Value:
    del name
    return ops.ones(_sizes(shape), dtype=str(as_dtype(dtype)))


def fill(dims: object, value: Value, name: str = "") -> Value:
    del name
    return ops.full(_sizes(dims), value, dtype=str(inferred_dtype(value)))


def zeros_like(input: Value, dtype: object = None, name: str = "") -> Value:
    del name
    return ops.zeros_like(_plain(input), dtype=None if dtype is None else str(as_dtype(dtype)))


def ones_like(input: Value, dtype: object = None, name: str = "") -> Value:
    del name
    return ops.ones_like(_plain(input), dtype=None if dtype is None else str(as_dtype(dtype)))


def eye(
    num_rows: int, num_columns: int | None = None, dtype: object = "float32", name: str = ""
) -> Value:
    """The matrix with ones on its diagonal."""
    del name
    return ops.eye(num_rows, num_columns, dtype=str(as_dtype(dtype)))


def linspace(start: Value, stop: Value, num: int, name: str = "", axis: int = 0) -> Value:
    del name
    return ops.linspace(start, stop, num, axis=axis)


def identity(input: Value, name: str = "") -> Value:
    del name
    return _plain(input) * 1 if isinstance(input, keras.KerasTensor) else convert_to_tensor(input)


def expand_dims(input: Value, axis: int = -1, name: str = "") -> Value:
    del name
    return ops.expand_dims(_plain(input), axis)


def squeeze(input: Value, axis: object = None, name: str = "") -> Value:
    del name
    axes = tuple(axis) if isinstance(axis, list | tuple) else axis
    return ops.squeeze(_plain(input), axis=cast("Any", axes) if axes != () else None)


def concat(values: Sequence[Value], axis: int, name: str = "concat") -> Value:
    del name
    return ops.concatenate([_plain(each) for each in values], axis=int(axis))


def stack(values: Sequence[Value], axis: int = 0, name: str = "stack") -> Value:
    del name
    return ops.stack([convert_to_tensor(each) for each in values], axis=axis)


def unstack(value: Value, num: int | None = None, axis: int = 0, name: str = "") -> list[Value]:
    """Slices along an axis, without it."""
    del name
    result = list(ops.unstack(_plain(value), axis=axis))
    if num is not None and num != len(result):
        raise ValueError(f"tf.unstack: num={num}, but the axis has {len(result)} elements.")
    return result


def split(
    value: Value, num_or_size_splits: int | Sequence[int], axis: int = 0, name: str = ""
) -> list[Value]:
    """Parts along an axis: a number of equal ones, or with the sizes of a list."""
    del name
    value = _plain(value)
    if isinstance(num_or_size_splits, int):
        return list(ops.split(value, num_or_size_splits, axis=axis))
    sizes = [int(each) for each in num_or_size_splits]
    length = int(value.shape[axis])
    if -1 in sizes:
        sizes[sizes.index(-1)] = length - sum(s for s in sizes if s >= 0)
    if sum(sizes) != length:
        raise ValueError(f"tf.split: sizes {sizes} do not add up to {length}.")
    return list(ops.split(value, [int(e) for e in np.cumsum(sizes)[:-1]], axis=axis))


def transpose(
    a: Value, perm: Sequence[int] | None = None, conjugate: bool = False, name: str = ""
) -> Value:
    """Dimensions in another order, by default in reverse."""
    del name
    if conjugate:
        raise keras_error("tf.transpose(conjugate=True) is not supported.", hint="tf.math.conj")
    return ops.transpose(_plain(a), None if perm is None else [int(p) for p in perm])


def tile(input: Value, multiples: Sequence[int], name: str = "") -> Value:
    del name
    return ops.tile(_plain(input), _sizes(multiples))


def repeat(input: Value, repeats: Value, axis: int | None = None, name: str = "") -> Value:
    del name
    return ops.repeat(_plain(input), repeats, axis=axis)


def reverse(tensor: Value, axis: Sequence[int] | int, name: str = "") -> Value:
    del name
    return ops.flip(_plain(tensor), axis=cast("Any", axis))


def roll(input: Value, shift: object, axis: object, name: str = "") -> Value:
    del name
    return ops.roll(_plain(input), shift, axis)


def broadcast_to(input: Value, shape: object, name: str = "") -> Value:
    del name
    return ops.broadcast_to(_plain(input), _sizes(shape))


def pad(
    tensor: Value,
    paddings: Any,
    mode: str = "CONSTANT",
    constant_values: float = 0,
    name: str = "",
) -> Value:
    """Values around a tensor: of a constant, or its own in `REFLECT` and `SYMMETRIC` order."""
    del name
    widths = [tuple(int(w) for w in pair) for pair in paddings]
    if mode.upper() == "CONSTANT":
        return ops.pad(_plain(tensor), widths, constant_values=constant_values)
    if mode.upper() not in ("REFLECT", "SYMMETRIC"):
        raise keras_error(f"mode {mode!r} of tf.pad must be CONSTANT, REFLECT or SYMMETRIC")
    return _mirrored(_plain(tensor), widths, mode)


def _mirrored(tensor: Value, widths: Sequence[tuple[int, ...]], mode: str) -> Value:
    """Each axis read at mirrored positions (PyTorch mirrors the last axes only)."""
    for axis, (before, after) in enumerate(widths):
        if not before and not after:
            continue
        size = int(tensor.shape[axis])
        most = size - 1 if mode.upper() == "REFLECT" else size
        if max(before, after) > most:
            text = f"tf.pad: {mode} pads axis {axis}, of {size} elements, by at most {most}"
            raise keras_error(f"{text}, not ({before}, {after})")
        positions = np.pad(np.arange(size), (before, after), mode=cast("Any", mode.lower()))
        tensor = ops.take(tensor, positions, axis=axis)
    return tensor


def slice_(input_: Value, begin: Sequence[int], size: Sequence[int], name: str = "") -> Value:
    """`tf.slice`: a block; a size of -1 reaches the end."""
    del name
    pairs = zip(_sizes(begin), _sizes(size), strict=True)
    cuts = tuple(slice(b, None if n == -1 else b + n) for b, n in pairs)
    return _plain(input_)[cuts]


def where(condition: Value, x: Value = None, y: Value = None, name: str = "") -> Value:
    """Elements of `x` where a condition holds, else of `y`; without both, indices."""
    del name
    if x is None and y is None:
        return ops.stack(ops.nonzero(_plain(condition)), axis=-1)
    if x is None or y is None:
        raise ValueError("tf.where takes both x and y, or none of them.")
    return ops.where(_plain(condition), _plain(x), _plain(y))


def gather(
    params: Value,
    indices: Value,
    validate_indices: object = None,
    axis: int | None = None,
    batch_dims: int = 0,
    name: str = "",
) -> Value:
    """Slices by index along an axis; with `batch_dims`, in each row of the leading ones."""
    del name, validate_indices
    params, indices = _plain(params), _plain(indices)
    if batch_dims == 0:
        return ops.take(params, indices, axis=0 if axis is None else axis)
    if axis not in (None, batch_dims):
        raise keras_error(
            f"tf.gather(axis={axis}, batch_dims={batch_dims}) needs axis = batch_dims.",
            hint="transpose the tensor first",
        )
    sizes, counts = tuple(params.shape), tuple(indices.shape)
    rows = ops.reshape(params, (-1, sizes[batch_dims], _product(sizes[batch_dims + 1 :])))
    index = ops.reshape(indices, (-1, _product(counts[batch_dims:]), 1))
    index = ops.broadcast_to(index, (index.shape[0], index.shape[1], rows.shape[2]))
    result = ops.take_along_axis(rows, ops.cast(index, "int64"), axis=1)
    return ops.reshape(result, (*counts, *sizes[batch_dims + 1 :]))


def gather_nd(params: Value, indices: Value, batch_dims: int = 0, name: str = "") -> Value:
    """Elements or slices by vectors of indices."""
    del name
    if batch_dims:
        raise keras_error("tf.gather_nd(batch_dims=…) is not supported.", hint="use tf.gather")
    params, indices = _plain(params), _plain(indices)
    n = int(indices.shape[-1])
    sizes, outer = tuple(params.shape), tuple(indices.shape[:-1])
    rows = ops.reshape(params, (_product(sizes[:n]), *sizes[n:]))
    return ops.take(rows, ops.reshape(_raveled(indices, sizes[:n]), outer), axis=0)


def scatter_nd(indices: Value, updates: Value, shape: Sequence[int], name: str = "") -> Value:
    """Zeros with values added at indices."""
    del name
    return ops.scatter(_plain(indices), _plain(updates), tuple(_sizes(shape)))


def tensor_scatter_nd_update(
    tensor: Value, indices: Value, updates: Value, name: str = ""
) -> Value:
    del name
    return ops.scatter_update(_plain(tensor), _plain(indices), _plain(updates))


def tensor_scatter_nd_add(tensor: Value, indices: Value, updates: Value, name: str = "") -> Value:
    del name
    tensor = _plain(tensor)
    return tensor + ops.scatter(_plain(indices), _plain(updates), tuple(tensor.shape))


def one_hot(
    indices: Value,
    depth: int,
    on_value: Value = None,
    off_value: Value = None,
    axis: int | None = None,
    dtype: object = None,
    name: str = "",
) -> Value:
    """Rows with a one (`on_value`) at the index; of an index out of range, none."""
    del name
    kind = "float32" if dtype is None else str(as_dtype(dtype))
    index = _plain(indices)
    place = (-1 if axis is None else axis) % (len(index.shape) + 1)
    sizes = [1] * (len(index.shape) + 1)
    sizes[place] = int(depth)
    classes = ops.reshape(ops.arange(int(depth), dtype="int64"), sizes)
    is_hot = ops.equal(ops.expand_dims(ops.cast(index, "int64"), place), classes)
    if on_value is None and off_value is None:
        return ops.cast(is_hot, kind)
    on, off = 1 if on_value is None else on_value, 0 if off_value is None else off_value
    if dtype is None:
        kind = str(inferred_dtype(on if on_value is not None else off))
    return ops.cast(ops.where(is_hot, on, off), kind)


def boolean_mask(tensor: Value, mask: Value, axis: int | None = None, name: str = "") -> Value:
    """The rows where a mask holds: as many as there are, so not inside compiled steps."""
    del name
    if axis not in (None, 0):
        raise keras_error("tf.boolean_mask(axis=…) is not supported.", hint="transpose first")
    return _plain(tensor)[ops.convert_to_tensor(mask, dtype="bool")]


def sequence_mask(
    lengths: Value, maxlen: int | None = None, dtype: object = "bool", name: str = ""
) -> Value:
    """Rows that hold up to a length."""
    del name
    lengths = ops.convert_to_tensor(lengths)
    maxlen = int(ops.max(lengths)) if maxlen is None else int(maxlen)
    steps = ops.arange(maxlen, dtype=lengths.dtype)
    return cast_(steps < ops.expand_dims(lengths, -1), dtype)


def meshgrid(*args: Value, indexing: str = "xy", name: str = "") -> list[Value]:
    del name
    return list(ops.meshgrid(*map(_plain, args), indexing=indexing))


def ensure_shape(x: Value, shape: Sequence[int | None], name: str = "") -> Value:
    """The tensor itself, after a check of its shape."""
    del name
    TensorShape(ops.shape(_plain(x))).assert_is_compatible_with(shape)
    return x


def range_(*limits: Value, delta: Value = None, dtype: object = None, name: str = "") -> "_Range":
    """`tf.range`: the rounds of a loop, or a tensor of numbers where it is used as one."""
    del name
    bounds = [each.item() if isinstance(each, Tensor) else each for each in limits]
    return _Range(tuple(bounds if delta is None else [*bounds, delta]), dtype)


class _Range:
    """Numbers that are a loop where they are iterated, and a tensor everywhere else."""

    def __init__(self, limits: tuple[Any, ...], dtype: object):
        self.limits, self._dtype = limits, dtype

    def __iter__(self) -> Iterator[Any]:
        if all(isinstance(each, int | np.integer) for each in self.limits):
            return iter(loop_range(*self.limits))
        return iter(self.tensor)

    @property
    def tensor(self) -> Value:
        kind = inferred_dtype(list(self.limits)) if self._dtype is None else as_dtype(self._dtype)
        return ops.arange(*self.limits, dtype=str(kind))

    def __len__(self) -> int:
        return len(np.arange(*self.limits))

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        del copy
        return np.asarray(ops.convert_to_numpy(self.tensor), dtype)

    def __getitem__(self, key: object) -> Value:
        return self.tensor[key]

    def __getattr__(self, name: str) -> Any:  # shape, dtype, numpy …
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.tensor, name)


def _operator(name: str) -> Any:
    def apply(self: _Range, *others: Value) -> Value:
        return getattr(self.tensor, name)(*map(_plain, others))

    return apply


for _name in "add sub mul truediv floordiv mod pow lt le gt ge".split():
    setattr(_Range, f"__{_name}__", _operator(f"__{_name}__"))
for _name in "add sub mul truediv floordiv pow".split():
    setattr(_Range, f"__r{_name}__", _operator(f"__r{_name}__"))
_Range.__neg__ = _operator("__neg__")  # pyright: ignore[reportAttributeAccessIssue]


def _plain(value: Value) -> Value:
    """A tensor, also of TensorFlow's own ranges and of numbers in lists."""
    if isinstance(value, keras.Variable):
        return value.value
    if isinstance(value, Tensor | keras.KerasTensor):
        return value
    return convert_to_tensor(value)


def _sizes(shape: Any) -> tuple[Any, ...]:
    """A shape as whole numbers, from a list, a tensor or one number."""
    if isinstance(shape, Tensor | np.ndarray | _Range):
        shape = np.asarray(shape).tolist()
    if not isinstance(shape, Sequence):
        shape = (shape,)
    return tuple(each.item() if isinstance(each, Tensor | np.generic) else each for each in shape)


def _product(sizes: Sequence[int]) -> int:
    return int(np.prod(tuple(sizes), dtype=np.int64))


def _raveled(indices: Value, sizes: Sequence[int]) -> Value:
    """Vectors of indices as positions in rows."""
    strides = [_product(sizes[i + 1 :]) for i in range(len(sizes))]
    weights = ops.convert_to_tensor(strides, dtype="int64")
    return ops.sum(ops.cast(indices, "int64") * weights, axis=-1)


def _is_text(value: Value) -> bool:
    if isinstance(value, str | bytes):
        return True
    if isinstance(value, np.ndarray):
        return value.dtype.kind in "OSU"
    if isinstance(value, list | tuple) and value:
        return _is_text(value[0])
    return False


def plain(value: Value) -> Value:
    """A tensor of a value, for the other functions of TensorFlow."""
    return _plain(value)


def is_concrete(value: Value) -> bool:
    """Whether the elements of a tensor are known: neither symbolic nor being recorded."""
    if isinstance(value, keras.KerasTensor):
        return False
    is_fake = isinstance(value, torch._subclasses.FakeTensor) or getattr(value, "is_meta", False)
    return not is_fake
