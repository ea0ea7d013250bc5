"""`tf.nn`: activations, losses of logits, convolutions, pooling and normalisation."""

from collections.abc import Sequence
from typing import Any

import keras

from tremula.frontends.keras.errors import keras_error
from tremula.frontends.keras.tensorflow.arrays import Value, plain
from tremula.frontends.keras.tensorflow.maths import Axis
from tremula.frontends.keras.tensorflow.types import ops

__all__ = [
    "avg_pool",
    "avg_pool2d",
    "batch_normalization",
    "bias_add",
    "conv2d",
    "conv2d_transpose",
    "depthwise_conv2d",
    "dropout",
    "elu",
    "embedding_lookup",
    "gelu",
    "l2_loss",
    "leaky_relu",
    "log_softmax",
    "max_pool",
    "max_pool2d",
    "moments",
    "relu",
    "relu6",
    "selu",
    "sigmoid",
    "sigmoid_cross_entropy_with_logits",
    "silu",
    "softmax",
    "softmax_cross_entropy_with_logits",
    "softplus",
    "softsign",
    "sparse_softmax_cross_entropy_with_logits",
    "swish",
    "tanh",
]

relu, relu6, elu, selu = (getattr(keras.activations, n) for n in "relu relu6 elu selu".split())
sigmoid, tanh, silu = keras.activations.sigmoid, keras.activations.tanh, keras.activations.silu
softplus, softsign, swish = keras.activations.softplus, keras.activations.softsign, silu


def softmax(logits: Value, axis: int | None = None, name: str = "") -> Value:
    del name
    return ops.softmax(plain(logits), axis=-1 if axis is None else axis)


def log_softmax(logits: Value, axis: int | None = None, name: str = "") -> Value:
    del name
    return ops.log_softmax(plain(logits), axis=-1 if axis is None else axis)


def gelu(features: Value, approximate: bool = False, name: str = "") -> Value:
    del name
    return ops.gelu(plain(features), approximate=approximate)


def leaky_relu(features: Value, alpha: float = 0.2, name: str = "") -> Value:
    del name
    return ops.leaky_relu(plain(features), negative_slope=alpha)


def bias_add(value: Value, bias: Value, data_format: str | None = None, name: str = "") -> Value:
    """A tensor plus one number for each channel."""
    del name
    value, bias = plain(value), plain(bias)
    if data_format is not None and data_format.startswith("NC") and len(value.shape) > 2:
        bias = ops.reshape(bias, (1, -1, *([1] * (len(value.shape) - 2))))
    return value + bias


def dropout(
    x: Value,
    rate: float,
    noise_shape: Sequence[int] | None = None,
    seed: int | None = None,
    name: str = "",
) -> Value:
    """A share of the elements is zero, the others are scaled up."""
    del name
    return keras.random.dropout(plain(x), rate, noise_shape=noise_shape, seed=seed)


def softmax_cross_entropy_with_logits(
    labels: Value, logits: Value, axis: int = -1, name: str = ""
) -> Value:
    """The cross entropy of probabilities and of the softmax of logits, of each row."""
    del name
    logits = plain(logits)
    labels = ops.cast(plain(labels), keras.backend.standardize_dtype(logits.dtype))
    return -ops.sum(labels * ops.log_softmax(logits, axis=axis), axis=axis)


def sparse_softmax_cross_entropy_with_logits(labels: Value, logits: Value, name: str = "") -> Value:
    """The cross entropy of classes and of the softmax of logits, of each row."""
    del name
    log_probabilities = ops.log_softmax(plain(logits), axis=-1)
    index = ops.expand_dims(ops.cast(plain(labels), "int64"), -1)
    return -ops.squeeze(ops.take_along_axis(log_probabilities, index, axis=-1), -1)


def sigmoid_cross_entropy_with_logits(labels: Value, logits: Value, name: str = "") -> Value:
    """The cross entropy of probabilities and of the sigmoid of logits, of each element."""
    del name
    x, z = plain(logits), plain(labels)
    return ops.maximum(x, 0.0) - x * z + ops.log1p(ops.exp(-ops.abs(x)))


def l2_loss(t: Value, name: str = "") -> Value:
    """Half the sum of squares."""
    del name
    return ops.sum(ops.square(plain(t))) / 2


def moments(
    x: Value, axes: Axis, shift: object = None, keepdims: bool = False, name: str = ""
) -> tuple[Value, Value]:
    """Mean and variance along axes."""
    del name, shift
    axes = axes if isinstance(axes, int) or axes is None else tuple(axes)
    return ops.moments(plain(x), axes, keepdims=keepdims)


