"""Records ↔ bytes: a versioned, hashed container of JSON and arrays. Nothing in it can run."""

import hashlib
import json
import math
import os
import tempfile
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from enum import Enum
from pathlib import Path
from typing import TypeVar

import numpy as np

from tremula.base.errors import FileLoadError

MAGIC = b"TREMULA\x00"
FORMAT_VERSION = 2  # 1 had no narrowed columns
_DIGEST_BYTES = 32
_PREFIX_BYTES = len(MAGIC) + 4 + 8 + _DIGEST_BYTES
_ALIGN_BYTES = 64
_NARROW_FROM = 4096  # elements
_WIDE = np.dtype(np.int64).str
_ARRAY_KINDS = "biufc"  # plain numbers only: no objects, no strings
# What decoding contents that are not ours can raise.
_UNREADABLE = (
    KeyError, TypeError, ValueError, IndexError, AttributeError, OverflowError, RecursionError,
    MemoryError,
)  # fmt: skip

Cls = TypeVar("Cls", bound=type)
Record = TypeVar("Record")
_RECORDS: dict[str, type] = {}


def record(cls: Cls) -> Cls:
    """Let a dataclass, NamedTuple or Enum be written to files."""
    _RECORDS[cls.__name__] = cls
    return cls


# -- records ↔ trees -------------------------------------------------------------------------------


