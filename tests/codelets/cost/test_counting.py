"""Cycles counted from operations: hand-computed numbers, and the two ways of counting agree."""

import math

import numpy as np
import pytest

from tremula.base.errors import GraphObjectCreationError, MissingPerfEstimate
from tremula.base.provenance import Provenance
from tremula.base.types import float32, half, int32
from tremula.codelets import (
    InOut,
    Input,
    MultiVertex,
    Output,
    SupervisorVertex,
    Vector,
    Vertex,
    codelet_of,
)

OVERHEAD = 13  # entry and exit of a vertex
SETUP = 2  # of a loop


class Adder(Vertex):
    x: Input[float32]
    y: Input[Vector[float32]]
    z: Output[float32]
    bias: float32

    def compute(self):
        total = self.x + self.bias  # two loads beside one add: 2
        for value in self.y:  # setup 2, then a load beside an add: 1 each
            total += value
        self.z = total  # store: 1


class Stencil(Vertex):
    rows: Vector[Input[Vector[float32]]]
    out: Vector[Output[Vector[float32]]]
    a: float32

    def compute(self):
        for i in range(1, len(self.rows) - 1):  # 2 + 1 (minus), each: 1 loop
            up = self.rows[i - 1]  # 2 loads
            down = self.rows[i + 1]  # 2 loads
            out = self.out[i - 1]  # 2 loads
            for j in range(len(up)):  # 2 setup
                # loads a, up, down and store: 4 main; add and mul: 2 aux
                out[j] = self.a * (up[j] + down[j])


class Searching(Vertex):
    x: Input[Vector[int32]]
    out: Output[int32]

    def compute(self):
        i = 0
        while i < len(self.x) and self.x[i] != 7:  # compare, load, compare, and, branch: 5
            i += 1  # 1
        self.out = i  # store: 1


class Working(MultiVertex):
    x: Input[Vector[float32]]
    out: Output[Vector[float32, "SHORT_SPAN"]]  # noqa: F821

    def compute(self, worker_id):
        for i in range(worker_id, len(self.x), self.n_workers):
            self.out[i] = math.exp(self.x[i])  # load, store beside exp 3: 3


class Supervising(SupervisorVertex):
    x: InOut[Vector[half]]

    def compute(self):
        for i in range(len(self.x)):  # loop 1
            self.x[i] = self.x[i] * self.x[i] / 2  # 2 loads, 3 for a 16-bit store, mul 1, div 5


def test_adder(make_table):
    """Adder costs 13 + 2 + 2 + n + 1 slots."""
    table = make_table(codelet_of(Adder), 20, 1)
    expected = OVERHEAD + 2 + SETUP + table.column("y", "length") + 1
    np.testing.assert_array_equal(table.costed(), expected)
    np.testing.assert_array_equal(table.counted(), expected)
    assert not table.codelet.is_data_dependent
    assert table.codelet.provenance is Provenance.DERIVED


def test_nested_loops_over_rows(make_table):
    """Inner loops are multiplied out, from the lengths in the table, without the arena."""
    n = 6
    table = make_table(codelet_of(Stencil), 3, 1, {"rows": n, "out": n})
    inner = SETUP + n * 4
    expected = OVERHEAD + SETUP + 1 + (n - 2) * (1 + 6 + inner)
    assert list(table.costed()) == [expected] * 3
    assert list(table.counted()) == [expected] * 3


def test_data_dependent_codelets_are_counted_while_they_run(make_table):
    """A loop that looks at data has no cost beforehand; the counted kernel gives it."""
    table = make_table(codelet_of(Searching), 2, 1, 4)
    table.fill("x", [[1, 2, 7, 3], [1, 2, 3, 4]])
    assert table.codelet.is_data_dependent
    # before the loop: i = 0 is free; one more test than iterations
    assert list(table.counted()) == [OVERHEAD + 3 * 5 + 2 * 1 + 1, OVERHEAD + 5 * 5 + 4 + 1]
    assert list(table.values("out")) == [2, 4]
    with pytest.raises(MissingPerfEstimate, match=r"'Searching' are not known before it runs"):
        table.costed()
    with pytest.raises(MissingPerfEstimate, match=r"run the program once .*def cycles\(v, chip\)"):
        table.costed()


