"""Softmax and its logarithm along the innermost dimension, with gradients.

There is no softmax vertex: rows are reduced (maximum, sum of exponentials) and mapped, as PopLibs
does. Sums are float; what follows them is computed in float and rounded once.
"""

from collections.abc import Iterator

import numpy as np

from tremula.base.types import FLOAT, HALF, Type
from tremula.poplar.graph import Graph
from tremula.poplar.programs import Copy, Sequence
from tremula.poplar.tensors.tensor import Tensor
from tremula.poplibs import popops
from tremula.poplibs.popnn.checks import check_float, check_rank, check_same_shape
from tremula.poplibs.popops.elementwise.codelets import element_codelet
from tremula.poplibs.popops.elementwise.expr import Cast, Expr, _1, _2, exp, log
from tremula.poplibs.popops.reduction.codelets import reduce_vertex
from tremula.poplibs.poputil import replayed
from tremula.poplibs.registry import ErrorCase, Op, Sample, register

SOFTMAX_SCALING = 16384.0  # SOFTMAX_SCALED of halves: keeps small probabilities above underflow


@replayed
def softmax(
    graph: Graph, x: Tensor, sequence: Sequence, name: str = "softmax",
    *, is_stable: bool = True, is_scaled: bool = False,
) -> Tensor:  # fmt: skip
    """exp(x) / Σ exp(x) along the innermost dimension.

    `is_stable` subtracts the row's maximum first. `is_scaled` multiplies the result by
    `softmax_scaling(type)`, which is 1 for floats.
    """
    _check("softmax", x)
    if x.n_elems == 0:
        return graph.clone(x, name)
    powers = _exponentials(graph, x, sequence, name, is_stable)
    total = popops.reduce(
        graph, powers, [x.rank - 1], "ADD", sequence, f"{name}/sum", out_type=FLOAT
    )
    scale = softmax_scaling(x.type) if is_scaled else 1.0
    factor = popops.map(graph, scale / _1, [total], sequence, f"{name}/inverse")
    result = _rounded(_wide(_1, x.type) * _2, x.type)
    popops.map_in_place(graph, result, [powers, _as_column(factor)], sequence, f"{name}/scale")
    return powers


def softmax_in_place(
    graph: Graph, x: Tensor, sequence: Sequence, name: str = "softmax",
    *, is_stable: bool = True, is_scaled: bool = False,
) -> None:  # fmt: skip
    """Softmax, in place."""
    out = softmax(graph, x, sequence, name, is_stable=is_stable, is_scaled=is_scaled)
    sequence.add(Copy(out, x))


def softmax_scaling(type: Type) -> float:
    """The factor of SOFTMAX_SCALED."""
    return SOFTMAX_SCALING if type is HALF else 1.0


@replayed
def log_softmax(graph: Graph, x: Tensor, sequence: Sequence, name: str = "log_softmax") -> Tensor:
    """The logarithm of softmax: x - max - log Σ exp(x - max), along the innermost dimension."""
    _check("log_softmax", x)
    if x.n_elems == 0:
        return graph.clone(x, name)
    last = x.rank - 1
    largest = popops.reduce(graph, x, [last], "MAX", sequence, f"{name}/max")
    out = popops.map(graph, _1 - _2, [x, _as_column(largest)], sequence, f"{name}/shift")
    powers = popops.map(graph, exp(_wide(_1, x.type)), [out], sequence, f"{name}/exp")
    total = popops.reduce(graph, powers, [last], "ADD", sequence, f"{name}/sum")
    shifted = _rounded(_wide(_1, x.type) - log(_2), x.type)
    popops.map_in_place(graph, shifted, [out, _as_column(total)], sequence, f"{name}/log")
    return out


def log_softmax_in_place(
    graph: Graph, x: Tensor, sequence: Sequence, name: str = "log_softmax"
) -> None:
    """log_softmax, in place."""
    sequence.add(Copy(log_softmax(graph, x, sequence, name), x))


