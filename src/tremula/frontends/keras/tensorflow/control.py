"""TensorFlow's conditions, loops over tensors, contexts, checks and decorators."""

import contextlib
import functools
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import keras
import torch

from tremula.frontends.keras.errors import keras_error
from tremula.frontends.keras.tensorflow.arrays import Value, is_concrete, plain
from tremula.frontends.keras.tensorflow.types import TensorShape, ops
from tremula.ir.recording import active

Result = TypeVar("Result")
Function = TypeVar("Function", bound=Callable)


def cond(
    pred: Value,
    true_fn: Callable[[], Result],
    false_fn: Callable[[], Result],
    name: str = "",
) -> Result:
    """The result of one of two functions; inside compiled steps both run, and one is chosen."""
    del name
    if isinstance(pred, bool | int):
        return true_fn() if pred else false_fn()
    return ops.cond(plain(pred), true_fn, false_fn)


def while_loop(
    cond: Callable[..., object],
    body: Callable[..., object],
    loop_vars: Sequence[Value],
    shape_invariants: object = None,
    parallel_iterations: int = 10,
    back_prop: bool = True,
    swap_memory: bool = False,
    maximum_iterations: int | None = None,
    name: str = "",
) -> Sequence[Value]:
    """Repeat a function while a condition of its results holds: outside compiled steps."""
    del shape_invariants, parallel_iterations, back_prop, swap_memory, name
    if active() is not None:
        raise keras_error(
            "tf.while_loop in a compiled step: how often it goes round is not known.",
            hint="write `for _ in range(n):` with a number, or use tf.cond on each round",
        )
    values = tuple(loop_vars)
    n_rounds = 0
    while (maximum_iterations is None or n_rounds < maximum_iterations) and bool(cond(*values)):
        result = body(*values)
        values = tuple(result) if isinstance(result, list | tuple) else (result,)
        n_rounds += 1
    return type(loop_vars)(values) if isinstance(loop_vars, list | tuple) else values


def map_fn(
    fn: Callable[..., object],
    elems: object,
    dtype: object = None,
    parallel_iterations: int | None = None,
    back_prop: bool = True,
    swap_memory: bool = False,
    infer_shape: bool = True,
    name: str = "",
    fn_output_signature: object = None,
) -> object:
    """A function of every row, one after another; results are stacked."""
    del parallel_iterations, back_prop, swap_memory, infer_shape, name, dtype, fn_output_signature
    return _of_rows(fn, elems)


def vectorized_map(
    fn: Callable[..., object],
    elems: object,
    fallback_to_while_loop: bool = True,
    warn: bool = True,
) -> object:
    """A function of every row; results are stacked."""
    del fallback_to_while_loop, warn
    return _of_rows(fn, elems)


def _of_rows(fn: Callable[..., object], elems: object) -> object:
    tensors = keras.tree.map_structure(plain, elems)
    n_rows = {int(each.shape[0]) for each in keras.tree.flatten(tensors)}
    if len(n_rows) != 1:
        raise ValueError(f"elements must have equally many rows; got {sorted(n_rows)}.")
    rows = [fn(keras.tree.map_structure(lambda t, i=i: t[i], tensors)) for i in range(n_rows.pop())]
    return keras.tree.map_structure(lambda *parts: ops.stack(list(map(plain, parts))), *rows)


def custom_gradient(f: Callable[..., object] | None = None) -> Callable[..., object]:
    """A function that returns its value and the function of its gradient."""
    if f is None:
        return custom_gradient

    @functools.wraps(f)
    def call(*args: Value, **kwargs: object) -> object:
        return _CustomGradient.apply(functools.partial(f, **kwargs), *map(plain, args))

    return call


class _CustomGradient(torch.autograd.Function):
    """A function of tensors whose gradient is another function."""

    @staticmethod
    def forward(ctx: Any, function: Callable[..., tuple], *args: Value) -> object:
        result, ctx.gradient = function(*args)
        ctx.n_args = len(args)
        return tuple(result) if isinstance(result, list | tuple) else result

    @staticmethod
    def backward(ctx: Any, *upstream: Value) -> tuple:
        result = ctx.gradient(*upstream)
        grads = tuple(result) if isinstance(result, list | tuple) else (result,)
        if len(grads) != ctx.n_args:
            raise keras_error(
                f"the gradient of a tf.custom_gradient returned {len(grads)} values for"
                f" {ctx.n_args} arguments."
            )
        return (None, *grads)


def recompute_grad(f: Function) -> Function:
    """The function itself: what is computed again is a setting of the machine here."""
    return f


# -- contexts --------------------------------------------------------------------------------------


class name_scope(contextlib.ContextDecorator):
    """A block of operations with a name, which programs of tiles get from layers instead."""

    def __init__(self, name: str):
        self.name = name

    def __enter__(self) -> str:
        return self.name

    def __exit__(self, *_error: object) -> None:
        pass


