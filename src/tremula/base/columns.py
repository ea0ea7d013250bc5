"""Columns ↔ bytes: every way to make an array small. Files only arrange what this makes.

Whole numbers take the narrowest type that holds them or their differences; an even progression
takes no bytes at all. Bytes grouped by significance deflate well. Who uses what:

    executable   narrow numbers or differences, not deflated: read in place, equal bytes stored once
    report       narrow, grouped by significance, deflated: each column and block by itself
    page         narrow, deflated together: the browser's typed arrays are views of the result
"""

import math
import zlib
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from tremula.base.errors import FileLoadError

Ints = np.ndarray

_UNSIGNED, _SIGNED = ("u1", "u2", "u4", "u8"), ("i1", "i2", "i4", "i8")
_FLOATS = ("f4", "f8")
_WIDE = np.dtype(np.int64)


def narrowest(low: int, high: int, *, is_signed: bool = False) -> str:
    """The name of the smallest integer type for low … high; unsigned where it can be."""
    for name in _SIGNED if is_signed or low < 0 else _UNSIGNED:
        limits = np.iinfo(name)
        if limits.min <= low and high <= limits.max:
            return name
    raise OverflowError(f"no integer type holds {low} … {high}")


def narrowest_of(array: Ints) -> str:
    """The name of the smallest integer type for all values of an array."""
    return narrowest(int(array.min()), int(array.max())) if array.size else _UNSIGNED[0]


def coded(texts: Sequence[str]) -> tuple[list[str], Ints]:
    """(distinct texts, number of each text among them): names repeat, and numbers are small."""
    numbers: dict[str, int] = {}
    codes = np.fromiter(
        (numbers.setdefault(text, len(numbers)) for text in texts), np.int64, len(texts)
    )
    return list(numbers), codes


# -- progressions and differences ------------------------------------------------------------------


def compacted(array: Ints) -> tuple[dict[str, object], Ints | None]:
    """An int64 column of two or more numbers as facts, and what must be stored next to them.

    A progression is {first, step}; differences are {first} and the narrow steps; narrow numbers are
    {wide} and themselves; a column that none of this makes smaller is stored as it is.
    """
    flat = array.reshape(-1)
    steps = np.diff(flat)
    least, most = int(steps.min()), int(steps.max())
    if least == most:
        return {"first": int(flat[0]), "step": least}, None
    narrow = np.dtype(narrowest(int(flat.min()), int(flat.max()), is_signed=True))
    narrow_steps = np.dtype(narrowest(least, most, is_signed=True))
    if narrow_steps.itemsize < narrow.itemsize:
        return {"first": int(flat[0])}, steps.astype(narrow_steps)
    if narrow == _WIDE:
        return {}, array
    return {"wide": _WIDE.str}, flat.astype(narrow)


def is_compacted(facts: Mapping[str, object]) -> bool:
    """Whether a column needs more memory than what is stored of it."""
    return "first" in facts or facts.get("wide") == _WIDE.str


def expanded(facts: Mapping, size: int, stored: Callable[[int], Ints]) -> Ints:
    """A column from its facts; `stored(n)` reads the n numbers that lie next to them."""
    if "first" not in facts:
        return stored(size).astype(np.int64)
    if size == 0:
        raise ValueError("an empty column has no first number")
    column = np.empty(size, np.int64)
    column[0] = facts["first"]
    column[1:] = facts["step"] if "step" in facts else stored(size - 1)
    return np.cumsum(column, out=column)


# -- blobs -----------------------------------------------------------------------------------------

# A blob says how large it will be; more than this is an error before anything is unpacked.
MAX_BLOB_BYTES = 512 << 20
# Level 1 is within 2 % of level 6's size once bytes are grouped, in a third of the time.
_FAST = 1
_BY_ROWS = "-rows"


def deflate(content: bytes | memoryview, level: int = _FAST) -> bytes:
    return zlib.compress(content, level)


def pack(array: Ints, *, by_rows: bool = False) -> tuple[str, bytes]:
    """The type's name and the deflated bytes of an array of whole numbers or floats.

    With `by_rows` whole numbers are stored as differences from the row above, modulo their type:
    for rows that change little from one to the next.
    """
    name = narrowest_of(array) if array.dtype.kind in "iub" else f"f{array.dtype.itemsize}"
    values = np.ascontiguousarray(array, np.dtype(name).newbyteorder("<"))
    if by_rows:
        name += _BY_ROWS
        values = np.concatenate((values[:1], values[1:] - values[:-1]))
    flat = values.reshape(-1)
    by_significance = flat.view(np.uint8).reshape(len(flat), flat.itemsize).T
    return name, deflate(np.ascontiguousarray(by_significance).data)


def unpack(data: object, dtype_name: object, shape: tuple[int, ...], what: str) -> Ints:
    """The array again, as int64 or float64; raises FileLoadError for anything unexpected."""
    dtype_name = str(dtype_name)
    name, is_by_rows = dtype_name.removesuffix(_BY_ROWS), dtype_name.endswith(_BY_ROWS)
    is_known = name in (*_UNSIGNED, *_SIGNED, *_FLOATS)
    if not is_known or not all(type(n) is int and n >= 0 for n in shape):
        raise _damaged(what, f"has type {dtype_name!r} and shape {shape!r}")
    dtype = np.dtype(name).newbyteorder("<")
    n_elems = math.prod(shape)
    raw = inflate(data, n_elems * dtype.itemsize, what)
    by_significance = np.frombuffer(raw, np.uint8).reshape(dtype.itemsize, n_elems)
    values = np.ascontiguousarray(by_significance.T).reshape(-1).view(dtype).reshape(shape)
    if is_by_rows:
        values = np.cumsum(values, axis=0, dtype=dtype)
    return values.astype(np.float64 if dtype.kind == "f" else np.int64)


def inflate(data: object, n_bytes: int, what: str) -> bytes:
    """Exactly `n_bytes` of content; a blob that holds more or less is damaged."""
    if n_bytes > MAX_BLOB_BYTES:
        raise _damaged(what, f"would take {n_bytes:,} bytes; at most {MAX_BLOB_BYTES:,} are read")
    if not isinstance(data, bytes):
        raise _damaged(what, f"is a {type(data).__name__}, expected bytes")
    stream = zlib.decompressobj()
    try:
        content = stream.decompress(data, n_bytes + 1)
    except zlib.error as error:
        raise _damaged(what, f"cannot be unpacked ({error})") from None
    if len(content) != n_bytes or (n_bytes and not stream.eof and stream.decompress(b"", 1)):
        raise _damaged(what, f"has {len(content):,} bytes or more, expected {n_bytes:,}")
    return content


def _damaged(what: str, why: str) -> FileLoadError:
    return FileLoadError(f"{what} {why}.", hint="write the file again; this one is damaged")
