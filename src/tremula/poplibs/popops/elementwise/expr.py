"""Expressions of element-wise operations: placeholders for tensors, constants, operators, names.

    from tremula.poplibs.popops.elementwise.expr import _1, _2, exp

    popops.map(graph, exp(_1) * 0.5 + _2, [x, y], sequence)

A whole expression becomes one vertex. Python's numbers take the type of the other operand; a
`Const(value, type)` has its own. There is a function for every element-wise operation, of its name:
they are made here from the table, and expr.pyi declares them for type checkers.
"""

from collections.abc import Callable

from tremula.base.source import user_source
from tremula.poplibs.popops.elementwise.element_op import ElementOp
from tremula.poplibs.popops.elementwise.nodes import (
    Cast,
    CastTo,
    Const,
    ConstHalf,
    Expr,
    Number,
    Operand,
    OperationExpr,
    PlaceHolder,
    as_expr,
    placeholders_of,
)
from tremula.poplibs.popops.elementwise.operations import ELEMENT_OPS
from tremula.poplibs.registry import PoplibsError

__all__ = [
    "Cast", "CastTo", "Const", "ConstHalf", "Expr", "Number", "Operand", "OperationExpr",
    "PlaceHolder", "as_expr", "placeholders_of",
]  # fmt: skip

_1, _2, _3, _4, _5, _6, _7, _8, _9, _10 = (PlaceHolder(i) for i in range(1, 11))
_11, _12, _13, _14, _15, _16, _17, _18, _19, _20 = (PlaceHolder(i) for i in range(11, 21))


def builder(op: ElementOp) -> Callable[..., Expr]:
    """The function that makes an operation's node."""

    def make(*operands: Operand) -> Expr:
        if len(operands) != op.n_operands:
            raise PoplibsError(
                f"{op.name} takes {op.n_operands} operands, got {len(operands)}.",
                source=user_source(),
                hint="see docs/ops.md",
            )
        return OperationExpr(op.name, tuple(as_expr(o) for o in operands))

    make.__name__ = make.__qualname__ = op.name
    make.__doc__ = op.about
    return make


def add_builder(op: ElementOp) -> None:
    """Make the operation's function a name of this module."""
    globals()[op.name] = builder(op)


def remove_builder(op: ElementOp) -> None:
    del globals()[op.name]


for _op in ELEMENT_OPS.values():
    add_builder(_op)