@replayed
def softmax_input_gradient(
    graph: Graph, y: Tensor, out_gradient: Tensor, sequence: Sequence,
    name: str = "softmax_gradient", *, is_scaled: bool = False,
) -> Tensor:  # fmt: skip
    """The input's gradient, y · (g - Σ g·y), from the softmax y and its gradient g."""
    _check("softmax_input_gradient", y)
    check_same_shape("softmax_input_gradient", y, out_gradient)
    if y.n_elems == 0:
        return graph.clone(y, name)
    both = [y, out_gradient]
    products = popops.map(
        graph, _wide(_1, y.type) * _wide(_2, y.type), both, sequence, f"{name}/product"
    )
    scale = 1.0 / softmax_scaling(y.type) if is_scaled else 1.0
    total = popops.reduce(
        graph, products, [y.rank - 1], "ADD", sequence, f"{name}/sum", scale=scale
    )
    change = popops.map(
        graph, _wide(_1, y.type) - _2, [out_gradient, _as_column(total)], sequence,
        f"{name}/shift",
    )  # fmt: skip
    result = _rounded(_wide(_1, y.type) * _2, y.type)
    return popops.map(graph, result, [y, change], sequence, name)


@replayed
def log_softmax_input_gradient(
    graph: Graph, y: Tensor, out_gradient: Tensor, sequence: Sequence,
    name: str = "log_softmax_gradient",
) -> Tensor:  # fmt: skip
    """The input's gradient, g - exp(y) · Σ g, from the log-softmax y and its gradient g."""
    _check("log_softmax_input_gradient", y)
    check_same_shape("log_softmax_input_gradient", y, out_gradient)
    if y.n_elems == 0:
        return graph.clone(y, name)
    total = popops.reduce(
        graph, out_gradient, [y.rank - 1], "ADD", sequence, f"{name}/sum", out_type=FLOAT
    )
    share = popops.map(
        graph, exp(_wide(_1, y.type)) * _2, [y, _as_column(total)], sequence, f"{name}/share"
    )
    result = _rounded(_wide(_1, y.type) - _2, y.type)
    return popops.map(graph, result, [out_gradient, share], sequence, name)


def _check(op: str, x: Tensor) -> None:
    check_float(op, x)
    check_rank(op, x, 1, "[…, classes]")


def _exponentials(
    graph: Graph, x: Tensor, sequence: Sequence, name: str, is_stable: bool
) -> Tensor:
    if not is_stable:
        return popops.exp(graph, x, sequence, name=f"{name}/exp")
    largest = popops.reduce(graph, x, [x.rank - 1], "MAX", sequence, f"{name}/max")
    return popops.map(graph, exp(_1 - _2), [x, _as_column(largest)], sequence, f"{name}/exp")


def _as_column(row_values: Tensor) -> Tensor:
    """One value per row, shaped to broadcast along it."""
    return row_values.expand([row_values.rank])


def _wide(value: Expr, type: Type) -> Expr:
    return Cast(value, FLOAT) if type is HALF else value


def _rounded(value: Expr, type: Type) -> Expr:
    return Cast(value, HALF) if type is HALF else value


# -- registry ----------------------------------------------------------------------------------


def _softmax_reference(
    x: np.ndarray, *, is_stable: bool = True, is_scaled: bool = False
) -> np.ndarray:
    wide = x.astype(np.float64)
    largest = wide.max(axis=-1, keepdims=True, initial=-np.inf) if is_stable else 0
    powers = np.exp(wide - largest)
    scale = SOFTMAX_SCALING if is_scaled and x.dtype == np.float16 else 1.0
    return (scale * powers / powers.sum(axis=-1, keepdims=True)).astype(x.dtype)


def _log_softmax_reference(x: np.ndarray) -> np.ndarray:
    wide = x.astype(np.float64)
    shifted = wide - wide.max(axis=-1, keepdims=True, initial=-np.inf)
    return (shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))).astype(x.dtype)


def _gradient_reference(
    y: np.ndarray, gradient: np.ndarray, *, is_scaled: bool = False
) -> np.ndarray:
    wide, g = y.astype(np.float64), gradient.astype(np.float64)
    scale = SOFTMAX_SCALING if is_scaled and y.dtype == np.float16 else 1.0
    total = (wide * g).sum(axis=-1, keepdims=True) / scale
    return (wide * (g - total)).astype(y.dtype)


