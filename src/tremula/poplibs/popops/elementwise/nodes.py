"""Nodes of element-wise expressions: placeholders, constants, casts, operations; operators."""

import operator as python_operator
from dataclasses import dataclass
from functools import reduce

from tremula.base.source import user_source
from tremula.base.types import HALF, Type, as_type
from tremula.poplibs.poputil.layout_key import KeyedByText
from tremula.poplibs.registry import PoplibsError

Number = bool | int | float
N_PLACEHOLDERS = 20


class Expr(KeyedByText):
    """A node of an expression. Operators, also comparisons, make new nodes: no truth value."""

    __slots__ = ()

    def text(self) -> str:
        """The expression as text; equal texts mean equal expressions."""
        raise NotImplementedError

    def __repr__(self) -> str:
        return self.text()

    __hash__ = object.__hash__

    def __bool__(self) -> bool:
        raise PoplibsError(
            f"the expression {self.text()} has no truth value while a graph is built.",
            source=user_source(),
            hint="use & and | instead of `and` and `or`, and select(a, b, condition) for `if`",
        )

    def __add__(self, other: "Operand") -> "Expr":
        return OperationExpr("add", (self, as_expr(other)))

    def __radd__(self, other: "Operand") -> "Expr":
        return OperationExpr("add", (as_expr(other), self))

    def __sub__(self, other: "Operand") -> "Expr":
        return OperationExpr("sub", (self, as_expr(other)))

    def __rsub__(self, other: "Operand") -> "Expr":
        return OperationExpr("sub", (as_expr(other), self))

    def __mul__(self, other: "Operand") -> "Expr":
        return OperationExpr("mul", (self, as_expr(other)))

    def __rmul__(self, other: "Operand") -> "Expr":
        return OperationExpr("mul", (as_expr(other), self))

    def __truediv__(self, other: "Operand") -> "Expr":
        return OperationExpr("div", (self, as_expr(other)))

    def __rtruediv__(self, other: "Operand") -> "Expr":
        return OperationExpr("div", (as_expr(other), self))

    def __mod__(self, other: "Operand") -> "Expr":
        return OperationExpr("rem", (self, as_expr(other)))

    def __rmod__(self, other: "Operand") -> "Expr":
        return OperationExpr("rem", (as_expr(other), self))

    def __pow__(self, other: "Operand") -> "Expr":
        return OperationExpr("pow", (self, as_expr(other)))

    def __rpow__(self, other: "Operand") -> "Expr":
        return OperationExpr("pow", (as_expr(other), self))

    def __and__(self, other: "Operand") -> "Expr":
        return OperationExpr("bitwise_and", (self, as_expr(other)))

    def __or__(self, other: "Operand") -> "Expr":
        return OperationExpr("bitwise_or", (self, as_expr(other)))

    def __xor__(self, other: "Operand") -> "Expr":
        return OperationExpr("bitwise_xor", (self, as_expr(other)))

    def __lshift__(self, other: "Operand") -> "Expr":
        return OperationExpr("shift_left", (self, as_expr(other)))

    def __rshift__(self, other: "Operand") -> "Expr":
        return OperationExpr("shift_right", (self, as_expr(other)))

    def __eq__(self, other: "Operand") -> "Expr":  # pyright: ignore[reportIncompatibleMethodOverride]
        return OperationExpr("eq", (self, as_expr(other)))

    def __ne__(self, other: "Operand") -> "Expr":  # pyright: ignore[reportIncompatibleMethodOverride]
        return OperationExpr("neq", (self, as_expr(other)))

    def __lt__(self, other: "Operand") -> "Expr":
        return OperationExpr("lt", (self, as_expr(other)))

    def __le__(self, other: "Operand") -> "Expr":
        return OperationExpr("lteq", (self, as_expr(other)))

    def __gt__(self, other: "Operand") -> "Expr":
        return OperationExpr("gt", (self, as_expr(other)))

    def __ge__(self, other: "Operand") -> "Expr":
        return OperationExpr("gteq", (self, as_expr(other)))

    def __neg__(self) -> "Expr":
        return OperationExpr("neg", (self,))

    def __invert__(self) -> "Expr":
        return OperationExpr("bitwise_not", (self,))

    def __abs__(self) -> "Expr":
        return OperationExpr("abs", (self,))


Operand = Expr | Number


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class PlaceHolder(Expr):
    """The tensor number `index`, counted from 1."""

    index: int

    def __post_init__(self) -> None:
        if not 1 <= self.index <= N_PLACEHOLDERS:
            raise PoplibsError(
                f"placeholder {self.index} does not exist.",
                source=user_source(),
                hint=f"use 1 to {N_PLACEHOLDERS}",
            )

    def text(self) -> str:
        return f"_{self.index}"


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Const(Expr):
    """A number. Without a type it has that of the operands beside it."""

    value: Number
    type: Type | None = None

    def text(self) -> str:
        return repr(self.value) if self.type is None else f"{self.type.name}({self.value!r})"


def ConstHalf(value: Number) -> Const:  # noqa: N802 - Poplar's name
    """A half constant."""
    return Const(value, HALF)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class CastTo(Expr):
    """Another type for a value."""

    operand: Expr
    type: Type

    def text(self) -> str:
        return f"cast<{self.type.name}>({self.operand.text()})"


def Cast(operand: Operand, type: Type | str) -> CastTo:  # noqa: N802 - Poplar's name
    """The value as another type."""
    return CastTo(as_expr(operand), as_type(type))


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class OperationExpr(Expr):
    """An element-wise operation, by name, on other expressions."""

    op: str
    operands: tuple[Expr, ...]

    def text(self) -> str:
        return f"{self.op}({', '.join(o.text() for o in self.operands)})"


def as_expr(value: object) -> Expr:
    """An expression, or a number as one."""
    if isinstance(value, Expr):
        return value
    if isinstance(value, bool | int | float):
        return Const(value)
    if hasattr(value, "item") and getattr(value, "ndim", 1) == 0:  # a NumPy number
        return Const(value.item())  # pyright: ignore[reportAttributeAccessIssue]
    raise PoplibsError(
        f"{type(value).__name__} cannot be part of an expression.",
        source=user_source(),
        hint="use a placeholder (_1, _2, …), a number, or an expression of these",
    )


def placeholders_of(expr: Expr) -> set[int]:
    """The numbers of all placeholders in an expression."""
    if isinstance(expr, PlaceHolder):
        return {expr.index}
    parts = expr.operands if isinstance(expr, OperationExpr) else ()
    parts = (expr.operand,) if isinstance(expr, CastTo) else parts
    return reduce(python_operator.or_, (placeholders_of(p) for p in parts), set())
