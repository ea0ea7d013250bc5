"""Halves are computed with as floats and rounded once, where a result is stored."""

from tremula.base.types import FLOAT, HALF, Type
from tremula.poplibs.popops.elementwise.expr import Cast, Expr


def wide(value: Expr, type: Type) -> Expr:
    """An operand of a type, as it is computed with."""
    return Cast(value, FLOAT) if type is HALF else value


def narrow(value: Expr, type: Type) -> Expr:
    """A computed value, as it is stored in a type."""
    return Cast(value, HALF) if type is HALF else value
