"""TensorFlow's arithmetic, comparisons, reductions and linear algebra, on Keras's operations."""

from collections.abc import Callable, Sequence

import torch

from tremula.frontends.keras.errors import keras_error
from tremula.frontends.keras.tensorflow.arrays import Value, cast_, convert_to_tensor, plain
from tremula.frontends.keras.tensorflow.types import as_dtype, ops

Axis = int | Sequence[int] | None
# TensorFlow's name = Keras's, where they differ.
UNARY = (
    "abs sign exp expm1 log log1p sqrt rsqrt square sin cos tan asin=arcsin acos=arccos atan=arctan"
    " sinh cosh tanh asinh=arcsinh acosh=arccosh atanh=arctanh erf floor ceil round negative"
    " reciprocal sigmoid softplus softsign log_sigmoid logical_not is_nan=isnan is_inf=isinf"
    " is_finite=isfinite conj real imag"
)
BINARY = (
    "add subtract multiply divide=true_divide truediv=true_divide floordiv=floor_divide"
    " floormod=mod mod pow=power maximum minimum equal not_equal less less_equal greater"
    " greater_equal logical_and logical_or logical_xor atan2=arctan2"
)
REDUCTIONS = (
    "reduce_sum=sum reduce_mean=mean reduce_max=max reduce_min=min reduce_prod=prod"
    " reduce_any=any reduce_all=all reduce_variance=var reduce_std=std reduce_logsumexp=logsumexp"
)


def _pairs(names: str) -> list[tuple[str, str]]:
    pairs = [word.partition("=") for word in names.split()]
    return [(own, other or own) for own, _, other in pairs]


def _unary(own: str, of_keras: str) -> Callable:
    operation = getattr(ops, of_keras)

    def function(x: Value, name: str = "") -> Value:
        del name
        return operation(plain(x))

    return _named(function, own)


def _binary(own: str, of_keras: str) -> Callable:
    operation = getattr(ops, of_keras)

    def function(x: Value, y: Value, name: str = "") -> Value:
        del name
        return operation(*_alike(x, y))

    return _named(function, own)


def _reduction(own: str, of_keras: str) -> Callable:
    operation = getattr(ops, of_keras)

    def function(
        input_tensor: Value, axis: Axis = None, keepdims: bool = False, name: str = ""
    ) -> Value:
        del name
        values = plain(input_tensor)
        if axis is not None and not isinstance(axis, int):
            axis = tuple(int(each) for each in axis)
            if not axis:  # TensorFlow reduces over nothing
                return values
        if own == "reduce_mean" and not as_dtype(values.dtype).is_floating:
            mean = ops.trunc(ops.mean(ops.cast(values, "float64"), axis, keepdims))
            return ops.cast(mean, str(as_dtype(values.dtype)))  # integers have an integer mean
        result = operation(values, axis=axis, keepdims=keepdims)
        kind = as_dtype(values.dtype)
        is_counted = own in ("reduce_sum", "reduce_prod") and kind.is_integer
        return ops.cast(result, str(kind)) if is_counted else result

    return _named(function, own)


def _named(function: Callable, name: str) -> Callable:
    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"`tf.{name}` of tensors."
    return function


def _alike(x: Value, y: Value) -> tuple[Value, Value]:
    """Two operands: a Python number takes the type of the other one."""
    if isinstance(x, bool | int | float) and not isinstance(y, bool | int | float):
        y = plain(y)
        return convert_to_tensor(x, as_dtype(y.dtype)), y
    x = plain(x)
    is_number = isinstance(y, bool | int | float)
    return x, convert_to_tensor(y, as_dtype(x.dtype)) if is_number else plain(y)


FUNCTIONS: dict[str, Callable] = {}
for _make, _names in ((_unary, UNARY), (_binary, BINARY), (_reduction, REDUCTIONS)):
    FUNCTIONS.update({own: _make(own, of_keras) for own, of_keras in _pairs(_names)})
globals().update(FUNCTIONS)


def matmul(
    a: Value,
    b: Value,
    transpose_a: bool = False,
    transpose_b: bool = False,
    adjoint_a: bool = False,
    adjoint_b: bool = False,
    name: str = "",
) -> Value:
    """The product of matrices, of the last two dimensions."""
    del name
    a, b = plain(a), plain(b)
    a = ops.swapaxes(a, -1, -2) if transpose_a or adjoint_a else a
    b = ops.swapaxes(b, -1, -2) if transpose_b or adjoint_b else b
    return ops.matmul(a, b)


