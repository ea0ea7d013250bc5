"""Random vertex tables for codelet tests.

Kernels are stored in the ordinary cache: its entries are named by all that decides their content,
so those of an earlier run are what this one would compile.
"""

from dataclasses import dataclass

import numpy as np
import pytest

from tremula.codelets.columns import columns_of
from tremula.codelets.interpret import interpret
from tremula.codelets.python_codelet import PythonCodelet, call_kernel
from tremula.codelets.spec import CostInput, FieldKind, FieldSpec
from tremula.hardware import chip


@dataclass
class Table:
    """A codelet with a filled arena and the columns of some rows."""

    codelet: PythonCodelet
    arena: np.ndarray
    columns: tuple[np.ndarray, ...]
    n_rows: int

    def copy(self) -> "Table":
        columns = tuple(c.copy() for c in self.columns)
        return Table(self.codelet, self.arena.copy(), columns, self.n_rows)

    def run(self) -> bool:
        address = self.codelet.kernel_address()
        return call_kernel(address, self.arena, self.columns, 0, self.n_rows)

    def interpret(self) -> bool:
        rows = range(self.n_rows)
        results = [interpret(self.codelet, self.arena, self.columns, row) for row in rows]
        return all(results)

    def counted(self) -> np.ndarray:
        cycles = np.zeros(self.n_rows, np.int64)
        address = self.codelet.counted_kernel_address()
        call_kernel(address, self.arena, self.columns, 0, self.n_rows, cycles)
        return cycles

    def costed(self) -> np.ndarray:
        named = {(c.field.name, c.role): self.columns[c.index] for c in columns_of(self.fields)}
        sizes = {name: column for (name, role), column in named.items() if role == "length"}
        state = {name: column for (name, role), column in named.items() if role == "value"}
        return self.codelet.cycles(
            CostInput(self.n_rows, sizes, {}, state, chip("bow"), self.columns)
        )

    @property
    def fields(self) -> tuple[FieldSpec, ...]:
        return self.codelet.spec.fields

    def column(self, name: str, role: str) -> np.ndarray:
        result = [c for c in columns_of(self.fields) if (c.field.name, c.role) == (name, role)]
        return self.columns[result[0].index]

    def values(self, name: str) -> np.ndarray:
        """All elements of an edge field, rows one after the other."""
        field = self.codelet.spec.field(name)
        elements = self.arena[: len(self.arena) // 8 * 8].view(field.type.dtype)
        offset = self.column(name, "offset")
        has_length = field.kind in (FieldKind.VECTOR, FieldKind.VECTOR_LIST)
        length = self.column(name, "length") if has_length else np.ones(len(offset), np.int64)
        parts = [elements[a : a + n] for a, n in zip(offset, length, strict=True)]
        return np.concatenate(parts) if parts else elements[:0]

    def fill(self, name: str, values: object) -> None:
        field = self.codelet.spec.field(name)
        elements = self.arena[: len(self.arena) // 8 * 8].view(field.type.dtype)
        flat = np.asarray(values).astype(field.type.dtype).ravel()
        offset, at = self.column(name, "offset"), 0
        length = flat.size // len(offset)
        for begin in offset:
            elements[begin : begin + length] = flat[at : at + length]
            at += length


def random_values(dtype: np.dtype, n: int, random: np.random.Generator) -> np.ndarray:
    if dtype.kind == "f":
        return (random.random(n) * 8 - 4).astype(dtype)
    low = 0 if dtype.kind in "ub" else -9
    return random.integers(low, 2 if dtype.kind == "b" else 9, n).astype(dtype)


class _Arena:
    """Hands out aligned places in one block of bytes."""

    def __init__(self, random: np.random.Generator) -> None:
        self.random, self.parts, self.n_bytes = random, [], 0

    def place(self, field: FieldSpec, n: int) -> int:
        """The element address of `n` new random elements."""
        data = random_values(field.type.dtype, n, self.random).view(np.uint8)
        padded = np.zeros(-(-max(data.size, 1) // 8) * 8, np.uint8)
        padded[: data.size] = data
        self.parts.append(padded)
        self.n_bytes += padded.size
        return (self.n_bytes - padded.size) // field.type.n_bytes

    def byte(self, value: int) -> int:
        self.parts.append(np.full(8, value, np.uint8))
        self.n_bytes += 8
        return self.n_bytes - 8


def _field_columns(field, n_rows, size, arena, random, metadata) -> list[np.ndarray]:
    kind = field.kind
    if kind is FieldKind.STATE:
        return [random_values(field.type.dtype, n_rows, random)]
    fixed = size is not None
    lengths = [size if fixed else int(random.integers(0, 7)) for _ in range(n_rows)]
    if kind is FieldKind.SCALAR:
        columns = [[arena.place(field, 1) for _ in range(n_rows)]]
    elif kind is FieldKind.VECTOR:
        columns = [[arena.place(field, n) for n in lengths], lengths]
    else:
        counts = [size if fixed else int(random.integers(1, 5)) for _ in range(n_rows)]
        start = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
        total = int(start[-1])
        if kind is FieldKind.STATE_VECTOR:
            return [start, random_values(field.type.dtype, total, random)]
        subs = [size if fixed else int(random.integers(0, 7)) for _ in range(total)]
        if kind is FieldKind.SCALAR_LIST:
            columns = [start, [arena.place(field, 1) for _ in subs]]
        else:
            columns = [start, [arena.place(field, n) for n in subs], subs]
    if field.type.requires_metadata:
        columns.append([arena.byte(metadata)] * n_rows)
    return [np.asarray(c, np.int64) for c in columns]


@pytest.fixture(scope="session")
def make_table():
    """make_table(codelet, n_rows, seed, sizes): random data in random or given sizes."""

    def make(codelet, n_rows=5, seed=0, sizes=None, metadata=0) -> Table:
        random = np.random.default_rng(seed)
        arena, columns = _Arena(random), []
        for field in codelet.spec.fields:
            size = sizes if isinstance(sizes, int) else (sizes or {}).get(field.name)
            columns += _field_columns(field, n_rows, size, arena, random, metadata)
        block = np.concatenate([*arena.parts, np.zeros(64, np.uint8)])
        return Table(codelet, block, tuple(columns), n_rows)

    return make
