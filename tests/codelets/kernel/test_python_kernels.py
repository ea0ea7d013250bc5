"""Native kernels of Python codelets against the plain-Python executor."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tremula.base.errors import StrictModeError
from tremula.base.types import ALL_TYPES, FLOAT, INT, float32, half, int32, uint8, uint32
from tremula.codelets import (
    InOut,
    Input,
    MultiVertex,
    Output,
    SupervisorVertex,
    Vector,
    VectorList,
    Vertex,
    codelet_of,
)

TYPES = [t for t in ALL_TYPES if not t.name.startswith("QUARTER") and t.name != "CHAR"]
SCALE = 3
TAPS = (0.25, 0.5, 0.25)


class Adder(Vertex):
    x: Input[float32]
    y: Input[Vector[float32]]
    z: Output[float32]
    bias: float32

    def compute(self):
        total = self.x + self.bias
        for value in self.y:
            total += value
        self.z = total


def make_everything(a, b, c, d, e, f):
    """A codelet with one field of every kind; `a` … `f` are their types."""

    class Everything(Vertex):
        name = f"Everything<{a},{b},{c},{d},{e},{f}>"
        scalar: InOut[a]
        vector: InOut[Vector[b]]
        rows: Vector[InOut[Vector[c]]]
        scalars: Vector[InOut[d]]
        state: e
        table: Vector[f]
        listed: Input[VectorList[a]]

        def compute(self):
            self.scalar = self.scalar + len(self.rows)
            for i in range(len(self.vector)):
                self.vector[i] = self.vector[i] - self.scalar
            for i, row in enumerate(self.rows):
                for j in range(len(row)):
                    row[j] = self.rows[i][j] + self.state
            for i in range(len(self.scalars)):
                self.scalars[i] += self.table[i % len(self.table)]
            self.state = self.state + 1
            for row in self.listed:
                for value in row:
                    if value > self.state:
                        self.state = value
            self.table[-1] = len(self.scalars)

    return codelet_of(Everything)


def same(a, b) -> bool:
    same_state = all(np.array_equal(x, y) for x, y in zip(a.columns, b.columns, strict=True))
    return same_state and np.array_equal(a.arena, b.arena)


@pytest.mark.slow
@pytest.mark.parametrize("shift", range(0, len(TYPES), 3))
def test_every_kind_and_type_runs_as_in_python(make_table, shift):
    """A kernel and plain Python leave the same bytes, for every field kind with every type."""
    types = [TYPES[(shift + k) % len(TYPES)] for k in range(6)]
    codelet = make_everything(*types)
    for seed in range(20):
        native = make_table(codelet, 4, seed)
        python = native.copy()
        native.run()
        python.interpret()
        assert same(native, python), seed


def make_whole(a, b):
    """A codelet that stores floats and halves as integers of types `a` and `b`."""

    class Whole(Vertex):
        name = f"Whole<{a},{b}>"
        x: Input[Vector[float32]]
        first: Output[Vector[a]]
        second: Output[Vector[b]]

        def compute(self):
            for i in range(len(self.x)):
                self.first[i] = self.x[i]
                self.second[i] = b(half(self.x[i]))

    return codelet_of(Whole)


FLOATS = (0.0, -0.9, 3.7, -3.7, 127.5, 255.9, 256, -129, 40000, -40000, 3e9, -3e9, 1e19, -1e19,
          math.inf, -math.inf, math.nan)  # fmt: skip
INTEGERS = [t for t in TYPES if t.dtype.kind in "iu"]


@pytest.mark.parametrize("shift", range(0, len(INTEGERS), 2))
def test_floats_out_of_range_become_the_nearest_integer(make_table, shift):
    """On any processor: a fraction is cut off, what is too large saturates, NaN is 0."""
    types = [INTEGERS[(shift + k) % len(INTEGERS)] for k in range(2)]
    native = make_table(make_whole(*types), 1, sizes=len(FLOATS))
    native.fill("x", FLOATS)
    python = native.copy()
    native.run()
    python.interpret()
    for name in ("first", "second"):
        assert native.values(name).tolist() == python.values(name).tolist()
    limits = np.iinfo(types[0].dtype)
    finite = np.nan_to_num(np.float32(FLOATS)).tolist()
    right = [min(max(int(x), limits.min), limits.max) for x in finite]
    assert native.values("first").tolist() == right


@settings(max_examples=50)
@given(n_rows=st.integers(0, 40), seed=st.integers(0, 1000))
def test_adder_is_bitwise_the_same(make_table, n_rows, seed):
    """The Adder of the guide gives the same bits natively and in Python."""
    native = make_table(codelet_of(Adder), n_rows, seed)
    python = native.copy()
    assert native.run()
    python.interpret()
    assert same(native, python)


def smooth(left, middle, right):
    """A helper function that calls another."""
    return weighted(left, 0) + weighted(middle, 1) + weighted(right, 2)


def weighted(value, k):
    return value * TAPS[k]


def clear(row):
    for i in range(len(row)):
        row[i] = 0


class Control(Vertex):
    x: Input[Vector[float32]]
    out: Output[Vector[float32]]
    n: int32

    def compute(self):
        clear(self.out)
        i = 0
        while i < len(self.x):
            if self.x[i] < 0:
                i += 1
                continue
            if i > self.n and self.x[i] > 3.5:
                break
            left = self.x[max(i - 1, 0)]
            right = self.x[min(i + 1, len(self.x) - 1)]
            self.out[i] = smooth(left, self.x[i], right) if 0 < i <= 4 else -left
            i += 1
        for a, b in zip(self.x, reversed(self.x)):  # noqa: B905
            if a == b:
                self.out[0] = self.out[0] + 1
                return
        k = 0
        for j in range(10, 0, -SCALE):
            k += j // 2 + (j << 1) - (j & 3) % 2
        self.n = k


@pytest.mark.slow
def test_control_flow_and_helpers(make_table):
    """Loops, jumps, chained comparisons, zip and helpers mean what Python says."""
    for seed in range(20):
        native = make_table(codelet_of(Control), 6, seed, {"x": 6, "out": 6})
        python = native.copy()
        native.run()
        python.interpret()
        assert same(native, python), seed


class Locals(Vertex):
    x: InOut[Vector[float32]]
    flag: Output[bool]
    bytes: Input[Vector[uint8]]
    hash: Output[uint32]

    def compute(self):
        buffer = np.zeros(4, dtype=np.float32)
        for i in range(4):
            buffer[i] = self.x[i]
        total = 0
        for value in buffer:
            total += value
        a, b = total, 2
        a, b = b, a
        self.x[0] = a
        self.x[1] = b
        y: float32 = 3
        self.x[3] = y / 2
        part = self.x[1:3]
        part *= 2
        part[0] = sum(part)
        self.x[3] += -7 // 2 + -7 % 3 + (1 << 3) ^ 5 | 2 & ~1
        self.flag = not (total > 100) or a == 3
        code = 2166136261
        for i, byte in enumerate(self.bytes, 1):
            code = ((code ^ byte) * 16777619 + i) & 0xFFFFFFFF
        self.hash = code


@pytest.mark.slow
def test_local_arrays_unpacking_and_integers(make_table):
    """Local arrays, tuples, in-place slices and integer arithmetic mean what Python says."""
    native = make_table(codelet_of(Locals), 4, 1, 6)
    python = native.copy()
    native.run()
    python.interpret()
    assert same(native, python)


class Whole(Vertex):
    a: Input[Vector[float32]]
    b: Input[Vector[float32]]
    out: Output[Vector[float32]]
    dot: Output[float32]
    factor: int32

    def compute(self):
        self.out[:] = self.a * self.factor + self.b
        self.out[1:3] = self.b[0:2]
        self.dot = np.dot(self.a, self.b) + np.sum(self.out)


@pytest.mark.slow
def test_whole_vector_operations(make_table):
    """Slices, whole-vector arithmetic, np.dot and np.sum work and stay float32."""
    table = make_table(codelet_of(Whole), 3, 1, 5)
    table.run()
    a, b = (table.values(n).reshape(3, 5) for n in "ab")
    out = a * table.column("factor", "value")[:, None].astype(np.float32) + b
    out[:, 1:3] = b[:, 0:2]
    np.testing.assert_array_equal(table.values("out").reshape(3, 5), out)
    expected = (a * b).sum(1) + out.sum(1)
    np.testing.assert_allclose(table.values("dot"), expected, rtol=1e-5)


class Maths(Vertex):
    x: Input[Vector[float32]]
    out: Output[Vector[float32]]

    def compute(self):
        for i in range(len(self.x)):
            x = abs(self.x[i]) + 0.5
            y = math.exp(-x) + math.log(x) * math.sqrt(x) + math.tanh(x) - np.sin(x) * math.cos(x)
            y += math.floor(x) + np.floor(x) + x**2 + x**0.5 + math.pow(x, 1.5) + i / 3
            y += max(x, 1, 2.0) - min(x, i) + float(i) + int(x) + math.pi
            self.out[i] = y + math.atan2(x, 2) + (1 if math.isnan(x) else 0)


def test_functions_agree_with_python(make_table):
    """Functions of math and numpy give float32 results within a few units in the last place."""
    native = make_table(codelet_of(Maths), 4, 2, 6)
    python = native.copy()
    native.run()
    python.interpret()
    np.testing.assert_allclose(native.values("out"), python.values("out"), rtol=3e-6)


class Shares(MultiVertex):
    x: Input[Vector[float32]]
    order: InOut[Vector[int32]]
    turn: int32

    def compute(self, worker_id):
        self.order[worker_id] = self.turn
        self.turn += 1
        n = (len(self.x) + self.n_workers - 1) // self.n_workers
        return worker_id != 3 or n < 100


def test_multi_vertex_runs_workers_last_to_first(make_table):
    """All six workers run, worker 0 last, and one false result makes the kernel's result false."""
    native = make_table(codelet_of(Shares), 1, 0, {"order": 6, "x": 5})
    native.column("turn", "value")[:] = 0
    assert native.run()
    assert list(native.values("order")) == [5, 4, 3, 2, 1, 0]
    assert not make_table(codelet_of(Shares), 2, 0, {"order": 6, "x": 700}).run()