def batch_normalization(
    x: Value,
    mean: Value,
    variance: Value,
    offset: Value,
    scale: Value,
    variance_epsilon: float,
    name: str = "",
) -> Value:
    """A tensor normalised by these statistics, scaled and moved."""
    del name
    factor = ops.rsqrt(plain(variance) + variance_epsilon)
    factor = factor if scale is None else factor * plain(scale)
    moved = plain(x) * factor - plain(mean) * factor
    return moved if offset is None else moved + plain(offset)


def embedding_lookup(params: Value, ids: Value, max_norm: object = None, name: str = "") -> Value:
    """Rows of a table by number."""
    del name
    if max_norm is not None:
        raise keras_error("tf.nn.embedding_lookup(max_norm=…) is not supported.")
    return ops.take(plain(params), plain(ids), axis=0)


def conv2d(
    input: Value,
    filters: Value,
    strides: int | Sequence[int],
    padding: str,
    data_format: str = "NHWC",
    dilations: int | Sequence[int] | None = None,
    name: str = "",
) -> Value:
    """A convolution of images; filters are height × width × in × out."""
    del name
    return ops.conv(
        plain(input),
        plain(filters),
        strides=_of_image(strides, data_format),
        padding=_padding(padding),
        data_format=_format(data_format),
        dilation_rate=_of_image(1 if dilations is None else dilations, data_format),
    )


def conv2d_transpose(
    input: Value,
    filters: Value,
    output_shape: Sequence[int],
    strides: int | Sequence[int],
    padding: str = "SAME",
    data_format: str = "NHWC",
    name: str = "",
) -> Value:
    """The gradient of `conv2d`, used as an operation; filters are height × width × out × in."""
    del name
    result = ops.conv_transpose(
        plain(input),
        plain(filters),
        strides=_of_image(strides, data_format),
        padding=_padding(padding),
        data_format=_format(data_format),
    )
    if tuple(result.shape) != tuple(output_shape):
        raise keras_error(
            f"tf.nn.conv2d_transpose gives {tuple(result.shape)}; output_shape is"
            f" {tuple(output_shape)}."
        )
    return result


def depthwise_conv2d(
    input: Value,
    filter: Value,
    strides: Sequence[int],
    padding: str,
    data_format: str = "NHWC",
    dilations: Sequence[int] | None = None,
    name: str = "",
) -> Value:
    """A convolution of each channel alone."""
    del name
    return ops.depthwise_conv(
        plain(input),
        plain(filter),
        strides=_of_image(strides, data_format),
        padding=_padding(padding),
        data_format=_format(data_format),
        dilation_rate=_of_image(1 if dilations is None else dilations, data_format),
    )


def max_pool2d(
    input: Value,
    ksize: int | Sequence[int],
    strides: int | Sequence[int],
    padding: str,
    data_format: str = "NHWC",
    name: str = "",
) -> Value:
    """The largest elements of windows."""
    del name
    return ops.max_pool(
        plain(input),
        _of_image(ksize, data_format),
        _of_image(strides, data_format),
        _padding(padding),
        _format(data_format),
    )


def avg_pool2d(
    input: Value,
    ksize: int | Sequence[int],
    strides: int | Sequence[int],
    padding: str,
    data_format: str = "NHWC",
    name: str = "",
) -> Value:
    """The means of windows."""
    del name
    return ops.average_pool(
        plain(input),
        _of_image(ksize, data_format),
        _of_image(strides, data_format),
        _padding(padding),
        _format(data_format),
    )


max_pool, avg_pool = max_pool2d, avg_pool2d


def _of_image(value: Any, data_format: str) -> Any:
    """Height and width of sizes that may have four entries."""
    if isinstance(value, int):
        return value
    if len(value) != 4:
        return tuple(value) if len(value) == 2 else int(value[0])
    first = 2 if data_format == "NCHW" else 1
    return tuple(value[first : first + 2])


def _padding(padding: str) -> str:
    if not isinstance(padding, str) or padding.upper() not in ("SAME", "VALID"):
        raise ValueError(f"padding must be 'SAME' or 'VALID'; got {padding!r}. Use tf.pad first.")
    return padding.lower()


def _format(data_format: str) -> str:
    known = {"NHWC": "channels_last", "NCHW": "channels_first"}
    if data_format not in known:
        raise ValueError(f"data_format must be 'NHWC' or 'NCHW'; got {data_format!r}.")
    return known[data_format]
