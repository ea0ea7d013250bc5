"""Records ↔ bytes: a versioned, hashed container of JSON and arrays. Nothing in it can run."""

import hashlib
import json
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields, is_dataclass
from enum import Enum
from pathlib import Path
from typing import IO, TypeVar

import numpy as np

from tremula.base.errors import FileLoadError
from tremula.base.passes import garbage_collected_later
from tremula.base.storage.atomic_file import atomic_file
from tremula.compiler.file.packed_columns import (
    ALIGN_BYTES,
    ListedColumns,
    PackedColumns,
    UnpackedColumns,
)

MAGIC = b"TREMULA\x00"
# 1 had no narrowed columns, 2 no differences, 3 no peaks of flops, 4 no packages in names,
# 5 another name for special memory, 7 another name for the provenance of costs, 8 no controls of
# receivers.
FORMAT_VERSION = 10
_DIGEST_BYTES = 32
_PREFIX_BYTES = len(MAGIC) + 4 + 8 + _DIGEST_BYTES
# What decoding a foreign or damaged file can raise.
_UNREADABLE = (
    KeyError, TypeError, ValueError, IndexError, AttributeError, OverflowError, RecursionError,
    MemoryError,
)  # fmt: skip

_LEAVES = {str, int, float, bool, type(None)}

Cls = TypeVar("Cls", bound=type)
Record = TypeVar("Record")
_RECORDS: dict[str, type] = {}
_NAMES: dict[type, str] = {}  # of records, in files


def record(cls: Cls) -> Cls:
    """Let a dataclass, NamedTuple or Enum be written to files.

    Files call it by its package and class, `compiler.StepCosts`: moving a module within its package
    leaves them readable. Renaming the class, or moving it to another package, needs a new
    FORMAT_VERSION.
    """
    name = f"{cls.__module__.removeprefix('tremula.').split('.')[0]}.{cls.__qualname__}"
    other = _RECORDS.setdefault(name, cls)
    if other is not cls:
        raise ValueError(
            f"{cls.__module__} and {other.__module__} both have a record {name!r}: rename one"
        )
    _NAMES[cls] = name
    return cls


# -- records ↔ trees -------------------------------------------------------------------------------


