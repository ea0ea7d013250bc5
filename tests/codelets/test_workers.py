"""The number of workers is the chip's: results, costs and draws of a MultiVertex follow it."""

import numpy as np
import pytest

import tremula as tr
from tremula import Execute, InOut, Input, MultiVertex, Output, Vector, float32
from tremula.codelets.kernel.kernel_source import Variant
from tremula.codelets.python.random import random_uniform
from tremula.codelets.python_codelet import codelet_of

pytestmark = pytest.mark.slow

N = 1200


class Square(MultiVertex):
    """Each worker has a stretch of the vector."""

    x: Input[Vector[float32]]
    y: Output[Vector[float32]]

    def compute(self, worker_id):
        n = len(self.x)
        for i in range(n * worker_id // self.n_workers, n * (worker_id + 1) // self.n_workers):
            self.y[i] = self.x[i] * self.x[i]


class Draw(MultiVertex):
    """Each worker draws from its own generator."""

    y: InOut[Vector[float32]]

    def compute(self, worker_id):
        for i in range(worker_id, len(self.y), self.n_workers):
            self.y[i] = random_uniform()


class UntilNegative(MultiVertex):
    """Its cost is only known when it has run."""

    x: Input[Vector[float32]]
    y: Output[Vector[float32]]

    def compute(self, worker_id):
        for i in range(worker_id, len(self.x), self.n_workers):
            self.y[i] = float32(0)
            if self.x[i] > 0:
                self.y[i] = self.x[i] * self.x[i]


CPP = """
#include <poplar/Vertex.hpp>
class CppSquare : public poplar::MultiVertex {
 public:
  poplar::Input<poplar::Vector<float>> x;
  poplar::Output<poplar::Vector<float>> y;
  bool compute(unsigned worker) {
    unsigned share = (x.size() + CTXT_WORKERS - 1) / CTXT_WORKERS;
    for (unsigned i = worker * share; i < x.size() && i < (worker + 1) * share; ++i)
      y[i] = x[i] * x[i] + 0 * numWorkers();
    return true;
  }
};
"""


def run(codelet, n_workers, has_x=True):
    """What a vertex of the codelet writes on such a chip, and the cycles of the program."""
    chip = tr.chip("bow").replace(n_workers=n_workers)
    graph = tr.Graph(tr.IPUModel(chip, tiles_per_ipu=2).create_device())
    if codelet == "CppSquare":
        graph.add_codelets(CPP)
    fields = {name: graph.add_variable(float32, [N], name, mapping=1) for name in "xy"}
    graph.set_initial_value(fields["x"], np.linspace(0, 3, N, dtype=np.float32))
    graph.create_host_read("y", fields["y"])
    cs = graph.add_compute_set("cs")
    if not has_x:
        del fields["x"]
    graph.add_vertex(cs, codelet, fields, tile=1)
    engine = tr.Engine(graph, Execute(cs)).load()
    engine.run(0)
    return engine.read_tensor("y"), engine.clock.total_cycles


@pytest.mark.parametrize("codelet", [Square, UntilNegative, "CppSquare"])
def test_more_workers_compute_the_same(codelet):
    """Six and twelve workers, costed before and while running, in Python and in C++."""
    few, many = run(codelet, 6), run(codelet, 12)
    expected = np.linspace(0, 3, N, dtype=np.float32) ** 2
    np.testing.assert_array_equal(few[0], expected)
    np.testing.assert_array_equal(many[0], expected)
    # Workers issue in turn: twelve do the same work, and six more find their share of it.
    assert 0 < many[1] - few[1] < 6 * 600


@pytest.mark.parametrize("n_workers", [1, 6, 12])
def test_draws_are_reproducible_with_any_number_of_workers(n_workers):
    """Every worker has a separate record, and two runs draw the same numbers."""
    first, second = run(Draw, n_workers, has_x=False)[0], run(Draw, n_workers, has_x=False)[0]
    np.testing.assert_array_equal(first, second)
    assert len(np.unique(first)) > N * 0.99


def test_the_number_is_a_constant_of_the_kernel():
    """All variants of a kernel are as if the number had been written."""
    codelet = codelet_of(Square)
    for variant in Variant:
        text = codelet.kernel_text(variant, n_workers=12)
        assert "n_workers" not in text
        assert "range(11, -1, -1)" in text
        assert text == codelet.kernel_text(variant).replace("range(5,", "range(11,").replace(
            "6 * _k_most", "12 * _k_most"
        ).replace(", 6)", ", 12)")


def test_a_folded_branch_sees_the_number():
    """`if self.n_workers > 8` keeps one branch, and costs nothing."""

    class Pick(MultiVertex):
        y: Output[Vector[float32]]

        def compute(self, worker_id):
            if self.n_workers > 8:
                self.y[worker_id] = float32(2)
            else:
                self.y[worker_id] = float32(1)

    assert "if " not in codelet_of(Pick).kernel_text(n_workers=12).partition("def row")[2]
    assert run(Pick, 12, has_x=False)[0][11] == 2
    assert run(Pick, 6, has_x=False)[0][5] == 1
