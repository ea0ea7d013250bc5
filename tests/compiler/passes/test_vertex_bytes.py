"""Bytes of vertices: lists of vectors at equal distances are a start, numbers and a distance."""

import numpy as np
import pytest

import tremula as tr
from tremula.codelets import Input, Output, Vector, Vertex
from tremula.compiler.passes.vertex_bytes import STRIDES_BYTES, WORD_BYTES, row_bytes
from tremula.hardware import chip
from tremula.poplibs import popops

BOW = chip("bow")


class Sum(Vertex):
    """Adds up vectors."""

    parts: Vector[Input[Vector[tr.float32]]]
    out: Output[Vector[tr.float32]]
    strided_lists = ("parts",)

    def compute(self):
        for i in range(len(self.out)):
            self.out[i] = tr.float32(0)
            for j in range(len(self.parts)):
                self.out[i] += self.parts[j][i]


def bytes_of(rows: list[slice]) -> tuple[int, int]:
    """(state, descriptors) of a vertex that adds up these parts of a variable."""
    graph = tr.Graph(tr.IPUModel("bow", tiles_per_ipu=1).create_device())
    x = graph.add_variable(tr.FLOAT, [64], "x", mapping=0)
    out = graph.add_variable(tr.FLOAT, [4], "out", mapping=0)
    compute_set = graph.add_compute_set("sum")
    graph.add_vertex(compute_set, Sum, {"parts": [x[r] for r in rows], "out": out}, tile=0)
    (table,) = compute_set.frozen_tables()
    result = row_bytes(table, BOW)
    return int(result.state[0]), int(result.listed[0])


@pytest.mark.parametrize("step", [4, 8, 12])
def test_equal_distances_need_no_list(step: int) -> None:
    """Any number of equal vectors, neighbours or further apart, takes five half-words."""
    rows = [slice(step * n, step * n + 4) for n in range(5)]
    assert bytes_of(rows) == (STRIDES_BYTES, 0)


def test_other_distances_need_a_list() -> None:
    """A vector that is not where the others' distance says takes the list back: a word for each."""
    rows = [slice(0, 4), slice(8, 12), slice(20, 24)]
    assert bytes_of(rows) == (0, 3 * WORD_BYTES)


def test_reductions_have_no_pointer_for_each_partial_result() -> None:
    """Sums over the rows of matrices, as those of norms are, need the same for more rows."""
    sizes = []
    for n_rows in (8, 64):
        graph, sequence = (
            tr.Graph(tr.IPUModel("bow", tiles_per_ipu=2).create_device()),
            tr.Sequence(),
        )
        x = graph.add_variable(tr.FLOAT, [n_rows, 32], "x")
        graph.set_tile_mapping(x, 0)
        popops.reduce(graph, x, [0], "ADD", sequence)
        tables = [t for cs in graph.state.compute_sets for t in cs.frozen_tables()]
        totals = [row_bytes(t, BOW) for t in tables if "Reduce" in t.codelet.spec.name]
        sizes.append(sum(int(np.sum(r.outside + r.listed)) for r in totals))
    assert sizes[0] == sizes[1]