def test_multi_vertex_costs_six_times_its_slowest_worker(make_table):
    """Tile cycles are 6 * the slowest worker + 11 for the launch; layouts are unpacked."""
    table = make_table(codelet_of(Working), 1, 1, 13)
    slowest = OVERHEAD + 2 + SETUP + 3 * 3  # SHORT_SPAN costs 2; worker 0 has 3 of 13 elements
    assert list(table.costed()) == [6 * slowest + 11]
    assert list(table.counted()) == [6 * slowest + 11]


def test_supervisor_has_no_bundles(make_table):
    """On the supervisor both pipelines add up, and a loop costs its branch."""
    table = make_table(codelet_of(Supervising), 1, 1, 5)
    expected = OVERHEAD + SETUP + 5 * (1 + 2 + 3 + 1 + 5)
    assert list(table.costed()) == [expected]
    assert list(table.counted()) == [expected]


def ceil_div(a, b):
    return (a + b - 1) // b  # 2 + 270


def sum_of(values, begin, end):
    total = 0.0
    for i in range(begin, end):  # setup 2, then load beside add
        total += values[i]
    return total


class Helping(Vertex):
    x: Input[Vector[float32]]
    out: Output[Vector[float32]]
    parts: int32
    limits: Vector[int32]

    def compute(self):
        n = ceil_div(len(self.x), self.parts)
        for part in range(self.parts):
            begin = part * n
            end = min(begin + n, len(self.x))
            self.out[part] = sum_of(self.x, begin, end)
            for limit in self.limits:
                if limit > part:
                    self.out[part] = 0.0


@pytest.mark.slow
def test_helpers_state_and_branches_slice_to_the_same_count(make_table):
    """Counting without data gives what counting with data gives, through helpers and state."""
    table = make_table(codelet_of(Helping), 6, 3, {"x": 10, "out": 9})
    table.column("parts", "value")[:] = [1, 2, 3, 4, 5, 6]
    assert not table.codelet.is_data_dependent
    costed = table.costed()
    np.testing.assert_array_equal(costed, table.counted())
    assert costed.min() > 272
    assert len(set(costed)) > 3


def doubled(row):
    for j in range(len(row)):
        row[j] = row[j] * 2.0


@pytest.mark.slow
def test_counting_without_data_touches_no_data(make_table):
    """Vectors whose length a count needs are neither read nor written, in helpers neither."""

    class Touching(Vertex):
        rows: Vector[InOut[Vector[float32]]]

        def compute(self):
            for i, row in enumerate(self.rows):
                if len(row) > 1 and i > 0:
                    row[0] = 1.0
                doubled(row)
                part = row[1:]
                part[0] = part[1]
                for value in part:
                    for j in range(i):
                        row[j] += value

    table = make_table(codelet_of(Touching), 3, 2, {"rows": 5})
    assert not table.codelet.is_data_dependent
    np.testing.assert_array_equal(table.costed(), table.counted())


def test_vectors_made_from_data_are_counted_while_running(make_table):
    """A loop over a vector that only arithmetic on data would make has no cost beforehand."""

    class Making(Vertex):
        x: Input[Vector[float32]]
        out: Output[float32]

        def compute(self):
            twice = self.x * 2.0
            for value in twice:
                self.out = value

    assert codelet_of(Making).is_data_dependent


def test_an_index_of_enumerate_is_no_data(make_table):
    """Branching on a loop index leaves the cost known, though the rows enumerated are data."""

    class Enumerating(Vertex):
        rows: Vector[Input[Vector[float32]]]
        out: Output[float32]

        def compute(self):
            for i, row in enumerate(self.rows):
                if i > 0 and len(row) > 2:
                    self.out = row[i]

    table = make_table(codelet_of(Enumerating), 4, 2, {"rows": 5})
    assert not table.codelet.is_data_dependent
    np.testing.assert_array_equal(table.costed(), table.counted())


