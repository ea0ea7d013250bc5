"""`tensorflow`, `tensorflow.keras`, `tensorflow.python.ipu` as modules, installed on request."""

import sys
from types import ModuleType
from typing import NoReturn

import keras
import numpy as np

from tremula.base.errors import suggest
from tremula.frontends.keras import config, enums, ipu, strategy
from tremula.frontends.keras.errors import keras_error
from tremula.frontends.keras.loops.tape import GradientTape, function, loop_range
from tremula.frontends.keras.tensorflow.dataset import Dataset
from tremula.frontends.keras.tensorflow.datasets import generated_datasets

_OF_KERAS = (
    "activations",
    "applications",
    "callbacks",
    "constraints",
    "datasets",
    "initializers",
    "layers",
    "losses",
    "metrics",
    "mixed_precision",
    "models",
    "optimizers",
    "preprocessing",
    "regularizers",
    "utils",
)
_TYPES = ("bool", "float16", "float32", "float64", "int8", "int16", "int32", "int64", "uint8")
_OPERATIONS = (
    "abs",
    "argmax",
    "cast",
    "concat",
    "exp",
    "expand_dims",
    "matmul",
    "maximum",
    "minimum",
    "reshape",
    "shape",
    "squeeze",
    "stack",
    "tanh",
    "transpose",
)
_OTHER_NAMES = {
    "concat": "concatenate",
    "reduce_mean": "mean",
    "reduce_sum": "sum",
    "reduce_max": "max",
    "reduce_min": "min",
}


class _StandIn(ModuleType):
    """A module of TensorFlow's name; what it does not have is an error with the nearest name."""

    def __getattr__(self, name: str) -> NoReturn:  # called for missing names only
        if name.startswith("__"):
            raise AttributeError(name)
        known = [known for known in vars(self) if not known.startswith("_")]
        error = keras_error(
            f"{self.__name__} has no {name!r}: Tremula has a part of TensorFlow's names.",
            hint=suggest(name, known),
        )
        raise AttributeError(*error.args)


def as_tensorflow(synthetic_samples: int | None = None) -> ModuleType:
    """Let scripts import `tensorflow`, `tensorflow.keras` and `tensorflow.python.ipu` from here.

    With `synthetic_samples`, `tf.keras.datasets` gives that many generated images.
    """
    loaded = sys.modules.get("tensorflow")
    if isinstance(loaded, _StandIn) and synthetic_samples is None:
        return loaded
    if loaded is not None and not isinstance(loaded, _StandIn):
        raise keras_error(
            "TensorFlow itself is loaded, and its names are taken.",
            hint="call tremula.keras.as_tensorflow() before anything imports tensorflow",
        )
    modules = _modules(synthetic_samples)
    sys.modules.update(modules)
    return modules["tensorflow"]


def _modules(synthetic_samples: int | None) -> dict[str, ModuleType]:
    """All modules by their full names."""
    own_keras = _like("tensorflow.keras", keras)
    result = {"tensorflow.keras": own_keras}
    for name in _OF_KERAS:
        part = getattr(keras, name, None)
        if part is not None:
            result[f"tensorflow.keras.{name}"] = part
    if synthetic_samples is not None:
        result["tensorflow.keras.datasets"] = generated_datasets(synthetic_samples)
    for path, part in list(result.items())[1:]:
        setattr(own_keras, path.rpartition(".")[2], part)
    own_keras.__dict__["ipu"] = ipu
    python = _StandIn("tensorflow.python")
    python.__dict__.update(ipu=ipu, __path__=[])
    result["tensorflow.python"] = python
    result["tensorflow.python.ipu"] = ipu
    for name, part in (
        ("config", config),
        ("ipu_strategy", strategy),
        ("utils", ipu.utils),
        ("enums", enums),
        ("ipu_infeed_queue", ipu.ipu_infeed_queue),
        ("ipu_outfeed_queue", ipu.ipu_outfeed_queue),
        ("pipelining_ops", ipu.pipelining_ops),
    ):
        result[f"tensorflow.python.ipu.{name}"] = part  # pyright: ignore[reportArgumentType]
    result["tensorflow"] = _top(own_keras, python)
    return result


def _like(name: str, module: ModuleType) -> ModuleType:
    """A module with everything public of another."""
    result = _StandIn(name)
    public = {n: value for n, value in vars(module).items() if not n.startswith("_")}
    result.__dict__.update(public, __path__=[])
    return result


def _top(own_keras: ModuleType, python: ModuleType) -> ModuleType:
    top = _StandIn("tensorflow")
    data = _StandIn("tensorflow.data")
    data.__dict__.update(Dataset=Dataset, AUTOTUNE=-1)
    operations = {n: getattr(keras.ops, _OTHER_NAMES.get(n, n)) for n in _OPERATIONS}
    operations |= {n: getattr(keras.ops, own) for n, own in _OTHER_NAMES.items()}
    top.__dict__.update(
        {name: name for name in _TYPES},
        **operations,
        keras=own_keras,
        optimizers=keras.optimizers,
        losses=keras.losses,
        metrics=keras.metrics,
        python=python,
        data=data,
        constant=np.asarray,
        function=function,
        GradientTape=GradientTape,
        range=loop_range,
        convert_to_tensor=keras.ops.convert_to_tensor,
        __version__="2.6.3",
        __path__=[],
    )
    return top
