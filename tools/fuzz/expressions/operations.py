"""Operations of expressions, each written once over an algebra that a front end provides.

A value keeps its samples apart: dimension 0 counts them, and no operation mixes them, so that any
split into micro-batches and replicas computes the same.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from tools.fuzz.case import Case, IllegalCase

Value = Any  # a tensor of a front end
MOST_ELEMENTS = 40  # of a sample
MOST_AXES = 3  # of a value, with samples


class Algebra(Protocol):
    """Primitive operations of a front end; `shape` of a value has the samples first."""

    def shape(self, x: Value) -> tuple[int, ...]: ...
    def constant(self, number: float, like: Value) -> Value: ...
    def add(self, x: Value, y: Value) -> Value: ...
    def sub(self, x: Value, y: Value) -> Value: ...
    def mul(self, x: Value, y: Value) -> Value: ...
    def div(self, x: Value, y: Value) -> Value: ...
    def maximum(self, x: Value, y: Value) -> Value: ...
    def unary(self, name: str, x: Value) -> Value: ...
    def matmul(self, x: Value, y: Value) -> Value: ...
    def reshape(self, x: Value, shape: Sequence[int]) -> Value: ...
    def transpose(self, x: Value, order: Sequence[int]) -> Value: ...
    def reduce(self, name: str, x: Value, axis: int) -> Value: ...
    def softmax(self, x: Value, axis: int) -> Value: ...
    def concat(self, parts: Sequence[Value], axis: int) -> Value: ...
    def slice(self, x: Value, axis: int, begin: int, end: int) -> Value: ...
    def fp8_product(self, x: Value, w: Value, format: str, scale: int) -> Value: ...


UNARY = ("tanh", "relu", "sigmoid", "exp", "log", "sqrt", "sin", "cos", "abs", "neg")
SAFE_UNARY = ("tanh", "relu", "sigmoid", "sin", "cos", "abs", "neg")  # of any number
REDUCTIONS = ("sum", "mean", "max")


@dataclass(frozen=True, slots=True)
class Operation:
    """An operation: how many values it takes, whether it has a weight, and what it computes."""

    n_values: int
    make: Callable[[Algebra, Sequence[Value], Value | None, Case], Value]
    weight: str = ""  # "": none; "vector": one per feature; "matrix": of features × n


def _axis(a: Algebra, x: Value, node: Case) -> int:
    rank = len(a.shape(x))
    if rank < 2:
        raise IllegalCase("a value with features")
    return 1 + node["axis"] % (rank - 1)


def _square(a: Algebra, x: Value) -> Value:
    return a.mul(x, x)


def _plus_one(a: Algebra, x: Value) -> Value:
    return a.add(x, a.constant(1.0, x))


def _swapped(a: Algebra, x: Value) -> Value:
    order = list(range(len(a.shape(x))))
    return a.transpose(x, [*order[:-2], order[-1], order[-2]])


def _attended(a: Algebra, values: Sequence[Value], _: Value | None, node: Case) -> Value:
    (x,) = values
    if len(a.shape(x)) != MOST_AXES:
        raise IllegalCase("rows of features")
    scores = a.softmax(a.matmul(x, _swapped(a, x)), 2)
    return a.matmul(scores, x)


def _folded(a: Algebra, values: Sequence[Value], _: Value | None, node: Case) -> Value:
    (x,) = values
    n_samples, *sizes = a.shape(x)
    n, count = node["n"], 1
    for size in sizes:
        count *= size
    rows = (count // n, n) if n > 0 and count % n == 0 else (count,)
    return a.reshape(x, (n_samples, *rows))


def _reordered(a: Algebra, values: Sequence[Value], _: Value | None, node: Case) -> Value:
    (x,) = values
    return _swapped(a, x) if len(a.shape(x)) == MOST_AXES else x


def _part(a: Algebra, values: Sequence[Value], _: Value | None, node: Case) -> Value:
    (x,), axis = values, _axis(a, values[0], node)
    size = a.shape(x)[axis]
    begin = min(node["n"] - 1, size - 1)
    return a.slice(x, axis, max(begin, 0), size)


def _normed(a: Algebra, values: Sequence[Value], weight: Value | None, node: Case) -> Value:
    """A layer norm, spelled out."""
    (x,), axis = values, len(a.shape(values[0])) - 1
    centred = a.sub(x, a.reduce("mean", x, axis))
    variance = a.reduce("mean", _square(a, centred), axis)
    spread = a.unary("sqrt", a.add(variance, a.constant(0.1, x)))
    return a.mul(a.div(centred, spread), weight)


OPERATIONS: dict[str, Operation] = {
    **{
        name: Operation(1, lambda a, v, w, n, name=name: a.unary(name, v[0])) for name in SAFE_UNARY
    },
    "bell": Operation(1, lambda a, v, w, n: a.unary("exp", a.unary("neg", _square(a, v[0])))),
    "log1": Operation(1, lambda a, v, w, n: a.unary("log", _plus_one(a, _square(a, v[0])))),
    "root1": Operation(1, lambda a, v, w, n: a.unary("sqrt", _plus_one(a, _square(a, v[0])))),
    "ratio": Operation(1, lambda a, v, w, n: a.div(v[0], _plus_one(a, _square(a, v[0])))),
    "add": Operation(2, lambda a, v, w, n: a.add(v[0], v[1])),
    "sub": Operation(2, lambda a, v, w, n: a.sub(v[0], v[1])),
    "mul": Operation(2, lambda a, v, w, n: a.mul(v[0], v[1])),
    "maximum": Operation(2, lambda a, v, w, n: a.maximum(v[0], v[1])),
    "concat": Operation(2, lambda a, v, w, n: a.concat(v, _axis(a, v[0], n))),
    "softmax": Operation(1, lambda a, v, w, n: a.softmax(v[0], _axis(a, v[0], n))),
    **{
        f"less_{name}": Operation(
            1, lambda a, v, w, n, name=name: a.sub(v[0], a.reduce(name, v[0], _axis(a, v[0], n)))
        )
        for name in REDUCTIONS
    },
    "fold": Operation(1, _folded),
    "swap": Operation(1, _reordered),
    "part": Operation(1, _part),
    "attend": Operation(1, _attended),
    "linear": Operation(1, lambda a, v, w, n: a.matmul(v[0], w), "matrix"),
    "bias": Operation(1, lambda a, v, w, n: a.add(v[0], w), "vector"),
    "scale": Operation(1, lambda a, v, w, n: a.mul(v[0], w), "vector"),
    "norm": Operation(1, _normed, "vector"),
    "fp8": Operation(
        1, lambda a, v, w, n: a.fp8_product(v[0], w, ("143", "152")[n["axis"] % 2], n["n"]), "matrix"
    ),
}


def evaluate(case: Case, algebra: Algebra, x: Value, weights: Sequence[Value]) -> Value:
    """The last value of a case's expression."""
    values, rest = [x], list(weights)
    for node in case["nodes"]:
        operation = OPERATIONS[node["op"]]
        if len(node["ins"]) != operation.n_values or any(
            not 0 <= at < len(values) for at in node["ins"]
        ):
            raise IllegalCase("values that exist")
        weight = rest.pop(0) if operation.weight else None
        operands = [values[at] for at in node["ins"]]
        values.append(operation.make(algebra, operands, weight, node))
    return values[-1]


def weight_shape(node: Case, shape: tuple[int, ...]) -> tuple[int, ...] | None:
    """The shape of a node's weight for an operand of a shape; None if it has none."""
    kind = OPERATIONS[node["op"]].weight
    if not kind:
        return None
    return (shape[-1],) if kind == "vector" else (shape[-1], node["n"])
