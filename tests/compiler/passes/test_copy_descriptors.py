"""Descriptors of copies within a tile: equal pieces at regular distances need one."""

import numpy as np
import pytest

import tremula as tr
from tremula.base.types import FLOAT
from tremula.compiler.passes.on_tile_copies import (
    DESCRIPTOR_WORDS,
    STRIDED_WORDS,
    descriptor_words,
)
from tremula.poplar import programs as p


def words(pieces, n_tiles=1):
    """Of pieces (tile, source, goal, size)."""
    return descriptor_words(*np.array(pieces, np.int64).reshape(-1, 4).T, n_tiles).tolist()


def test_pieces_one_by_one():
    """Up to two pieces, and irregular ones, are described by themselves."""
    assert words([]) == [0]
    assert words([(0, 0, 100, 8)]) == [DESCRIPTOR_WORDS]
    assert words([(0, 0, 100, 8), (0, 16, 200, 8)]) == [2 * DESCRIPTOR_WORDS]
    irregular = [(0, 0, 100, 8), (0, 16, 150, 8), (0, 50, 350, 8), (0, 60, 351, 8)]
    assert words(irregular) == [4 * DESCRIPTOR_WORDS]


def test_regular_pieces_are_one_copy():
    """Rows of a matrix; the same source for all rows; two tiles have one each."""
    rows = [(0, 32 * n, 1000 + 16 * n, 16) for n in range(20)]
    assert words(rows) == [STRIDED_WORDS]
    bias = [(0, 64, 1000 + 16 * n, 16) for n in range(20)]
    assert words(bias) == [STRIDED_WORDS]
    both = [*rows, *[(1, *piece[1:]) for piece in bias]]
    assert words(both, 2) == [STRIDED_WORDS, STRIDED_WORDS]


def test_pieces_are_taken_by_source_or_by_goal():
    """Two sources in turn are two copies; a size that differs ends one."""
    turns = [(0, 8 * (n % 2), 1000 + 8 * n, 8) for n in range(12)]
    assert words(turns) == [2 * STRIDED_WORDS]
    cut = [(0, 32 * n, 1000 + 16 * n, 8 if n == 5 else 16) for n in range(11)]
    assert words(cut) == [2 * STRIDED_WORDS + DESCRIPTOR_WORDS]


@pytest.mark.parametrize("n_rows", [40, 80])
def test_a_repeated_row_needs_as_much_however_often(n_rows, small_graph, analysed):
    """A bias that is copied to every row of a result takes the descriptors of one row."""
    graph = small_graph()
    bias = graph.add_variable(FLOAT, [4], "bias", mapping=0)
    result = graph.add_variable(FLOAT, [n_rows, 4], "result", mapping=0)
    graph.create_host_write("bias", bias)
    graph.create_host_read("result", result)
    program = p.Copy(bias.expand([0]).broadcast(n_rows, 0), result)
    memory = analysed(graph, program).memory
    assert memory.category("Copy Descriptors")[0] <= 4 * (STRIDED_WORDS + DESCRIPTOR_WORDS)


class Total(tr.Vertex):
    """Adds up a vector."""

    x: tr.Input[tr.Vector[tr.float32]]
    out: tr.Output[tr.float32]

    def compute(self):
        self.out = tr.float32(0)
        for i in range(len(self.x)):
            self.out += self.x[i]


@pytest.mark.parametrize(("steps", "n_words"), [((8, 8, 8), 6), ((8, 16, 8), 12)])
def test_fields_gather_regular_pieces_by_one_copy(steps, n_words):
    """Elements at equal distances come into place by one copy; others by one for each."""
    graph, sequence = tr.Graph(tr.IPUModel("bow", tiles_per_ipu=2).create_device()), tr.Sequence()
    x = graph.add_variable(FLOAT, [64], "x", mapping=1)
    out = graph.add_variable(FLOAT, [], "out", mapping=1)
    places = np.cumsum([0, *steps]).tolist()
    compute_set = graph.add_compute_set("total")
    fields = {"x": tr.concat([x[p : p + 1] for p in places]), "out": out}
    graph.add_vertex(compute_set, Total, fields, tile=1)
    sequence.add(tr.Execute(compute_set))
    memory = tr.Engine(graph, sequence).executable.analysis.memory
    assert memory.category("Copy Descriptors").tolist() == [0, 4 * n_words]


def test_elements_repeated_in_turn_need_as_many_copies_however_often():
    """Two elements, each three times and then the other: the number of turns does not matter."""

    def copy_bytes(n_turns):
        device = tr.IPUModel("bow", tiles_per_ipu=2).create_device()
        graph, sequence = tr.Graph(device), tr.Sequence()
        x = graph.add_variable(FLOAT, [2], "x", mapping=1)
        out = graph.add_variable(FLOAT, [], "out", mapping=1)
        compute_set = graph.add_compute_set("total")
        both = x.expand([1]).broadcast(3, 1).flatten()
        fields = {"x": tr.concat([both] * n_turns), "out": out}
        graph.add_vertex(compute_set, Total, fields, tile=1)
        sequence.add(tr.Execute(compute_set))
        memory = tr.Engine(graph, sequence).executable.analysis.memory
        return int(memory.category("Copy Descriptors")[1])

    assert copy_bytes(40) == copy_bytes(10) > 0


def test_runs_of_unequal_lengths_need_a_copy_each():
    """Elements that are repeated more and more often are not taken in turn."""
    device = tr.IPUModel("bow", tiles_per_ipu=2).create_device()
    graph, sequence = tr.Graph(device), tr.Sequence()
    x = graph.add_variable(FLOAT, [12], "x", mapping=1)
    out = graph.add_variable(FLOAT, [], "out", mapping=1)
    compute_set = graph.add_compute_set("total")
    runs = [x[i : i + 1].broadcast(5 + i, 0) for i in range(12)]
    graph.add_vertex(compute_set, Total, {"x": tr.concat(runs), "out": out}, tile=1)
    sequence.add(tr.Execute(compute_set))
    memory = tr.Engine(graph, sequence).executable.analysis.memory
    most = 4 * (12 * STRIDED_WORDS + DESCRIPTOR_WORDS)
    assert memory.category("Copy Descriptors")[1] <= most
