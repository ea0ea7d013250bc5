"""Functions of `tensorflow.python.ipu`: operations, scopes, seeds, custom operations."""

import contextlib
import importlib.util
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import keras

from tremula.frontends.keras.addons.layers import RecomputationCheckpoint
from tremula.frontends.keras.config import n_chips_in_force
from tremula.frontends.keras.errors import keras_error
from tremula.frontends.keras.execution import reset_seed
from tremula.frontends.keras.tensorflow.arrays import Value, plain
from tremula.frontends.keras.tensorflow.types import TensorShape, as_dtype, ops
from tremula.ir.recording import active


@dataclass(frozen=True)
class PipelineStageOptions:
    """Options of the libraries for one stage; they change memory and time of a real machine."""

    convolution_options: dict[str, object] = field(default_factory=dict)
    matmul_options: dict[str, object] = field(default_factory=dict)
    slice_options: dict[str, object] = field(default_factory=dict)


def reset_ipu_seed(
    seed: int,
    device: str = "/device:IPU:0",
    cpu_device: str = "cpu",
    experimental_identical_replicas: bool = False,
) -> None:
    """Start the random numbers of models at a seed."""
    del device, cpu_device
    if experimental_identical_replicas:
        raise keras_error("reset_ipu_seed(experimental_identical_replicas=True) is not supported.")
    if not isinstance(seed, int):
        raise TypeError(f"a seed is a whole number; got {seed!r}.")
    reset_seed(seed)


# -- operations ------------------------------------------------------------------------------------


def gelu(x: Value, approximate: bool = True, name: str = "") -> Value:
    """GELU, by its approximation with tanh."""
    del name
    return ops.gelu(plain(x), approximate=approximate)


def swish(x: Value, name: str = "") -> Value:
    del name
    return ops.silu(plain(x))


def softmax(x: Value, stable: bool = False, name: str = "") -> Value:
    """Softmax of the last dimension, which is stable anyway."""
    del stable, name
    return ops.softmax(plain(x), axis=-1)


def hard_sigmoid(x: Value, name: str = "") -> Value:
    del name
    return ops.hard_sigmoid(plain(x))


def dropout(
    x: Value,
    rate: float = 0.5,
    noise_shape: Sequence[int] | None = None,
    seed: object = None,
    name: str = "",
    ref: bool = False,
) -> Value:
    """A share of the elements is zero, the others are scaled up."""
    del name, ref
    one = None if seed is None else int(plain(seed).reshape(-1)[0])
    return keras.random.dropout(plain(x), rate, noise_shape=noise_shape, seed=one)


def embedding_lookup(
    params: Value,
    ids: Value,
    name: str = "",
    serialization_factor: int = 1,
    indices_are_sorted: bool = False,
) -> Value:
    """Rows of a table by number."""
    del name, indices_are_sorted
    table = plain(params)
    if serialization_factor < 1 or table.shape[0] % serialization_factor:
        raise keras_error(
            f"serialization_factor = {serialization_factor} does not divide the"
            f" {table.shape[0]} rows of the table."
        )
    return ops.take(table, plain(ids), axis=0)


def serialized_matmul(
    a: Value,
    b: Value,
    serialization_factor: int,
    serialization_dimension: str,
    transpose_a: bool = False,
    transpose_b: bool = False,
    name: str = "",
) -> Value:
    """A product of matrices as several smaller ones."""
    del name
    a, b = plain(a), plain(b)
    a = ops.swapaxes(a, -1, -2) if transpose_a else a
    b = ops.swapaxes(b, -1, -2) if transpose_b else b
    sizes = {"a_columns": a.shape[-2], "a_rows_b_columns": a.shape[-1], "b_rows": b.shape[-1]}
    if serialization_dimension not in sizes:
        raise ValueError(
            f"serialization_dimension must be one of {', '.join(sizes)}; got"
            f" {serialization_dimension!r}."
        )
    n = int(serialization_factor)
    if n < 1 or sizes[serialization_dimension] is None or sizes[serialization_dimension] % n:
        raise ValueError(
            f"serialization_factor = {n} does not divide {sizes[serialization_dimension]}, the size"
            f" of {serialization_dimension}."
        )
    if serialization_dimension == "a_columns":
        return ops.concatenate([ops.matmul(p, b) for p in ops.split(a, n, axis=-2)], axis=-2)
    if serialization_dimension == "b_rows":
        return ops.concatenate([ops.matmul(a, p) for p in ops.split(b, n, axis=-1)], axis=-1)
    pairs = zip(ops.split(a, n, axis=-1), ops.split(b, n, axis=-2), strict=True)
    products = [ops.matmul(p, q) for p, q in pairs]
    result = products[0]
    for each in products[1:]:
        result = result + each
    return result


