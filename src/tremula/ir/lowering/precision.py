"""Halves are computed as floats and rounded once, when a result is stored."""

from tremula.base.types import FLOAT, HALF, Type
from tremula.poplibs.popops.elementwise.expr import Cast, Expr


def wide(value: Expr, type: Type) -> Expr:
    """An operand in the type it is computed in."""
    return Cast(value, FLOAT) if type is HALF else value


def narrow(value: Expr, type: Type) -> Expr:
    """A computed value in the type it is stored in."""
    return Cast(value, HALF) if type is HALF else value