@pytest.mark.slow
def test_helper_counts_by_hand(make_table):
    """A helper of constant cost is added where it is called; a loop in a helper is counted."""

    class Short(Vertex):
        x: Input[Vector[float32]]
        out: Output[float32]

        def compute(self):
            self.out = sum_of(self.x, 0, len(self.x)) + ceil_div(7, 2)

    table = make_table(codelet_of(Short), 1, 3, 4)
    # store 1 and int→float 1 on main beside convert 1 and add 1 on aux; ceil_div 272 on main
    assert list(table.costed()) == [OVERHEAD + 1 + 1 + 272 + SETUP + 4]
    assert list(table.counted()) == list(table.costed())


def test_whole_vectors_cost_by_element(make_table):
    """self.out[:] = a * k + b costs loads and store of each element."""

    class Whole(Vertex):
        a: Input[Vector[float32]]
        b: Input[Vector[float32]]
        out: Output[Vector[float32]]

        def compute(self):
            self.out[:] = self.a * 2.0 + self.b

    table = make_table(codelet_of(Whole), 1, 3, 8)
    assert list(table.costed()) == [OVERHEAD + 8 * 3] == list(table.counted())


def test_a_cycles_method_is_the_cost(make_table):
    """A `cycles` method sees sizes, state and fields of the table, and sets the provenance."""

    class Priced(Vertex):
        x: Input[Vector[float32]]
        n: int32
        provenance = "published"

        def compute(self):
            self.n = len(self.x)

        def cycles(v, chip):
            assert v.x.size is v.sizes["x"]
            assert v.n_rows == 3
            return 5 + v.sizes["x"] * 2 + v.state["n"]

    table = make_table(codelet_of(Priced), 3, 3)
    expected = 5 + table.column("x", "length") * 2 + table.column("n", "value")
    np.testing.assert_array_equal(table.costed(), np.maximum(expected, expected))
    assert table.codelet.provenance is Provenance.PUBLISHED
    assert not table.codelet.is_data_dependent
    assert table.counted().min() > 0


def test_wrong_cycles_are_refused(make_table):
    """Cycles of the wrong shape or below zero are errors, never costs."""

    class Odd(Vertex):
        x: Input[Vector[float32]]

        def compute(self):
            pass

        def cycles(v, chip):
            return np.zeros(2)

    class Negative(Odd):
        def cycles(v, chip):
            return -1

    with pytest.raises(MissingPerfEstimate, match=r"must return a number or 3 of them, got shape"):
        make_table(codelet_of(Odd), 3).costed()
    with pytest.raises(MissingPerfEstimate, match=r"'Negative' returned -1"):
        make_table(codelet_of(Negative), 3).costed()


def test_instructions_grow_with_the_code():
    """The estimate of instructions counts every operation once, beside those of the entry."""
    # 13 entry; 2 loads, add; loop: 2 setup, load, 1 iteration, add; store
    assert codelet_of(Adder).spec.n_instructions == 13 + 3 + 5 + 1
    assert codelet_of(Stencil).spec.n_instructions > codelet_of(Adder).spec.n_instructions


def test_code_of_routines_is_called():
    """A division of integers and a sine are calls of routines; an exponential is an instruction."""

    class Calls(Vertex):
        n: Input[int32]
        x: Input[float32]
        out: Output[float32]

        def compute(self):
            self.out = np.sin(np.exp(self.x)) + float32(self.n // 3 + self.n // 7)

    spec = codelet_of(Calls).spec
    # 13 entry; 3 loads, sin 3, exp 1, 2 divisions of 3, 2 sums, 2 for the conversion, store
    assert spec.n_instructions == 13 + 3 + 3 + 1 + 6 + 2 + 2 + 1
    assert dict(spec.routines) == {"integer_divide": 64, "sin_float": 64}


def test_a_cost_says_its_provenance_by_that_name():
    """A codelet with the former attribute `standing` is an error that names the new one."""

    class Old(Vertex):
        standing = "published"
        x: Output[float32]

        def compute(self):
            self.x = float32(1)

    with pytest.raises(GraphObjectCreationError, match="it is called `provenance`"):
        codelet_of(Old)
