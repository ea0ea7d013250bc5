"""Operations of expressions, each written once over an algebra that a front end provides.

A value keeps its samples apart: dimension 0 counts them, and no operation mixes them, so that any
split into micro-batches and replicas computes the same.
"""

import math
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
    make: Callable[..., Value]  # of the algebra, the node if it is read, values and the weight
    weight: str = ""  # "": none; "vector": one per feature; "matrix": of features × n
    reads_node: bool = False

    def __call__(self, a: Algebra, node: Case, operands: Sequence[Value]) -> Value:
        return self.make(a, node, *operands) if self.reads_node else self.make(a, *operands)


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


def _attended(a: Algebra, x: Value) -> Value:
    if len(a.shape(x)) != MOST_AXES:
        raise IllegalCase("rows of features")
    scores = a.softmax(a.matmul(x, _swapped(a, x)), 2)
    return a.matmul(scores, x)


def _folded(a: Algebra, node: Case, x: Value) -> Value:
    n_samples, *sizes = a.shape(x)
    n, count = node["n"], math.prod(sizes)
    rows = (count // n, n) if n > 0 and count % n == 0 else (count,)
    return a.reshape(x, (n_samples, *rows))


def _reordered(a: Algebra, x: Value) -> Value:
    return _swapped(a, x) if len(a.shape(x)) == MOST_AXES else x


def _part(a: Algebra, node: Case, x: Value) -> Value:
    axis = _axis(a, x, node)
    size = a.shape(x)[axis]
    begin = min(node["n"] - 1, size - 1)
    return a.slice(x, axis, max(begin, 0), size)


def _concat(a: Algebra, node: Case, x: Value, y: Value) -> Value:
    return a.concat([x, y], _axis(a, x, node))


def _normed(a: Algebra, x: Value, weight: Value) -> Value:
    """A layer norm, spelled out."""
    axis = len(a.shape(x)) - 1
    centred = a.sub(x, a.reduce("mean", x, axis))
    variance = a.reduce("mean", _square(a, centred), axis)
    spread = a.unary("sqrt", a.add(variance, a.constant(0.1, x)))
    return a.mul(a.div(centred, spread), weight)


def _fp8(a: Algebra, node: Case, x: Value, weight: Value) -> Value:
    return a.fp8_product(x, weight, ("143", "152")[node["axis"] % 2], node["n"])


def _unary(name: str) -> Operation:
    return Operation(1, lambda a, x: a.unary(name, x))


def _less(name: str) -> Operation:
    def make(a: Algebra, node: Case, x: Value) -> Value:
        return a.sub(x, a.reduce(name, x, _axis(a, x, node)))

    return Operation(1, make, reads_node=True)


OPERATIONS: dict[str, Operation] = {
    **{name: _unary(name) for name in SAFE_UNARY},
    "bell": Operation(1, lambda a, x: a.unary("exp", a.unary("neg", _square(a, x)))),
    "log1": Operation(1, lambda a, x: a.unary("log", _plus_one(a, _square(a, x)))),
    "root1": Operation(1, lambda a, x: a.unary("sqrt", _plus_one(a, _square(a, x)))),
    "ratio": Operation(1, lambda a, x: a.div(x, _plus_one(a, _square(a, x)))),
    "add": Operation(2, lambda a, x, y: a.add(x, y)),
    "sub": Operation(2, lambda a, x, y: a.sub(x, y)),
    "mul": Operation(2, lambda a, x, y: a.mul(x, y)),
    "maximum": Operation(2, lambda a, x, y: a.maximum(x, y)),
    "concat": Operation(2, _concat, reads_node=True),
    "softmax": Operation(1, lambda a, n, x: a.softmax(x, _axis(a, x, n)), reads_node=True),
    **{f"less_{name}": _less(name) for name in REDUCTIONS},
    "fold": Operation(1, _folded, reads_node=True),
    "swap": Operation(1, _reordered),
    "part": Operation(1, _part, reads_node=True),
    "attend": Operation(1, _attended),
    "linear": Operation(1, lambda a, x, w: a.matmul(x, w), "matrix"),
    "bias": Operation(1, lambda a, x, w: a.add(x, w), "vector"),
    "scale": Operation(1, lambda a, x, w: a.mul(x, w), "vector"),
    "norm": Operation(1, _normed, "vector"),
    "fp8": Operation(1, _fp8, "matrix", reads_node=True),
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
        operands = [values[at] for at in node["ins"]]
        if operation.weight:
            operands.append(rest.pop(0))
        values.append(operation(algebra, node, operands))
    return values[-1]


def cut_of(case: Case) -> int | None:
    """After how many nodes an expression can be cut: the rest reads the last of them only."""
    nodes = case["nodes"]
    cuts = [
        cut
        for cut in range(1, len(nodes))
        if all(at >= cut for node in nodes[cut:] for at in node["ins"])
    ]
    return min(cuts, key=lambda cut: abs(2 * cut - len(nodes)), default=None)


def halves_of(case: Case) -> tuple[Case, Case]:
    """The two expressions of a case that is cut; the second reads the value of the first."""
    cut, nodes = cut_of(case), case["nodes"]
    if cut is None:
        raise IllegalCase("an expression that can be cut")
    moved = [{**node, "ins": [at - cut for at in node["ins"]]} for node in nodes[cut:]]
    return {**case, "nodes": nodes[:cut]}, {**case, "nodes": moved}


def n_weights(case: Case) -> int:
    """How many weights an expression has."""
    return sum(bool(OPERATIONS[node["op"]].weight) for node in case["nodes"])


def weight_shape(node: Case, shape: tuple[int, ...]) -> tuple[int, ...] | None:
    """The shape of a node's weight for an operand of a shape; None if it has none."""
    kind = OPERATIONS[node["op"]].weight
    if not kind:
        return None
    return (shape[-1],) if kind == "vector" else (shape[-1], node["n"])