def to_tree(value: object, arrays: ListedColumns | PackedColumns) -> object:
    """A JSON-able tree; arrays are added to `arrays` and referred to by index."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, np.ndarray):
        return {"$array": arrays.add(value)}
    if isinstance(value, np.integer | np.floating | np.bool_):
        return value.item()
    name = _NAMES.get(type(value))
    if name is not None:
        return {"$": name, **{n: to_tree(v, arrays) for n, v in _fields_of(value)}}
    if isinstance(value, list | tuple) and not hasattr(value, "_fields"):
        return [to_tree(v, arrays) for v in value]
    if isinstance(value, dict):
        return {str(k): to_tree(v, arrays) for k, v in value.items()}
    raise TypeError(f"{type(value).__name__} cannot be written to a file")


def _fields_of(value: object) -> Iterator[tuple[str, object]]:
    """The fields of a record, by name."""
    if isinstance(value, Enum):
        return iter((("value", value.value),))
    if isinstance(value, tuple):  # a NamedTuple
        return iter(value._asdict().items())  # pyright: ignore[reportAttributeAccessIssue]
    assert is_dataclass(value), "there is no other kind of record"
    return ((f.name, getattr(value, f.name)) for f in fields(value) if f.init)


def from_tree(tree: object, arrays: UnpackedColumns) -> object:
    """The reverse of to_tree; JSON lists become tuples."""
    # Most of a tree is text and numbers: these skip the call.
    if isinstance(tree, list):
        return tuple([v if v.__class__ in _LEAVES else from_tree(v, arrays) for v in tree])
    if not isinstance(tree, dict):
        return tree
    if "$array" in tree:
        return arrays[tree["$array"]]
    values = {
        k: v if v.__class__ in _LEAVES else from_tree(v, arrays)
        for k, v in tree.items()
        if k != "$"
    }
    if "$" not in tree:
        return values
    cls = _RECORDS[tree["$"]]
    return cls(values["value"]) if issubclass(cls, Enum) else cls(**values)


# -- digests ---------------------------------------------------------------------------------------


def digest_of(value: object) -> str:
    """A content hash of records, arrays included."""
    arrays = ListedColumns()
    tree = to_tree(value, arrays)
    digest = hashlib.blake2b(json.dumps(tree, sort_keys=True).encode(), digest_size=_DIGEST_BYTES)
    for array in arrays.arrays:
        digest.update(f"{array.dtype.str}{array.shape}".encode())
        digest.update(np.ascontiguousarray(array).view(np.uint8).ravel().data)
    return digest.hexdigest()


# -- files -----------------------------------------------------------------------------------------


def write_record(path: str | os.PathLike, kind: str, value: object) -> None:
    """Write atomically: a reader sees the old file or the whole new one."""
    with atomic_file(path, is_durable=True) as file:
        write_to(file, kind, value)


def write_to(file: IO[bytes], kind: str, value: object) -> None:
    """Write a record to a stream of bytes."""
    columns = PackedColumns()
    tree = to_tree(value, columns)
    header = _header(kind, tree, columns)
    digest = hashlib.blake2b(header, digest_size=_DIGEST_BYTES)
    for blob in columns.blobs:
        digest.update(blob)
    file.write(MAGIC + FORMAT_VERSION.to_bytes(4, "little"))
    file.write(len(header).to_bytes(8, "little") + digest.digest())
    file.write(header)
    for blob in columns.blobs:
        file.write(blob)


def _header(kind: str, tree: object, columns: PackedColumns) -> bytes:
    contents = {"kind": kind, "tree": tree, "arrays": columns.table, "n_bytes": columns.n_bytes}
    header = json.dumps(contents).encode()
    # Padded with blanks, so that arrays are aligned in the file and in memory.
    return header + b" " * (-(len(header) + _PREFIX_BYTES) % ALIGN_BYTES)


def read_record(path: str | os.PathLike, kind: str, cls: type[Record]) -> Record:
    """Read and check a file; raises FileLoadError for anything but an intact file of this kind."""
    return read_bytes(_read_bytes(path), kind, cls, path)


def read_bytes(data: bytes, kind: str, cls: type[Record], name: str | os.PathLike) -> Record:
    """Read and check the bytes of a record; `name` is what errors call them."""
    fail = _failure(name)
    if data[: len(MAGIC)] != MAGIC:
        raise fail("is not a Tremula file", "give a file written by Tremula")
    damaged = fail("is truncated or was altered", "compile and save again")
    if len(data) < _PREFIX_BYTES:
        raise damaged
    version = int.from_bytes(data[8:12], "little")
    if version > FORMAT_VERSION:
        raise fail(
            f"has format version {version}; this Tremula reads {FORMAT_VERSION}",
            "update Tremula, or compile again",
        )
    if version < FORMAT_VERSION:
        raise fail(
            f"has format version {version}; this Tremula reads {FORMAT_VERSION}", "compile again"
        )
    n_header = int.from_bytes(data[12:20], "little")
    body = memoryview(data)[_PREFIX_BYTES:]
    result, value, unreadable = "", None, None
    # Hashing runs beside decoding, whose result counts only if the hash is right.
    with ThreadPoolExecutor(1) as pool:
        digest = pool.submit(lambda: hashlib.blake2b(body, digest_size=_DIGEST_BYTES).digest())
        try:
            result, value = _decoded(body, n_header, kind)
        except _UNREADABLE as error:
            unreadable = error
    if n_header > len(body) or digest.result() != data[20:_PREFIX_BYTES]:
        raise damaged
    if unreadable is not None:
        what = f"has contents this version cannot read ({unreadable})"
        raise fail(what, "compile again") from unreadable
    if result != kind:
        raise fail(f"holds a {result}, expected a {kind}", f"give a {kind} file")
    if not isinstance(value, cls):
        raise fail(f"has no {cls.__name__} in it", "compile and save again")
    return value


def _decoded(body: memoryview, n_header: int, kind: str) -> tuple[str, object]:
    """The kind of a file's contents and, if it is the expected one, the record."""
    with garbage_collected_later():  # decoding makes many objects, and no garbage
        header = json.loads(bytes(body[:n_header]))
        result = header["kind"]
        columns = UnpackedColumns(header["arrays"], body[n_header:])
        return result, from_tree(header["tree"], columns) if result == kind else None


def _read_bytes(path: str | os.PathLike) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        reason = error.strerror or str(error)
        raise FileLoadError(
            f"cannot read {str(path)!r}: {reason}.", hint="check the path"
        ) from error


def _failure(path: str | os.PathLike) -> Callable[[str, str], FileLoadError]:
    return lambda what, hint: FileLoadError(f"{str(path)!r} {what}.", hint=hint)
