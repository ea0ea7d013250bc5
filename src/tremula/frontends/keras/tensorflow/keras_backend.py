"""Functions of `tf.keras.backend` that Keras' own read TensorFlow's types for."""

import keras
from keras import ops

from tremula.frontends.keras.tensorflow.arrays import Value, plain
from tremula.frontends.keras.tensorflow.maths import Axis


def dtype(x: Value) -> str:
    """The name of a tensor's type: "float32"."""
    return keras.backend.standardize_dtype(x.dtype)


def mean(x: Value, axis: Axis = None, keepdims: bool = False) -> Value:
    """The mean along axes; of booleans, the share that is true."""
    return ops.mean(_number(x), axis=axis, keepdims=keepdims)


def std(x: Value, axis: Axis = None, keepdims: bool = False) -> Value:
    """The standard deviation along axes."""
    return ops.std(_number(x), axis=axis, keepdims=keepdims)


def var(x: Value, axis: Axis = None, keepdims: bool = False) -> Value:
    """The variance along axes."""
    return ops.var(_number(x), axis=axis, keepdims=keepdims)


def _number(x: Value) -> Value:
    x = ops.convert_to_tensor(plain(x))
    return ops.cast(x, keras.config.floatx()) if dtype(x) == "bool" else x
