"""The element-wise functions: add, exp, select, … each new, in place, and with an output.

They are made from the table of operations; functions.pyi declares them for
editors and type checkers.
"""

from collections.abc import Callable

from tremula.base.source import user_source
from tremula.poplar.graph import Graph
from tremula.poplar.programs import Sequence
from tremula.poplar.tensors.tensor import Tensor
from tremula.poplibs.popops.elementwise.element_op import ElementOp
from tremula.poplibs.popops.elementwise.map import map as map_expr
from tremula.poplibs.popops.elementwise.map import map_in_place, map_with_output
from tremula.poplibs.popops.elementwise.nodes import Const, Expr, Number, OperationExpr, PlaceHolder
from tremula.poplibs.popops.elementwise.operations import ELEMENT_OPS
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
                hint=f"{op.name}(graph, {', '.join('abc'[: op.n_operands])}, sequence)",
            )
    if not tensors:
        raise PoplibsError(
            f"{op.name} got no tensor.",
            source=user_source(),
            hint="give at least one tensor; compute with numbers alone in Python",
        )
    return OperationExpr(op.name, tuple(parts)), tensors


def _check_sequence(op: ElementOp, sequence: object) -> None:
    if not isinstance(sequence, Sequence):
        operands = ", ".join("abc"[: op.n_operands])
        raise PoplibsError(
            f"{op.name} takes {op.n_operands} operands and a Sequence, got "
            f"{type(sequence).__name__} for the Sequence.",
            source=user_source(),
            hint=f"{op.name}(graph, {operands}, sequence)",
        )


def _new(
    op: ElementOp, graph: Graph, operands: tuple[object, ...], sequence: Sequence, name: str
) -> Tensor:
    _check_sequence(op, sequence)
    expr, tensors = _as_expression(op, operands)
    return map_expr(graph, expr, tensors, sequence, name or op.name)


def _in_place(
    op: ElementOp, graph: Graph, operands: tuple[object, ...], sequence: Sequence, name: str
) -> None:
    _check_sequence(op, sequence)
    expr, tensors = _as_expression(op, operands)
    if not isinstance(operands[0], Tensor):
        raise PoplibsError(
            f"{op.name}_in_place got a number to write to.",
            source=user_source(),
            hint="the first operand is written and must be a Tensor",
        )
    map_in_place(graph, expr, tensors, sequence, name or op.name)


def _with_output(
    op: ElementOp, graph: Graph, operands: tuple[object, ...], out: Tensor, sequence: Sequence,
    name: str,
) -> None:  # fmt: skip
    _check_sequence(op, sequence)
    expr, tensors = _as_expression(op, operands)
    map_with_output(graph, expr, tensors, out, sequence, name or op.name)


Forms = tuple[Callable[..., Tensor], Callable[..., None], Callable[..., None]]


def _unary_forms(op: ElementOp) -> Forms:
    def new(graph: Graph, a: Tensor, sequence: Sequence, name: str = "") -> Tensor:
        return _new(op, graph, (a,), sequence, name)

    def in_place(graph: Graph, a: Tensor, sequence: Sequence, name: str = "") -> None:
        _in_place(op, graph, (a,), sequence, name)

    def with_output(
        graph: Graph, a: Tensor, out: Tensor, sequence: Sequence, name: str = ""
    ) -> None:
        _with_output(op, graph, (a,), out, sequence, name)

    return new, in_place, with_output


def _binary_forms(op: ElementOp) -> Forms:
    def new(graph: Graph, a: Operand, b: Operand, sequence: Sequence, name: str = "") -> Tensor:
        return _new(op, graph, (a, b), sequence, name)

    def in_place(graph: Graph, a: Tensor, b: Operand, sequence: Sequence, name: str = "") -> None:
        _in_place(op, graph, (a, b), sequence, name)

    def with_output(
        graph: Graph, a: Operand, b: Operand, out: Tensor, sequence: Sequence, name: str = ""
    ) -> None:
        _with_output(op, graph, (a, b), out, sequence, name)

    return new, in_place, with_output


def _ternary_forms(op: ElementOp) -> Forms:
    def new(
        graph: Graph, a: Operand, b: Operand, c: Operand, sequence: Sequence, name: str = ""
    ) -> Tensor:
        return _new(op, graph, (a, b, c), sequence, name)

    def in_place(
        graph: Graph, a: Tensor, b: Operand, c: Operand, sequence: Sequence, name: str = ""
    ) -> None:
        _in_place(op, graph, (a, b, c), sequence, name)

    def with_output(
        graph: Graph, a: Operand, b: Operand, c: Operand, out: Tensor, sequence: Sequence,
        name: str = "",
    ) -> None:  # fmt: skip
        _with_output(op, graph, (a, b, c), out, sequence, name)

    return new, in_place, with_output


SUFFIXES = (
    ("", "."), ("_in_place", ", written over the first operand."), ("_with_output", ", to `out`."),
)  # fmt: skip


def forms_of(op: ElementOp) -> Forms:
    """The three functions of an operation."""
    functions = (_unary_forms, _binary_forms, _ternary_forms)[op.n_operands - 1](op)
    for function, (suffix, how) in zip(functions, SUFFIXES, strict=True):
        function.__name__ = function.__qualname__ = op.name + suffix
        function.__module__ = __name__
        function.__doc__ = op.about.removesuffix(".") + how
    return functions


__all__: list[str] = []


def add_functions(op: ElementOp) -> None:
    """Make an operation's functions names of this module."""
    for function in forms_of(op):
        globals()[function.__name__] = function
        __all__.append(function.__name__)


def remove_functions(op: ElementOp) -> None:
    for suffix, _ in SUFFIXES:
        del globals()[op.name + suffix]
        __all__.remove(op.name + suffix)


for _op in ELEMENT_OPS.values():
    add_functions(_op)