def cross_replica_sum(x: Value, name: str = "") -> Value:
    """The sum over replicas: of a machine with one, the value itself."""
    del name
    if n_chips_in_force() > 1 and active() is not None:
        raise keras_error(
            "cross_replica_sum inside a model is not supported with several replicas.",
            hint="gradients and metrics of replicas are reduced by the strategy",
        )
    return plain(x)


cross_replica_mean = cross_replica_sum


def assume_equal_across_replicas(tensors: object, inplace: bool = False) -> Any:
    """The tensors themselves."""
    del inplace
    return tensors


def recomputation_checkpoint(tensors: object, name: str = "") -> Any:
    """Values that are saved where others are computed again for the backward pass."""
    del name
    return RecomputationCheckpoint()(tensors)


def outlined_function(
    func: Callable | None = None,
    unique_sharding: bool = False,
    keep_input_layouts: bool | None = None,
    name: str = "",
) -> Callable:
    """The function itself: what repeats in a program becomes a function by the compiler."""
    del unique_sharding, keep_input_layouts, name
    return outlined_function if func is None else func


def multi_conv(func: Callable | None = None, options: object = None) -> Callable:
    """The function itself: its convolutions run one after another."""
    del options
    return multi_conv if func is None else func


@contextlib.contextmanager
def scope(*_args: object, **_kwargs: object) -> Iterator[None]:
    """A block of operations on a device: strategies say where models run."""
    yield


# -- custom operations -----------------------------------------------------------------------------


def precompiled_user_op(
    inputs: Sequence[Value],
    library_path: str,
    gp_path: str = "",
    outs: dict[str, Any] | None = None,
    name: str = "UserOp",
    op_name: str = "Build",
    separate_gradients: bool = False,
    inputs_with_gradients: Sequence[int] | None = None,
    attributes: str | None = None,
    gradient_attributes: str | None = None,
) -> list[Value]:
    """A custom operation: the function `op_name` of a Python file next to the library.

    A library that was compiled for an IPU cannot run here. A file of its name with the suffix `.py`
    holds the operation in Keras's or TensorFlow's functions, which also gives its gradient.
    """
    del gp_path, name, separate_gradients, inputs_with_gradients, gradient_attributes
    stand_in = Path(library_path).with_suffix(".py")
    if not stand_in.is_file():
        raise keras_error(
            f"{library_path} is compiled for an IPU. Tremula needs the operation in Python, in"
            f" {stand_in}:",
            hint=f"def {op_name}(inputs, attributes=None): return [outputs in Keras's functions]",
        )
    spec = importlib.util.spec_from_file_location(f"tremula_custom_{stand_in.stem}", stand_in)
    assert spec is not None, "a Python file has a spec"
    assert spec.loader is not None, "a Python file has a loader"
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    function = getattr(module, op_name, None)
    if function is None:
        raise keras_error(f"{stand_in} has no function {op_name!r}.")
    results = function([plain(each) for each in inputs], attributes=attributes)
    results = list(results) if isinstance(results, list | tuple) else [results]
    _check_outputs(results, outs, str(stand_in))
    return results


def _check_outputs(results: Sequence[Value], outs: dict[str, Any] | None, where: str) -> None:
    if outs is None:
        return
    shapes, types = outs.get("output_shapes", ()), outs.get("output_types", ())
    if len(shapes) != len(results):
        raise keras_error(f"{where} gives {len(results)} outputs; {len(shapes)} are declared.")
    for result, shape, kind in zip(results, shapes, types, strict=True):
        actual = TensorShape(ops.shape(result))
        if not actual.is_compatible_with(TensorShape(shape)) or as_dtype(result.dtype) != kind:
            raise keras_error(
                f"{where} gives {tuple(actual)} {as_dtype(result.dtype)!r}; declared are"
                f" {tuple(shape)} {as_dtype(kind)!r}."
            )