@contextlib.contextmanager
def control_dependencies(control_inputs: object) -> Iterator[None]:
    """Operations inside follow those given: code runs in its order here anyway."""
    del control_inputs
    yield


@contextlib.contextmanager
def device(device_name: object) -> Iterator[None]:
    """Operations inside run where their strategy says."""
    del device_name
    yield


@contextlib.contextmanager
def init_scope() -> Iterator[None]:
    """Operations inside run at once, as all do outside compiled steps."""
    yield


def group(*inputs: object, **_kwargs: object) -> None:
    """Operations that were computed already."""
    del inputs


def no_op(name: str = "") -> None:
    """Nothing."""
    del name


def get_logger() -> logging.Logger:
    """The logger of the name `tensorflow`."""
    return logging.getLogger("tensorflow")


def do_not_convert(func: Callable | None = None) -> Callable:
    """The function itself: no function is converted here."""
    return do_not_convert if func is None else func


def print_(*inputs: object, end: str = "\n", **_kwargs: object) -> None:
    """`tf.print`, outside compiled steps."""
    if active() is not None:
        raise keras_error(
            "tf.print in a compiled step: its values are on the device.",
            hint="enqueue them in an IPUOutfeedQueue, or return them",
        )
    print(*inputs, end=end)  # noqa: T201 - that is what it does


def py_function(
    func: Callable[..., Result], inp: Sequence[Value], Tout: object, name: str = ""
) -> Result:
    """A function of Python, called at once."""
    del Tout, name
    if active() is not None:
        raise keras_error("tf.py_function cannot run on a device.", hint="use it in the data set")
    return func(*inp)


numpy_function = py_function


# -- checks: of known values; those of a device are not read back, as in compiled TensorFlow -------


def _checked(is_right: Callable[..., object], says: str) -> Callable[..., None]:
    def check(x: Value, y: Value = 0, message: str = "", **_details: object) -> None:
        values = [each for each in (x, y) if not isinstance(each, int | float)]
        if active() is not None and any(isinstance(each, torch.Tensor) for each in values):
            return
        a, b = plain(x), plain(y)
        if is_concrete(a) and is_concrete(b) and not bool(ops.all(is_right(a, b))):
            raise InvalidArgumentError(f"{message} {says}: x = {a}, y = {b}".strip())

    return check


class OpError(Exception):
    """An operation that failed, by TensorFlow's names."""


class InvalidArgumentError(OpError, ValueError):
    """An argument has the wrong value."""


class OutOfRangeError(OpError, IndexError):
    """An iterator is at its end."""


class ResourceExhaustedError(OpError, MemoryError):
    """There is not enough memory."""


class NotFoundError(OpError, FileNotFoundError):
    """A file does not exist."""


assert_equal = _checked(ops.equal, "x must equal y")
assert_less = _checked(ops.less, "x must be less than y")
assert_less_equal = _checked(ops.less_equal, "x must not be greater than y")
assert_greater = _checked(ops.greater, "x must be greater than y")
assert_greater_equal = _checked(ops.greater_equal, "x must not be less than y")
assert_non_negative = _checked(ops.greater_equal, "x must not be negative")
assert_positive = _checked(ops.greater, "x must be positive")


def assert_rank(x: Value, rank: int, message: str = "", **_details: object) -> None:
    """Check the number of dimensions."""
    if len(ops.shape(plain(x))) != rank:
        raise InvalidArgumentError(
            f"{message} x must have {rank} dimensions; it has {len(ops.shape(plain(x)))}".strip()
        )


def assert_shapes(
    shapes: Mapping[Value, Sequence] | Iterable[tuple[Value, Sequence]], **_details: object
) -> None:
    """Check shapes of tensors; sizes that are letters must agree."""
    sizes: dict[str, int] = {}
    for tensor, expected in shapes.items() if isinstance(shapes, Mapping) else shapes:
        actual = TensorShape(ops.shape(plain(tensor)))
        if len(actual) != len(expected):
            raise InvalidArgumentError(f"expected the shape {expected}; got {tuple(actual)}")
        for size, want in zip(actual, expected, strict=True):
            known = sizes.setdefault(want, size) if isinstance(want, str) else want
            if None not in (size, known) and size != known:
                raise InvalidArgumentError(f"expected the shape {expected}; got {tuple(actual)}")


def check_numerics(tensor: Value, message: str, name: str = "") -> Value:
    """The tensor, if it has no NaN and no infinity."""
    del name
    values = plain(tensor)
    if active() is None and is_concrete(values) and not bool(ops.all(ops.isfinite(values))):
        raise InvalidArgumentError(f"{message}: the tensor has NaN or infinities")
    return tensor
