"""Codelets compiled once, a separate cache, and a way to call kernels.

A kernel is called by its address, with columns built from plain values: what a runtime does.
"""

import ctypes
import itertools
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from tremula.codelets.cpp import CppCodelet, load_cpp_codelets
from tremula.codelets.spec import FieldKind

FILES = Path(__file__).parent / "files"


@pytest.fixture(scope="session")
def cpp_folder(tmp_path_factory):
    """Not shared between workers: tests look at what the compiler leaves there."""
    return tmp_path_factory.mktemp("cpp_cache")


@pytest.fixture
def own_cache(cpp_folder, monkeypatch):
    """For tests about compiling: nothing comes from an earlier run, or stays for others."""
    monkeypatch.setenv("TREMULA_CACHE_DIR", str(cpp_folder))
    return cpp_folder


@pytest.fixture(scope="module")
def codelets(gxx):
    """All codelets of everyday.cpp and special.cpp, linked together; compiled once."""
    return load_cpp_codelets([FILES / "everyday.cpp", FILES / "special.cpp"])


@pytest.fixture(scope="session")
def call():
    return call_kernel


_POINTERS = (ctypes.c_void_p, ctypes.c_void_p)
_RANGE = (ctypes.c_int64, ctypes.c_int64)
_KERNEL = ctypes.CFUNCTYPE(ctypes.c_int64, *_POINTERS, *_RANGE)
_COUNTED = ctypes.CFUNCTYPE(ctypes.c_int64, *_POINTERS, *_RANGE, ctypes.c_void_p)


@dataclass
class Called:
    """The result of a call: what it returned, and every field afterwards, per row."""

    all_true: bool
    fields: dict[str, list]
    cycles: np.ndarray


def call_kernel(
    codelet: CppCodelet,
    rows: list[dict],
    metadata: dict[str, int] | None = None,
    *,
    is_counted=False,
) -> Called:
    """Run `codelet` on rows of field values; quarter fields take their metadata byte by name."""
    arena = _Arena()
    columns: list[np.ndarray] = []
    readers = {}
    for field in codelet.spec.fields:
        values = [row[field.name] for row in rows]
        made, readers[field.name] = _columns(arena, field, values)
        columns += made
        if field.type.requires_metadata:
            byte = arena.put(np.array([(metadata or {})[field.name]], np.uint8))
            columns.append(np.full(len(rows), byte, np.int64))
    addresses = np.array([c.ctypes.data for c in columns], np.int64)
    cycles = np.zeros(len(rows), np.int64)
    arguments = [arena.memory.ctypes.data, addresses.ctypes.data, 0, len(rows)]
    if is_counted:
        result = _COUNTED(codelet.counted_kernel_address())(*arguments, cycles.ctypes.data)
    else:
        result = _KERNEL(codelet.kernel_address())(*arguments)
    return Called(bool(result), {name: read() for name, read in readers.items()}, cycles)


class _Arena:
    def __init__(self):
        self.memory, self.used = np.zeros(1 << 16, np.uint8), 64

    def put(self, values: np.ndarray) -> int:
        """Store an array and return its byte address."""
        place = self.used
        self.view(place, values.size, values.dtype)[:] = values
        self.used += -(-values.nbytes // 64) * 64 + 64
        return place

    def view(self, place: int, size: int, dtype) -> np.ndarray:
        return self.memory[place : place + size * np.dtype(dtype).itemsize].view(dtype)


def _columns(arena, field, values):
    dtype, kind = field.type.dtype, field.kind
    if kind is FieldKind.STATE:
        column = np.array(values, dtype)
        return [column], lambda: list(column)
    starts = np.cumsum([0, *(1 if np.isscalar(v) else len(v) for v in values)], dtype=np.int64)
    if kind is FieldKind.STATE_VECTOR:
        column = np.concatenate([np.array(v, dtype) for v in values])
        return [starts, column], lambda: np.split(column, starts[1:-1])
    has_rows = kind in (FieldKind.VECTOR_LIST, FieldKind.SCALAR_LIST)
    parts = [part for v in values for part in v] if has_rows else values
    arrays = [np.atleast_1d(np.array(part, dtype)) for part in parts]
    places = [arena.put(a) for a in arrays]
    offset = np.array(places, np.int64) // dtype.itemsize
    length = np.array([a.size for a in arrays], np.int64)
    has_length = kind in (FieldKind.VECTOR, FieldKind.VECTOR_LIST)
    columns = [starts] * has_rows + [offset] + [length] * has_length

    def read():
        result = [arena.view(p, a.size, dtype).copy() for p, a in zip(places, arrays, strict=True)]
        return [result[a:b] for a, b in itertools.pairwise(starts)] if has_rows else result

    return columns, read