def to_tree(value: object, arrays: list[np.ndarray]) -> object:
    """A JSON-able tree; arrays are appended to `arrays` and referred to by index."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, np.ndarray):
        arrays.append(value)
        return {"$array": len(arrays) - 1}
    if isinstance(value, np.integer | np.floating | np.bool_):
        return value.item()
    if isinstance(value, Enum):
        return {"$": type(value).__name__, "value": value.value}
    if is_dataclass(value) and not isinstance(value, type):
        named = {f.name: to_tree(getattr(value, f.name), arrays) for f in fields(value) if f.init}
        return {"$": type(value).__name__, **named}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        by_name = value._asdict()  # pyright: ignore[reportAttributeAccessIssue] - a NamedTuple's
        named = {n: to_tree(v, arrays) for n, v in by_name.items()}
        return {"$": type(value).__name__, **named}
    if isinstance(value, list | tuple):
        return [to_tree(v, arrays) for v in value]
    if isinstance(value, dict):
        return {str(k): to_tree(v, arrays) for k, v in value.items()}
    raise TypeError(f"{type(value).__name__} cannot be written to a file")


def from_tree(tree: object, arrays: list[np.ndarray]) -> object:
    """The reverse of to_tree; JSON lists become tuples."""
    if isinstance(tree, list):
        return tuple(from_tree(v, arrays) for v in tree)
    if not isinstance(tree, dict):
        return tree
    if "$array" in tree:
        return arrays[tree["$array"]]
    values = {k: from_tree(v, arrays) for k, v in tree.items() if k != "$"}
    if "$" not in tree:
        return values
    cls = _RECORDS[tree["$"]]
    return cls(values["value"]) if issubclass(cls, Enum) else cls(**values)


# -- digests ---------------------------------------------------------------------------------------


def digest_of(value: object) -> str:
    """A content hash of records, arrays included."""
    arrays: list[np.ndarray] = []
    tree = to_tree(value, arrays)
    digest = hashlib.blake2b(json.dumps(tree, sort_keys=True).encode(), digest_size=_DIGEST_BYTES)
    for array in arrays:
        digest.update(f"{array.dtype.str}{array.shape}".encode())
        digest.update(np.ascontiguousarray(array).view(np.uint8).ravel().data)
    return digest.hexdigest()


# -- files -----------------------------------------------------------------------------------------


def write_record(path: str | os.PathLike, kind: str, value: object) -> None:
    """Write atomically: a reader sees the old file or the whole new one."""
    arrays: list[np.ndarray] = []
    tree = to_tree(value, arrays)
    header, blobs = _layout(kind, tree, arrays)
    digest = hashlib.blake2b(header, digest_size=_DIGEST_BYTES)
    for blob in blobs:
        digest.update(blob)
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=path.name, suffix=".part")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(MAGIC + FORMAT_VERSION.to_bytes(4, "little"))
            file.write(len(header).to_bytes(8, "little") + digest.digest())
            file.write(header)
            for blob in blobs:
                file.write(blob)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def _layout(kind: str, tree: object, arrays: list[np.ndarray]) -> tuple[bytes, list[bytes]]:
    table, blobs, place = [], [], 0
    for array in arrays:
        stored = _narrowed(array)
        blob = np.ascontiguousarray(stored).tobytes()
        blob += bytes(-len(blob) % _ALIGN_BYTES)
        entry = {"dtype": stored.dtype.str, "shape": list(array.shape), "at": place}
        table.append(entry if stored is array else {**entry, "wide": array.dtype.str})
        blobs.append(blob)
        place += len(blob)
    header = json.dumps({"kind": kind, "tree": tree, "arrays": table, "n_bytes": place}).encode()
    # Blanks behind it, so that arrays are aligned in the file and in what is read from it.
    return header + b" " * (-(len(header) + _PREFIX_BYTES) % _ALIGN_BYTES), blobs


def _narrowed(array: np.ndarray) -> np.ndarray:
    """Large columns of small numbers take half the place, and half the time to read and check."""
    if array.dtype != np.int64 or array.size < _NARROW_FROM:
        return array
    limits = np.iinfo(np.int32)
    fits = limits.min <= array.min() and array.max() <= limits.max
    return array.astype(np.int32) if fits else array


def read_record(path: str | os.PathLike, kind: str, cls: type[Record]) -> Record:
    """Read and check a file; raises FileLoadError for anything but an intact file of this kind."""
    data = _read_bytes(path)
    fail = _failure(path)
    if data[: len(MAGIC)] != MAGIC:
        raise fail("is not a Tremula file", "give a file written by Tremula")
    version = int.from_bytes(data[8:12], "little")
    if version > FORMAT_VERSION:
        raise fail(
            f"has format version {version}; this Tremula reads up to {FORMAT_VERSION}",
            "update Tremula, or compile again",
        )
    n_header = int.from_bytes(data[12:20], "little")
    body = memoryview(data)[_PREFIX_BYTES:]
    digest = hashlib.blake2b(body, digest_size=_DIGEST_BYTES).digest()
    if n_header > len(body) or digest != data[20:_PREFIX_BYTES]:
        raise fail("is truncated or was altered", "compile and save again")
    try:
        header = json.loads(bytes(body[:n_header]))
        found = header["kind"]
        value = (
            from_tree(header["tree"], _arrays(header, body[n_header:])) if found == kind else None
        )
    except _UNREADABLE as error:
        raise fail(f"has contents this version cannot read ({error})", "compile again") from error
    if found != kind:
        raise fail(f"holds a {found}, expected a {kind}", f"give a {kind} file")
    if not isinstance(value, cls):
        raise fail(f"has no {cls.__name__} in it", "compile and save again")
    return value


def _read_bytes(path: str | os.PathLike) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        reason = error.strerror or str(error)
        raise FileLoadError(
            f"cannot read {str(path)!r}: {reason}.", mend="check the path"
        ) from error


def _failure(path: str | os.PathLike) -> Callable[[str, str], FileLoadError]:
    return lambda what, mend: FileLoadError(f"{str(path)!r} {what}.", mend=mend)


def _arrays(header: dict, payload: memoryview) -> list[np.ndarray]:
    result = []
    for entry in header["arrays"]:
        dtype = np.dtype(entry["dtype"])
        if dtype.kind not in _ARRAY_KINDS:
            raise ValueError(f"array type {dtype}")
        shape = entry["shape"]
        if not all(type(n) is int and n >= 0 for n in shape):
            raise ValueError(f"array shape {shape}")
        array = np.frombuffer(payload, dtype, math.prod(shape), entry["at"]).reshape(shape)
        if entry.get("wide") == _WIDE:
            array = array.astype(np.int64)
            array.flags.writeable = False
        result.append(array)
    return result
