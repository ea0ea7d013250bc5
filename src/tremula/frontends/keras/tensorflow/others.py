"""Names of TensorFlow that belong to no group: types, versions, modules, devices, logging."""

import logging
from typing import Any, NoReturn

import keras

from tremula.frontends.keras.errors import keras_error
from tremula.frontends.keras.tensorflow.types import DTYPES, ops
from tremula.ir.recording import active

VERSION, KERAS_VERSION = "2.6.3", "2.6.0"
globals().update(DTYPES, half=DTYPES["float16"], double=DTYPES["float64"])


class Module:
    """`tf.Module`: an object with variables."""

    def __init__(self, name: str | None = None):
        self.name = name or type(self).__name__.lower()

    @property
    def variables(self) -> tuple[keras.Variable, ...]:
        own = [v for v in vars(self).values() if isinstance(v, keras.Variable)]
        layers = [v for v in vars(self).values() if isinstance(v, keras.layers.Layer | Module)]
        return (*own, *(v for layer in layers for v in layer.variables))

    @property
    def trainable_variables(self) -> tuple[keras.Variable, ...]:
        return tuple(v for v in self.variables if v.trainable)


class UnconnectedGradients:
    """What a tape returns for variables that a value does not depend on."""

    NONE, ZERO = "none", "zero"


def stop_gradient(input: object, name: str = "") -> Any:
    """The value, without a gradient."""
    del name
    return ops.stop_gradient(input)


def executing_eagerly() -> bool:
    """Whether operations are computed at once: outside compiled steps."""
    return active() is None


def is_tensor(x: object) -> bool:
    return keras.ops.is_tensor(x) or isinstance(x, keras.KerasTensor | keras.Variable)


constant_initializer = keras.initializers.Constant
random_normal_initializer = keras.initializers.RandomNormal
random_uniform_initializer = keras.initializers.RandomUniform
zeros_initializer, ones_initializer = keras.initializers.Zeros, keras.initializers.Ones


def list_physical_devices(device_type: str | None = None) -> list[Any]:
    """The devices of TensorFlow: the processor only; IPUs are configured by IPUConfig."""
    return [] if device_type not in (None, "CPU") else [_Device("/physical_device:CPU:0", "CPU")]


list_logical_devices = list_physical_devices


class _Device:
    def __init__(self, name: str, device_type: str):
        self.name, self.device_type = name, device_type


def run_functions_eagerly(run_eagerly: bool) -> None:
    """Functions always run as Python code, outside strategy.run."""
    del run_eagerly


def as_bytes(bytes_or_text: str | bytes, encoding: str = "utf-8") -> bytes:
    return bytes_or_text.encode(encoding) if isinstance(bytes_or_text, str) else bytes_or_text


def as_str(bytes_or_text: str | bytes, encoding: str = "utf-8") -> str:
    return bytes_or_text.decode(encoding) if isinstance(bytes_or_text, bytes) else bytes_or_text


class _Graph:
    """The graph that operations are recorded in: a step's, or none that stays."""

    @property
    def name(self) -> str:
        return "keras_scratch_graph" if executing_eagerly() else "step_graph"


def get_default_graph() -> _Graph:
    """`tf.compat.v1.get_default_graph`, for layers that look at its name."""
    return _Graph()


def set_verbosity(verbosity: int) -> None:
    """The level of the logger `tensorflow`."""
    logging.getLogger("tensorflow").setLevel(verbosity)


def learning_phase() -> int:
    """0: the argument `training=` says whether layers train."""
    return 0


def set_learning_phase(value: int) -> NoReturn:
    """Rejected: the argument `training=` says whether layers train."""
    raise keras_error(
        f"set_learning_phase({value}) is older than Keras 3.", hint="call model(x, training=True)"
    )
