"""What `tensorflow.keras` of TensorFlow 2 took, and Keras 3 does not: arguments, names of files.

Classes here are Keras's with the older arguments; models and layers get the older forms of a few
methods while scripts import `tensorflow` from here.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, SupportsIndex

import keras
from keras.src.backend import compute_output_spec
from keras.src.optimizers.base_optimizer import BaseOptimizer
from keras.src.utils.python_utils import default
from torch import Tensor

from tremula.base.libraries.patching import replaced_for_all
from tremula.frontends.keras.errors import keras_error
from tremula.frontends.keras.options import TEST, TRAIN
from tremula.frontends.keras.scaling import ConstantScale
from tremula.frontends.keras.step import has_custom_step
from tremula.frontends.keras.tensorflow.tensors import replacements
from tremula.frontends.keras.tensorflow.types import as_dtype

_WEIGHTS, _MODEL = ".weights.h5", ".keras"
_IN_FOLDER = "model.keras"  # of a model that was saved as a folder
FilePath = str | os.PathLike[str]


def Input(
    shape: int | Sequence[int | None] | None = None,
    batch_size: int | None = None,
    name: str | None = None,
    dtype: object = None,
    sparse: bool = False,
    tensor: keras.KerasTensor | None = None,
    ragged: bool = False,
    type_spec: object = None,
    batch_input_shape: Sequence[int | None] | None = None,
    batch_shape: Sequence[int | None] | None = None,
) -> keras.KerasTensor | list[keras.KerasTensor]:
    """`tf.keras.Input`: a shape may be one number, and arguments are in TensorFlow's order."""
    if type_spec is not None or ragged:
        raise keras_error("Input takes neither type_spec nor ragged here.", hint="give a shape")
    shape = (shape,) if isinstance(shape, int) else shape
    return keras.Input(
        shape=None if shape is None else tuple(shape),
        batch_size=batch_size,
        dtype=None if dtype is None else str(as_dtype(dtype)),
        sparse=sparse or None,
        batch_shape=batch_shape or batch_input_shape,
        name=name,
        tensor=tensor,
    )


# -- optimisers ------------------------------------------------------------------------------------


class OlderArguments:
    """`lr`, `decay` and functions of gradients, in front of an optimiser's class."""

    def __init__(self, *args: object, **kwargs: Any):
        transformers = list(kwargs.pop("gradient_transformers", None) or ())
        if kwargs.pop("gradient_aggregator", None) is not None:
            raise keras_error(
                "gradient_aggregator is not supported: a strategy reduces gradients.",
                hint="use gradient_transformers=[…]",
            )
        if "lr" in kwargs:
            kwargs["learning_rate"] = kwargs.pop("lr")
        decay = kwargs.pop("decay", 0.0)
        super().__init__(*args, **kwargs)
        self.gradient_transformers = transformers
        if decay:
            rate = float(self._learning_rate.numpy())  # pyright: ignore[reportAttributeAccessIssue]
            self.learning_rate = keras.optimizers.schedules.InverseTimeDecay(rate, 1, decay)

    def apply(
        self,
        grads: Sequence[Tensor | None],
        trainable_variables: Sequence[keras.Variable] | None = None,
    ) -> object:
        """The update, by the gradients that the functions make of these."""
        pairs = list(zip(grads, trainable_variables or (), strict=False))
        for transform in self.gradient_transformers if pairs else ():
            pairs = list(transform(pairs))
        grads = [grad for grad, _ in pairs] if pairs else grads
        return super().apply(grads, trainable_variables)  # pyright: ignore[reportAttributeAccessIssue]

    @property
    def lr(self) -> object:
        """The learning rate."""
        return self.learning_rate

    @lr.setter
    def lr(self, value: float) -> None:
        self.learning_rate = value


def _with_older_arguments(kind: type[BaseOptimizer]) -> type[BaseOptimizer]:
    return type(kind.__name__, (OlderArguments, kind), {"__module__": __name__})


SGD, Adam, AdamW, Adamax, Nadam, RMSprop, Adagrad, Adadelta, Ftrl = (
    _with_older_arguments(getattr(keras.optimizers, name))
    for name in "SGD Adam AdamW Adamax Nadam RMSprop Adagrad Adadelta Ftrl".split()
)