def _log_gradient_reference(y: np.ndarray, gradient: np.ndarray) -> np.ndarray:
    wide, g = y.astype(np.float64), gradient.astype(np.float64)
    return (g - np.exp(wide) * g.sum(axis=-1, keepdims=True)).astype(y.dtype)


_SHAPES = ((7, 10), (1, 1), (33,), (2, 3, 5), (0, 4))


def _samples(element: Type, rng: np.random.Generator) -> Iterator[Sample]:
    for shape in _SHAPES:
        yield Sample((rng.normal(0, 2, shape).astype(element.dtype),))


def _softmax_samples(element: Type, rng: np.random.Generator) -> Iterator[Sample]:
    yield from _samples(element, rng)
    large = (rng.normal(0, 1, (3, 17)) + 1000).astype(element.dtype)
    yield Sample((large,), {"is_scaled": True})
    yield Sample((rng.normal(0, 1, (5, 9)).astype(element.dtype),), {"is_stable": False})


def _one_sample(element: Type, rng: np.random.Generator) -> Iterator[Sample]:
    yield Sample((rng.normal(0, 2, (3, 11)).astype(element.dtype),))


def _gradient_samples(element: Type, rng: np.random.Generator) -> Iterator[Sample]:
    for sample in _samples(element, rng):
        y = _softmax_reference(sample.inputs[0])
        yield Sample((y, rng.normal(0, 1, y.shape).astype(element.dtype)))


def _log_gradient_samples(element: Type, rng: np.random.Generator) -> Iterator[Sample]:
    for sample in _samples(element, rng):
        y = _log_softmax_reference(sample.inputs[0])
        yield Sample((y, rng.normal(0, 1, y.shape).astype(element.dtype)))


_CODELETS = (element_codelet, reduce_vertex)
_TOLERANCE = {"FLOAT": 2e-5, "HALF": 4e-3}
_INTS = np.ones((2, 3), np.int32)
_FLOATS = np.ones((2, 3), np.float32)

register(Op(
    name="popnn.softmax", function=softmax,
    about="Exponentials divided by their sum, along the innermost dimension.",
    types=(FLOAT, HALF), samples=_softmax_samples, reference=_softmax_reference,
    codelets=_CODELETS, tolerance=_TOLERANCE,
    errors=(
        ErrorCase(Sample((_INTS,)), "softmax does not work on int"),
        ErrorCase(Sample((np.ones((), np.float32),)), "softmax needs a tensor […, classes]"),
    ),
))  # fmt: skip
register(Op(
    name="popnn.log_softmax", function=log_softmax,
    about="The logarithm of softmax, without leaving the range of the type.",
    types=(FLOAT, HALF), samples=_samples, reference=_log_softmax_reference, codelets=_CODELETS,
    tolerance=_TOLERANCE, errors=(ErrorCase(Sample((_INTS,)), "does not work on int"),),
))  # fmt: skip
for _function, _reference in (
    (softmax_in_place, _softmax_reference),
    (log_softmax_in_place, _log_softmax_reference),
):
    register(Op(
        name=f"popnn.{_function.__name__}", function=_function, about=_function.__doc__ or "",
        types=(FLOAT, HALF), samples=_one_sample, reference=_reference, codelets=_CODELETS,
        tolerance=_TOLERANCE, is_in_place=True,
    ))  # fmt: skip
register(Op(
    name="popnn.softmax_input_gradient", function=softmax_input_gradient,
    about="The gradient of softmax's input from its output and that one's gradient.",
    types=(FLOAT, HALF), samples=_gradient_samples, reference=_gradient_reference,
    codelets=_CODELETS, tolerance=_TOLERANCE,
    errors=(ErrorCase(Sample((_FLOATS, _FLOATS[:1])), "must have one shape and type"),),
))  # fmt: skip
register(Op(
    name="popnn.log_softmax_input_gradient", function=log_softmax_input_gradient,
    about="The gradient of log_softmax's input from its output and that one's gradient.",
    types=(FLOAT, HALF), samples=_log_gradient_samples, reference=_log_gradient_reference,
    codelets=_CODELETS, tolerance=_TOLERANCE,
    errors=(ErrorCase(Sample((_FLOATS, _FLOATS[:1])), "must have one shape and type"),),
))  # fmt: skip
