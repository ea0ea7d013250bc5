"""The element-wise functions: add, exp, select, … each new, in place, and with an output."""

from collections.abc import Callable

from tremula.base.source import user_source
from tremula.poplar.graph import Graph
from tremula.poplar.programs import Sequence
from tremula.poplar.tensor import Tensor
from tremula.poplibs.popops.element_ops import ELEMENT_OPS, ElementOp
from tremula.poplibs.popops.expr import Const, Expr, Number, Operation, PlaceHolder
from tremula.poplibs.popops.map import map, map_in_place, map_with_output
from tremula.poplibs.registry import PoplibsError

Operand = Tensor | Number


def _as_expression(op: ElementOp, operands: tuple[object, ...]) -> tuple[Expr, list[Tensor]]:
    """The operation on placeholders and numbers, and the tensors of the placeholders."""
    tensors: list[Tensor] = []
    parts: list[Expr] = []
    for operand in operands:
        if isinstance(operand, Tensor):
            tensors.append(operand)
            parts.append(PlaceHolder(len(tensors)))
        elif isinstance(operand, bool | int | float):
            parts.append(Const(operand))
        else:
            raise PoplibsError(
                f"{op.name} got {type(operand).__name__}, expected a Tensor or a number.",
                source=user_source(),
                mend=f"{op.name}(graph, {', '.join('abc'[: op.n_operands])}, sequence)",
            )
    if not tensors:
        raise PoplibsError(
            f"{op.name} got no tensor.",
            source=user_source(),
            mend="give at least one; a number alone needs no machine",
        )
    return Operation(op.name, tuple(parts)), tensors


def _split(op: ElementOp, arguments: tuple, n_more: int) -> tuple[tuple, tuple]:
    """(operands, what follows) of a call without its graph: what follows may end with a name."""
    n = op.n_operands
    operands, rest = arguments[:n], arguments[n:]
    if not n_more <= len(rest) <= n_more + 1 or not isinstance(rest[n_more - 1], Sequence):
        raise PoplibsError(
            f"{op.name} takes {n} operands{', an output' * (n_more - 1)} and a Sequence, got "
            + ", ".join(type(a).__name__ for a in arguments) + ".",
            source=user_source(),
            mend=f"{op.name}(graph, {', '.join('abc'[:n])}, sequence)",
        )  # fmt: skip
    return operands, rest


def make_new(op: ElementOp) -> Callable[..., Tensor]:
    """The function that gives a new tensor."""

    def function(graph: Graph, *arguments: object, name: str = "") -> Tensor:
        operands, (sequence, *given) = _split(op, arguments, 1)
        expr, tensors = _as_expression(op, operands)
        return map(graph, expr, tensors, sequence, str(given[0]) if given else name or op.name)

    return _named(function, op, "", op.about)


def make_in_place(op: ElementOp) -> Callable[..., None]:
    """The function that writes over its first operand."""

    def function(graph: Graph, *arguments: object, name: str = "") -> None:
        operands, (sequence, *given) = _split(op, arguments, 1)
        expr, tensors = _as_expression(op, operands)
        if not isinstance(operands[0], Tensor):
            raise PoplibsError(
                f"{op.name}_in_place got a number to write to.",
                source=user_source(),
                mend="the first operand is written and must be a Tensor",
            )
        map_in_place(graph, expr, tensors, sequence, str(given[0]) if given else name or op.name)

    return _named(function, op, "_in_place", op.about + " Written over the first operand.")


def make_with_output(op: ElementOp) -> Callable[..., None]:
    """The function that writes to a tensor given after its operands."""

    def function(graph: Graph, *arguments: object, name: str = "") -> None:
        operands, (out, sequence, *given) = _split(op, arguments, 2)
        expr, tensors = _as_expression(op, operands)
        name = str(given[0]) if given else name or op.name
        map_with_output(graph, expr, tensors, out, sequence, name)

    return _named(function, op, "_with_output", op.about + " Written to `out`.")


def _named(function: Callable, op: ElementOp, suffix: str, about: str) -> Callable:
    operands = ", ".join("abc"[: op.n_operands])
    out = ", out" if suffix == "_with_output" else ""
    function.__name__ = function.__qualname__ = op.name + suffix
    function.__doc__ = f"{op.name}{suffix}(graph, {operands}{out}, sequence, name): {about}"
    return function


FUNCTIONS: dict[str, Callable] = {}
for _op in ELEMENT_OPS.values():
    for _function in (make_new(_op), make_in_place(_op), make_with_output(_op)):
        FUNCTIONS[_function.__name__] = _function
