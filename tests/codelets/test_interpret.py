"""`run_in_python`: one vertex as plain Python, from the values of its fields."""

import numpy as np
import pytest

import tremula as tr
from tremula import InOut, Input, MultiVertex, Output, Vector, VectorList, Vertex, float32, half
from tremula.base.errors import GraphConnectionError


class Mixture(Vertex):
    """Fields of every kind."""

    rows: Input[VectorList[half]]
    singles: Vector[Output[float32]]
    q: InOut[Vector[tr.quarter]]
    total: Output[float32]
    scale: float32
    weights: Vector[float32]

    def compute(self):
        self.total = float32(0)
        for i in range(len(self.rows)):
            for j in range(len(self.rows[i])):
                self.total += float32(self.rows[i][j]) * self.weights[i] * self.scale
            self.singles[i] = float32(len(self.rows[i]))
        self.q[0] = self.q[1]


FIELDS = {
    "rows": [[1, 2], [3]], "singles": [0, 0], "q": [1.0, 2.0], "total": 0, "scale": 2,
    "weights": [1, 10],
}  # fmt: skip


def test_fields_of_every_kind():
    """Values go in as sequences and come out as NumPy."""
    left = tr.run_in_python(Mixture, FIELDS)
    assert (left["total"], left["singles"], left["q"]) == (66.0, [2.0, 1.0], [2.0, 2.0])
    np.testing.assert_array_equal(left["rows"][0], np.array([1, 2], np.float16))


def test_a_missing_field_is_named():
    """The codelet's fields and the given ones are both in the message."""
    with pytest.raises(GraphConnectionError, match=r"has the fields .*'weights'.*got \['rows'\]"):
        tr.run_in_python(Mixture, {"rows": [[1]]})


def test_an_index_out_of_range_raises():
    """Natively it would read a neighbour."""
    with pytest.raises(IndexError):
        tr.run_in_python(Mixture, FIELDS | {"weights": [1]})


class Noise(MultiVertex):
    """Each worker draws one number."""

    y: Output[Vector[float32]]

    def compute(self, worker_id):
        for i in range(worker_id, len(self.y), self.n_workers):
            self.y[i] = tr.random_uniform()


def test_workers_and_seeds():
    """As many workers as asked for, each with its own generator."""
    draw = [tr.run_in_python(Noise, {"y": [0] * 12}, n_workers=12, seed=s)["y"] for s in (1, 1, 2)]
    np.testing.assert_array_equal(draw[0], draw[1])
    assert len({*draw[0], *draw[2]}) == 24
