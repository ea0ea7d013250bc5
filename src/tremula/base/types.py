"""Element types of the machine: their size, NumPy storage and C++ spelling."""

from dataclasses import dataclass

import numpy as np

from tremula.base.errors import TypeMismatch, suggest


@dataclass(frozen=True, slots=True)
class Type:
    """One element type. Calling it inside a codelet converts a value to the type."""

    name: str
    spelling: str
    dtype: np.dtype
    n_bytes: int
    is_floating: bool = False

    def __repr__(self) -> str:
        return self.name

    def __str__(self) -> str:
        return self.spelling

    def __call__(self, value: object) -> object:
        """Convert `value` as the machine would; codelets use this, natively and in plain Python."""
        return self.dtype.type(value)

    @property
    def requires_metadata(self) -> bool:
        """Does it need a metadata byte, as 8-bit floats do?"""
        return self.name == "QUARTER"


def _type(name: str, spelling: str, dtype: str, is_floating: bool = False) -> Type:
    storage = np.dtype(dtype)
    return Type(name, spelling, storage, storage.itemsize, is_floating)


BOOL = _type("BOOL", "bool", "?")
CHAR = _type("CHAR", "char", "i1")
SIGNED_CHAR = _type("SIGNED_CHAR", "signed char", "i1")
UNSIGNED_CHAR = _type("UNSIGNED_CHAR", "unsigned char", "u1")
SHORT = _type("SHORT", "short", "i2")
UNSIGNED_SHORT = _type("UNSIGNED_SHORT", "unsigned short", "u2")
INT = _type("INT", "int", "i4")
UNSIGNED_INT = _type("UNSIGNED_INT", "unsigned int", "u4")
LONGLONG = _type("LONGLONG", "long long", "i8")
UNSIGNED_LONGLONG = _type("UNSIGNED_LONGLONG", "unsigned long long", "u8")
HALF = _type("HALF", "half", "f2", is_floating=True)
FLOAT = _type("FLOAT", "float", "f4", is_floating=True)
# 8-bit floats are stored as raw bytes; their meaning (format, scale) is in their metadata.
QUARTER = _type("QUARTER", "quarter", "u1", is_floating=True)
QUARTER_METADATA = _type("QUARTER_METADATA", "quarter_metadata", "u1")

ALL_TYPES = (
    BOOL, CHAR, SIGNED_CHAR, UNSIGNED_CHAR, SHORT, UNSIGNED_SHORT, INT, UNSIGNED_INT,
    LONGLONG, UNSIGNED_LONGLONG, HALF, FLOAT, QUARTER, QUARTER_METADATA,
)  # fmt: skip

# The NumPy-like names used in codelets.
float32, float16, half, quarter = FLOAT, HALF, HALF, QUARTER
int8, int16, int32, int64 = SIGNED_CHAR, SHORT, INT, LONGLONG
uint8, uint16, uint32, uint64 = UNSIGNED_CHAR, UNSIGNED_SHORT, UNSIGNED_INT, UNSIGNED_LONGLONG

_BY_NAME = {t.name: t for t in ALL_TYPES} | {t.spelling: t for t in ALL_TYPES} | {
    "SIGNED_INT": INT, "SIGNED": INT, "UNSIGNED": UNSIGNED_INT, "SIGNED_SHORT": SHORT,
    "unsigned": UNSIGNED_INT,
    "float32": FLOAT, "float16": HALF, "bool_": BOOL,
    "int8": SIGNED_CHAR, "int16": SHORT, "int32": INT, "int64": LONGLONG,
    "uint8": UNSIGNED_CHAR, "uint16": UNSIGNED_SHORT, "uint32": UNSIGNED_INT,
    "uint64": UNSIGNED_LONGLONG,
}  # fmt: skip

_UNSUPPORTED = {"LONG", "UNSIGNED_LONG", "DOUBLE", "double", "float64"}


def as_type(value: object) -> Type:
    """The Type meant by a Type, a name ("float", "HALF", "int32") or a NumPy dtype."""
    if isinstance(value, Type):
        return value
    if value is bool:
        return BOOL
    name = value if isinstance(value, str) else _dtype_name(value)
    if name in _UNSUPPORTED:
        raise TypeMismatch(
            f"the machine has no type {name!r}: its tiles have no 64-bit floats.",
            hint="use FLOAT (float32), and convert host data with .astype(np.float32)",
        )
    if name not in _BY_NAME:
        raise TypeMismatch(f"unknown type {value!r}.", hint=suggest(name, _BY_NAME))
    return _BY_NAME[name]


def _dtype_name(value: object) -> str:
    try:
        return np.dtype(value).name  # pyright: ignore[reportArgumentType, reportCallIssue]
    except (TypeError, ValueError, SyntaxError):  # NumPy parses texts such as "(2,3)f4"
        return repr(value)