def argmax(
    input: Value,
    axis: int | None = None,
    output_type: object = "int64",
    name: str = "",
) -> Value:
    """The index of the largest element along an axis, the first by default."""
    del name
    result = ops.argmax(plain(input), axis=0 if axis is None else axis)
    return ops.cast(result, str(as_dtype(output_type)))


def argmin(
    input: Value,
    axis: int | None = None,
    output_type: object = "int64",
    name: str = "",
) -> Value:
    """The index of the smallest element along an axis, the first by default."""
    del name
    result = ops.argmin(plain(input), axis=0 if axis is None else axis)
    return ops.cast(result, str(as_dtype(output_type)))


def clip_by_value(t: Value, clip_value_min: Value, clip_value_max: Value, name: str = "") -> Value:
    """Elements inside two bounds."""
    del name
    t = plain(t)
    low, high = _alike(t, clip_value_min)[1], _alike(t, clip_value_max)[1]
    return ops.minimum(ops.maximum(t, low), high)


def clip_by_norm(t: Value, clip_norm: Value, axes: Axis = None, name: str = "") -> Value:
    """The tensor, scaled down to a norm if its own is larger."""
    del name
    t = plain(t)
    own = ops.sqrt(ops.sum(t * t, axis=axes, keepdims=True))
    return t * clip_norm / ops.maximum(own, clip_norm)


def global_norm(t_list: Sequence[Value], name: str = "") -> Value:
    """The norm of all tensors together."""
    del name
    total = sum(ops.sum(ops.square(plain(t))) for t in t_list if t is not None)
    return ops.sqrt(total)


def clip_by_global_norm(
    t_list: Sequence[Value], clip_norm: Value, use_norm: Value = None, name: str = ""
) -> tuple[list[Value], Value]:
    """Tensors, scaled down together to a norm, and the norm they had."""
    del name
    own = global_norm(t_list) if use_norm is None else use_norm
    scale = clip_norm / ops.maximum(own, clip_norm)
    return [None if t is None else plain(t) * scale for t in t_list], own


def norm(
    tensor: Value,
    ord: object = "euclidean",
    axis: Axis = None,
    keepdims: bool = False,
    name: str = "",
) -> Value:
    """A norm of all elements or along axes."""
    del name
    order = None if ord in ("euclidean", "fro", 2) and axis is None else ord
    order = 2 if order == "euclidean" else order
    values = plain(tensor)
    if axis is None:
        if order is None:
            return ops.sqrt(ops.sum(ops.square(values), keepdims=keepdims))
        values = ops.reshape(values, (-1,))
    return ops.norm(values, ord=order, axis=axis, keepdims=keepdims)


def add_n(inputs: Sequence[Value], name: str = "") -> Value:
    """The sum of tensors of one shape."""
    del name
    result = plain(inputs[0])
    for each in inputs[1:]:
        result = result + plain(each)
    return result


def divide_no_nan(x: Value, y: Value, name: str = "") -> Value:
    """A quotient that is 0 where the divisor is."""
    del name
    x, y = _alike(x, y)
    is_zero = ops.equal(y, 0)
    quotient = x / ops.where(is_zero, ops.ones_like(y), y)
    return ops.where(is_zero, ops.zeros_like(quotient), quotient)


def squared_difference(x: Value, y: Value, name: str = "") -> Value:
    del name
    x, y = _alike(x, y)
    return ops.square(x - y)


def cumsum(
    x: Value, axis: int = 0, exclusive: bool = False, reverse: bool = False, name: str = ""
) -> Value:
    """Sums up to each element; `exclusive` without it, `reverse` from the end."""
    del name
    x = plain(x)
    x = ops.flip(x, axis) if reverse else x
    result = ops.cumsum(x, axis)
    result = result - x if exclusive else result
    return ops.flip(result, axis) if reverse else result


def sort(values: Value, axis: int = -1, direction: str = "ASCENDING", name: str = "") -> Value:
    del name
    result = ops.sort(plain(values), axis)
    return ops.flip(result, axis) if _descends(direction) else result


def argsort(
    values: Value,
    axis: int = -1,
    direction: str = "ASCENDING",
    stable: bool = False,
    name: str = "",
) -> Value:
    """The indices that sort a tensor."""
    del name, stable  # equal elements stay in order
    values = plain(values)
    result = torch.argsort(values, dim=axis, descending=_descends(direction), stable=True)
    return ops.cast(result, "int32")


def _descends(direction: str) -> bool:
    if direction not in ("ASCENDING", "DESCENDING"):
        raise ValueError(f"direction must be 'ASCENDING' or 'DESCENDING'; got {direction!r}.")
    return direction == "DESCENDING"