class LossScaleOptimizer(keras.optimizers.LossScaleOptimizer):
    """`LossScaleOptimizer`: the scale changes, or stays with dynamic=False."""

    def __init__(
        self,
        inner_optimizer: BaseOptimizer,
        dynamic: bool = True,
        initial_scale: float | None = None,
        dynamic_growth_steps: int | None = None,
        **kwargs: Any,
    ):
        if not isinstance(dynamic, bool):
            raise TypeError(f"dynamic must be True or False; got {dynamic!r}.")
        if not dynamic and initial_scale is None:
            raise ValueError("initial_scale is needed if dynamic is False.")
        if not dynamic and dynamic_growth_steps is not None:
            raise ValueError("dynamic_growth_steps is not used if dynamic is False.")
        super().__init__(
            inner_optimizer,
            initial_scale=2.0**15 if initial_scale is None else float(initial_scale),
            dynamic_growth_steps=dynamic_growth_steps or 2000,
            **kwargs,
        )
        self.dynamic = dynamic
        self.scaling = None if dynamic else ConstantScale()

    @property
    def loss_scale(self) -> Any:
        """The scale of the loss."""
        return self.dynamic_scale if self.built else self.initial_scale

    def get_scaled_loss(self, loss: Tensor) -> Tensor:
        return loss * self.loss_scale

    def get_unscaled_gradients(self, grads: Sequence[Tensor | None]) -> list[Tensor | None]:
        return [None if grad is None else grad / self.loss_scale for grad in grads]


class Policy(keras.mixed_precision.Policy):
    """A policy of types by its name, which may be a type of TensorFlow."""

    def __init__(self, name: object):
        super().__init__(str(name))


def set_global_policy(policy: object) -> None:
    """Compute new layers in these types."""
    keras.mixed_precision.set_global_policy(
        policy if hasattr(policy, "name") and not isinstance(policy, str) else str(policy)
    )


# -- files -----------------------------------------------------------------------------------------


class ModelCheckpoint(keras.callbacks.ModelCheckpoint):
    """Saves to paths without a suffix, too: weights to `….weights.h5`, models to `….keras`."""

    def __init__(self, filepath: FilePath, *args: object, **kwargs: Any):
        names = ("monitor", "verbose", "save_best_only", "save_weights_only", "mode", "save_freq")
        kwargs = {**dict(zip(names, args, strict=False)), **kwargs}
        kwargs.pop("options", None)
        kwargs.pop("period", None) if kwargs.get("period") == 1 else None
        suffix = _WEIGHTS if kwargs.get("save_weights_only") else _MODEL
        super().__init__(with_suffix(os.fspath(filepath), suffix), **kwargs)


class TensorBoard(keras.callbacks.TensorBoard):
    """Keras's, without a drawing of the model, which is TensorFlow's own format."""

    def _write_keras_model_summary(self) -> None:
        """Nothing: `model.summary()` prints it."""


def with_suffix(path: str, suffix: str) -> str:
    """A path as Keras 3 takes it."""
    known = (suffix,) if suffix == _WEIGHTS else (_MODEL, ".h5", ".hdf5")
    if path.endswith(known):
        return path
    for ending in (".h5", ".hdf5", ".ckpt", ".tf"):
        path = path.removesuffix(ending)
    return path + suffix


class Status:
    """What loading weights returns: everything was loaded."""

    def expect_partial(self) -> "Status":
        return self

    def assert_consumed(self) -> "Status":
        return self

    assert_existing_objects_matched = assert_consumed


def _save_weights(plain: Callable) -> Callable:
    def save_weights(
        self: keras.Model, filepath: FilePath, overwrite: bool = True, **kwargs: object
    ) -> None:
        kwargs.pop("save_format", None)
        kwargs.pop("options", None)
        path = with_suffix(os.fspath(filepath), _WEIGHTS)
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        plain(self, path, overwrite=overwrite, **kwargs)

    return save_weights


def _load_weights(plain: Callable) -> Callable:
    def load_weights(self: keras.Model, filepath: FilePath, **kwargs: object) -> Status:
        path = os.fspath(filepath)
        written = with_suffix(path, _WEIGHTS)
        plain(self, written if os.path.exists(written) else path, **kwargs)
        return Status()

    return load_weights


def _save(plain: Callable) -> Callable:
    def save(
        self: keras.Model, filepath: FilePath, overwrite: bool = True, **kwargs: object
    ) -> None:
        for name in ("save_format", "include_optimizer", "signatures", "options", "save_traces"):
            kwargs.pop(name, None)
        path = os.fspath(filepath)
        if not path.endswith((_MODEL, ".h5", ".hdf5")):
            Path(path).mkdir(parents=True, exist_ok=True)
            path = os.path.join(path, _IN_FOLDER)
        plain(self, path, overwrite=overwrite, **kwargs)

    return save