class Positive(SupervisorVertex):
    x: Input[float32]

    def compute(self):
        """Return a bool."""
        return self.x > 0


def test_result_is_true_if_all_rows_are(make_table):
    """A kernel returns the AND over its rows; the spec says that compute returns something."""
    codelet = codelet_of(Positive)
    assert codelet.spec.returns_bool
    assert not codelet_of(Adder).spec.returns_bool
    table = make_table(codelet, 3)
    table.fill("x", [1, 2, 3])
    assert table.run()
    assert table.interpret()
    table.fill("x", [1, -2, 3])
    assert not table.run()
    assert not table.interpret()


def make_scale(T, has_offset):
    class Scale(Vertex):
        name = f"Scale<{T}>"
        x: Input[Vector[T]]
        out: Output[Vector[T]]
        factor: T

        def compute(self):
            for i in range(len(self.x)):
                value = T(self.x[i] * self.factor)
                if has_offset:
                    value += T(1)
                if T is half:
                    value = -value
                self.out[i] = value

    return codelet_of(Scale)


@pytest.mark.parametrize("T", [FLOAT, INT, half])
def test_factories_make_one_codelet_per_type(make_table, T):
    """A class in a factory closes over its type, and branches on it are settled beforehand."""
    for has_offset in (False, True):
        codelet = make_scale(T, has_offset)
        assert codelet.spec.name == f"Scale<{T.spelling}>"
        native = make_table(codelet, 3, 7, 4)
        python = native.copy()
        native.run()
        python.interpret()
        assert same(native, python)


def test_plain_python_checks_indices_and_inputs(make_table):
    """The plain-Python executor refuses an index out of range and a write to an Input."""

    class Wrong(Vertex):
        x: Input[Vector[float32]]
        out: Output[float32]

        def compute(self):
            row = self.x
            if len(row) == 2:
                row[0] = 1.0
            self.out = row[5]

    table = make_table(codelet_of(Wrong), 1, 0, 3)
    with pytest.raises(IndexError, match="out of bounds"):
        table.interpret()
    with pytest.raises(ValueError, match="read-only"):
        make_table(codelet_of(Wrong), 1, 0, 2).interpret()
    from tremula.codelets.interpret import VertexProxy

    proxy = VertexProxy(codelet_of(Adder), *_parts(make_table(codelet_of(Adder), 1)), 0)
    with pytest.raises(StrictModeError, match="writes 'x', which is an Input"):
        proxy.x = 1.0


def _parts(table):
    return table.arena, table.columns