def top_k(input: Value, k: int = 1, sorted: bool = True, name: str = "") -> Value:
    """The largest elements of rows and their indices."""
    del name
    return ops.top_k(plain(input), k, sorted=sorted)


def in_top_k(targets: Value, predictions: Value, k: int, name: str = "") -> Value:
    del name
    return ops.in_top_k(plain(targets), plain(predictions), k)


def tensordot(a: Value, b: Value, axes: object, name: str = "") -> Value:
    del name
    return ops.tensordot(plain(a), plain(b), axes)


def einsum(equation: str, *inputs: Value, name: str = "") -> Value:
    del name
    return ops.einsum(equation, *map(plain, inputs))


def segment_sum(data: Value, segment_ids: Value, name: str = "") -> Value:
    """Sums of rows with one id; ids are sorted, and known."""
    del name
    ids = plain(segment_ids)
    return ops.segment_sum(plain(data), ids, num_segments=int(ops.max(ids)) + 1)


def unsorted_segment_sum(
    data: Value, segment_ids: Value, num_segments: int, name: str = ""
) -> Value:
    """Sums of rows with one id."""
    del name
    data, ids = plain(data), plain(segment_ids)
    n_ids = len(ids.shape)
    rows = ops.reshape(data, (-1, *tuple(data.shape[n_ids:])))
    return ops.segment_sum(rows, ops.reshape(ids, (-1,)), num_segments=int(num_segments))


def unsorted_segment_max(
    data: Value, segment_ids: Value, num_segments: int, name: str = ""
) -> Value:
    """Maxima of rows with one id."""
    del name
    return ops.segment_max(plain(data), plain(segment_ids), num_segments=int(num_segments))


def unsorted_segment_mean(
    data: Value, segment_ids: Value, num_segments: int, name: str = ""
) -> Value:
    """Means of rows with one id; 0 for an id without rows."""
    del name
    data = plain(data)
    total = unsorted_segment_sum(data, segment_ids, num_segments)
    count = unsorted_segment_sum(ops.ones_like(data), segment_ids, num_segments)
    return total / ops.maximum(count, 1)


def confusion_matrix(
    labels: Value,
    predictions: Value,
    num_classes: int | None = None,
    weights: Value = None,
    dtype: object = "int32",
    name: str = "",
) -> Value:
    """How often a label was predicted as which class."""
    del name
    labels, predictions = plain(labels), plain(predictions)
    if num_classes is None:
        num_classes = int(ops.maximum(ops.max(labels), ops.max(predictions))) + 1
    flat = ops.cast(labels, "int64") * num_classes + ops.cast(predictions, "int64")
    ones = ops.ones(flat.shape) if weights is None else ops.cast(plain(weights), "float32")
    counts = ops.segment_sum(ones, flat, num_segments=num_classes * num_classes)
    return cast_(ops.reshape(counts, (num_classes, num_classes)), dtype)


def bincount(
    arr: Value,
    weights: Value = None,
    minlength: int | None = None,
    maxlength: int | None = None,
    dtype: object = "int32",
    name: str = "",
) -> Value:
    """How often each whole number occurs."""
    del name
    if maxlength is not None:
        raise keras_error("tf.math.bincount(maxlength=…) is not supported.", hint="slice it")
    result = ops.bincount(plain(arr), weights=weights, minlength=minlength or 0)
    return result if weights is not None else cast_(result, dtype)


def l2_normalize(x: Value, axis: Axis = None, epsilon: float = 1e-12, name: str = "") -> Value:
    """The tensor divided by its norm along axes."""
    del name
    x = plain(x)
    total = ops.sum(ops.square(x), axis=axis, keepdims=True)
    return x * ops.rsqrt(ops.maximum(total, epsilon))


def band_part(input: Value, num_lower: int, num_upper: int, name: str = "") -> Value:
    """A matrix with zeros outside a band around its diagonal; -1: without a limit."""
    del name
    x = plain(input)
    rows = ops.expand_dims(ops.arange(x.shape[-2]), 1)
    columns = ops.expand_dims(ops.arange(x.shape[-1]), 0)
    is_inside = ops.ones((x.shape[-2], x.shape[-1]), dtype="bool")
    if num_lower >= 0:
        is_inside = ops.logical_and(is_inside, rows - columns <= num_lower)
    if num_upper >= 0:
        is_inside = ops.logical_and(is_inside, columns - rows <= num_upper)
    return ops.where(is_inside, x, ops.zeros_like(x))
