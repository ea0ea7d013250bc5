"""Operations of PopLibs that tile programs use, each with its meaning in NumPy.

Only operations whose result is exact: both sides must agree in every bit, run after run.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

FLOATS = ("FLOAT", "HALF")
INTEGERS = ("INT", "UNSIGNED_INT", "SHORT", "UNSIGNED_CHAR", "LONGLONG")
NUMBERS = (*FLOATS, *INTEGERS)
TYPES = (*NUMBERS, "BOOL")
# Those that only copies, branches and streams handle.
COPIED_TYPES = (*TYPES, "CHAR", "SIGNED_CHAR", "UNSIGNED_SHORT", "UNSIGNED_LONGLONG")

DTYPES = {
    "FLOAT": "f4", "HALF": "f2", "INT": "i4", "UNSIGNED_INT": "u4", "SHORT": "i2",
    "UNSIGNED_SHORT": "u2", "CHAR": "i1", "SIGNED_CHAR": "i1", "UNSIGNED_CHAR": "u1",
    "LONGLONG": "i8", "UNSIGNED_LONGLONG": "u8", "BOOL": "?",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class ElementRule:
    """An element-wise operation: its operands have one type, its result that type or BOOL."""

    n_operands: int
    types: tuple[str, ...]
    numpy: Callable[..., np.ndarray]
    gives_bool: bool = False
    has_condition: bool = False  # the last operand is BOOL


def _divide(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    if a.dtype.kind == "f":
        return a / b
    wide = np.where(b == 0, 1, b).astype(object)
    quotient = [abs(int(x)) // abs(int(y)) for x, y in zip(a, wide, strict=True)]
    signs = [-1 if (x < 0) != (y < 0) else 1 for x, y in zip(a, b, strict=True)]
    both = [0 if y == 0 else q * s for q, s, y in zip(quotient, signs, b, strict=True)]
    return np.array([wrapped(value, a.dtype) for value in both], a.dtype)


def wrapped(value: int, dtype: np.dtype) -> int:
    """A whole number as the bits of a type hold it."""
    bits = dtype.itemsize * 8
    value &= (1 << bits) - 1
    return value - (1 << bits) if dtype.kind == "i" and value >> (bits - 1) else value


ELEMENT_RULES = {
    "add": ElementRule(2, NUMBERS, np.add),
    "sub": ElementRule(2, NUMBERS, np.subtract),
    "mul": ElementRule(2, NUMBERS, np.multiply),
    "div": ElementRule(2, ("FLOAT", "INT", "UNSIGNED_INT"), _divide),
    "maximum": ElementRule(2, NUMBERS, np.maximum),
    "minimum": ElementRule(2, NUMBERS, np.minimum),
    "neg": ElementRule(1, ("FLOAT", "HALF", "INT", "SHORT", "LONGLONG"), np.negative),
    "abs": ElementRule(1, ("FLOAT", "HALF", "INT", "SHORT", "LONGLONG"), np.abs),
    "eq": ElementRule(2, TYPES, np.equal, gives_bool=True),
    "lt": ElementRule(2, TYPES, np.less, gives_bool=True),
    "gteq": ElementRule(2, TYPES, np.greater_equal, gives_bool=True),
    "select": ElementRule(
        3, TYPES, lambda a, b, c: np.where(c, a, b).astype(a.dtype), has_condition=True
    ),
    "clamp": ElementRule(
        3, ("FLOAT", "HALF", "INT"), lambda a, low, high: np.minimum(np.maximum(a, low), high)
    ),
    "bitwise_and": ElementRule(2, (*INTEGERS, "BOOL"), np.bitwise_and),
    "bitwise_xor": ElementRule(2, (*INTEGERS, "BOOL"), np.bitwise_xor),
    "bitwise_not": ElementRule(1, (*INTEGERS, "BOOL"), np.invert),
    "logical_or": ElementRule(2, ("BOOL",), np.logical_or),
    "is_nan": ElementRule(1, FLOATS, np.isnan, gives_bool=True),
}

# Reductions that are exact in any order, with the value of nothing.
REDUCTIONS: dict[str, tuple[tuple[str, ...], Callable[..., np.ndarray]]] = {
    "ADD": (("INT", "UNSIGNED_INT"), lambda a, axis: a.sum(axis=axis, dtype=a.dtype)),
    "MAX": (("FLOAT", "HALF", "INT"), lambda a, axis: a.max(axis=axis)),
    "MIN": (("FLOAT", "HALF", "INT"), lambda a, axis: a.min(axis=axis)),
    "LOGICAL_AND": (("BOOL",), lambda a, axis: a.all(axis=axis)),
    "LOGICAL_OR": (("BOOL",), lambda a, axis: a.any(axis=axis)),
}

# Conversions that C defines for every value: never a float to an integer.
CASTS = (
    ("FLOAT", "HALF"), ("HALF", "FLOAT"), ("INT", "FLOAT"), ("INT", "SHORT"), ("SHORT", "INT"),
    ("UNSIGNED_CHAR", "INT"), ("INT", "UNSIGNED_INT"), ("BOOL", "INT"), ("INT", "BOOL"),
    ("FLOAT", "BOOL"), ("BOOL", "FLOAT"), ("UNSIGNED_INT", "LONGLONG"), ("LONGLONG", "INT"),
)  # fmt: skip