def load_model(
    filepath: FilePath,
    custom_objects: dict[str, object] | None = None,
    compile: bool = True,
    options: object = None,
    **kwargs: Any,
) -> object:
    """A model from its file, or from the folder it was saved as."""
    del options
    path = os.fspath(filepath)
    inside = os.path.join(path, _IN_FOLDER)
    if os.path.isdir(path) and not os.path.exists(inside):
        raise keras_error(
            f"{path!r} holds a SavedModel of TensorFlow, which only TensorFlow reads.",
            hint="save it as .h5 or .keras where it was trained",
        )
    path = inside if os.path.isdir(path) else path
    return keras.models.load_model(path, custom_objects=custom_objects, compile=compile, **kwargs)


def _model_init(plain: Callable) -> Callable:
    def __init__(self: keras.Model, *args: object, **kwargs: object) -> None:
        # Scripts write super(Own, self).__init__(self), and TensorFlow took it.
        plain(self, *(() if args == (self,) else args), **kwargs)

    return __init__


def _model_build(plain: Callable) -> Callable:
    @default  # a call builds a model from its arguments, as Keras does
    def build(self: keras.Model, input_shape: object = None) -> None:
        """Make the weights of a model with a `call` in Python: run it on symbolic inputs."""
        if input_shape is None:
            plain(self)
            return
        compute_output_spec(self.call, _symbols(input_shape))
        self.built = True

    return build


def _symbols(shapes: Any) -> Any:
    """Symbolic inputs of a shape, or of a dictionary or list of shapes."""
    if isinstance(shapes, Mapping):
        return {name: _symbols(shape) for name, shape in shapes.items()}
    if any(not (n is None or isinstance(n, SupportsIndex)) for n in shapes):
        return [_symbols(shape) for shape in shapes]
    shape = tuple(None if n is None else int(n) for n in shapes)
    return keras.KerasTensor(shape, dtype=keras.config.floatx())


def _get_logs(plain: Callable) -> Callable:
    def _get_metrics_result_or_logs(self: keras.Model, logs: object) -> object:
        """What a step written by hand returned last, as TensorFlow 2 reports it."""
        has_own = has_custom_step(self, TRAIN) or has_custom_step(self, TEST)
        return logs if has_own and isinstance(logs, dict) else plain(self, logs)

    return _get_metrics_result_or_logs


def _add_weight(plain: Callable) -> Callable:
    def add_weight(self: keras.layers.Layer, *args: object, **kwargs: Any) -> keras.Variable:
        if args and isinstance(args[0], str):  # TensorFlow's first argument is the name
            names = ("name", "shape", "dtype", "initializer", "regularizer", "trainable")
            kwargs = {**dict(zip(names, args, strict=False)), **kwargs}
            args = ()
        for name in ("synchronization", "partitioner", "use_resource", "experimental_autocast"):
            kwargs.pop(name, None)  # of devices that a variable of Keras 3 does not have
        if kwargs.get("aggregation") is not None and not isinstance(kwargs["aggregation"], str):
            kwargs.pop("aggregation")
        if kwargs.get("dtype") is not None:
            kwargs["dtype"] = str(as_dtype(kwargs["dtype"]))
        if kwargs.get("shape") is not None:
            kwargs["shape"] = tuple(kwargs["shape"])
        return plain(self, *args, **kwargs)

    return add_weight


_installed = ExitStack()
_state = {"is_installed": False}


def uninstall() -> None:
    """Give models, layers and tensors their own methods back."""
    _installed.close()
    _state["is_installed"] = False


def install() -> None:
    """Give models, layers and tensors TensorFlow's forms of their methods, once in a process."""
    if _state["is_installed"]:
        return
    _state["is_installed"] = True
    for owner, name, wrap in (
        (keras.Model, "save_weights", _save_weights),
        (keras.Model, "load_weights", _load_weights),
        (keras.Model, "__init__", _model_init),
        (keras.Model, "build", _model_build),
        (keras.Model, "save", _save),
        (keras.Model, "_get_metrics_result_or_logs", _get_logs),
        (keras.layers.Layer, "add_weight", _add_weight),
    ):
        _installed.enter_context(replaced_for_all(owner, name, wrap(getattr(owner, name))))
    for owner, name, method in replacements():
        _installed.enter_context(replaced_for_all(owner, name, method))
