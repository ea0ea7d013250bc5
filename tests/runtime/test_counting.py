"""Steps whose cost depends on data: cycles, counters and reports follow the data in every turn."""

import numpy as np
import pytest

from tests.runtime.programs import loaded, new_graph, variable
from tests.runtime.test_clock import read_counter
from tremula import (
    INT,
    Execute,
    Graph,
    InOut,
    Input,
    IPUModel,
    MultiVertex,
    Repeat,
    Sequence,
    Vector,
    Vertex,
    cycle_count,
    int32,
)


class Spin(Vertex):
    """Works n rounds, and one more next time."""

    n: InOut[int32]
    total: InOut[int32]

    def compute(self):
        for i in range(self.n):
            self.total = self.total + i
        self.n = self.n + 1


class SpinTogether(MultiVertex):
    """A loop whose length depends on data, on the first worker of a tile."""

    n: InOut[int32]
    total: InOut[int32]

    def compute(self, worker: int32):
        if worker == 0:
            for i in range(self.n):
                self.total = self.total + i
            self.n = self.n + 1


CPP = """
#include <poplar/Vertex.hpp>
class SpinCpp : public poplar::Vertex {
public:
  poplar::InOut<int> n;
  poplar::InOut<int> total;
  bool compute() {
    for (int i = 0; i < *n; ++i) *total = (*total * 31) ^ i;
    *n += 1;
    return true;
  }
};
"""


def spinning(vertex, n_turns, *, replicas=1, estimate=None, **options):
    """An engine whose program spins in a loop on tile 1, under a cycle counter."""
    graph = new_graph(n_ipus=replicas, replicas=replicas)
    if vertex == "SpinCpp":
        graph.add_codelets(CPP)
    n, total = (variable(graph, INT, [], name, 0, tile=1) for name in ("n", "total"))
    cs = graph.add_compute_set("spin")
    made = graph.add_vertex(cs, vertex, {"n": n, "total": total}, tile=1)
    if estimate is not None:
        graph.set_perf_estimate(made, estimate)
    program = Sequence(Repeat(n_turns, Execute(cs)))
    graph.create_host_read("count", cycle_count(graph, program, 1))
    return loaded(graph, program, **options)


def counted(vertex, n_turns, **options):
    engine = spinning(vertex, n_turns, **options)
    engine.run()
    return read_counter(engine, "count"), engine.report()


VERTICES = [Spin, SpinTogether, pytest.param("SpinCpp", marks=pytest.mark.slow)]


@pytest.mark.parametrize("vertex", VERTICES)
def test_every_turn_costs_what_its_data_says(vertex):
    """Turn k of a loop takes k rounds: counter, total, tiles and vertex types all say so."""
    counts, reports = zip(*(counted(vertex, n) for n in (1, 2, 3, 4, 8)), strict=True)
    rounds = np.array([0, 1, 3, 6, 28])  # 0 + 1 + … of all turns
    turns = np.array([1, 2, 3, 4, 8])
    for values in (
        counts,
        [r.total_cycles for r in reports],
        [r.tiles.compute[1] for r in reports],
        [r.vertex_types[0].cycles for r in reports],
        [sum(r.provenance_cycles.values()) for r in reports],
    ):
        values = np.array(values)
        # Linear in both: a constant, something per turn, something per round.
        basis = np.stack([np.ones(5), turns, rounds], axis=1)[:4]
        fit = np.linalg.lstsq(basis, values[:4], rcond=None)[0]
        assert fit[2] >= 1
        assert values[4] == pytest.approx(fit @ [1, 8, 28])
    assert [int(r.steps.executed.max()) for r in reports] == turns.tolist()


def test_a_step_of_a_report_is_the_average_of_its_executions():
    """Steps show one execution; with cycles that depend on data, the average of all."""
    _, report = counted(Spin, 8)
    step = int(report.steps.executed.argmax())
    assert report.steps.compute[step, 0] == report.tiles.compute[1] // 8


@pytest.mark.parametrize("options", [{"debug.strict": True}, {"debug.floatPointOpException": True}])
def test_checked_steps_count_the_same(options):
    """Steps that Python drives follow the data as those of the interpreter do."""
    assert counted(Spin, 4, **options)[0] == counted(Spin, 4)[0]


def test_of_several_replicas_the_slowest_counts():
    """All replicas wait for the one whose data takes longest."""
    engine = spinning(Spin, 1, replicas=2)
    times = []
    for values in ((0, 0), (5, 0), (0, 5), (5, 5)):
        for replica, value in enumerate(values):
            engine.write_tensor("n", value, replica)
        engine.run()
        times.append(read_counter(engine, "count"))
    assert times[0] < times[1] == times[2] == times[3]


def test_estimates_stay():
    """A vertex with an estimate of the user takes that, whatever its data."""
    counts = [counted(Spin, n, estimate=7)[0] for n in (1, 2, 3)]
    assert np.diff(counts).tolist() == [np.diff(counts)[0]] * 2


class Sized(Vertex):
    """Its cost depends on data only if it is counted; vertices beside it may be estimated."""

    x: Input[Vector[int32]]
    y: InOut[int32]

    def compute(self):
        for value in self.x:
            if value > 0:
                self.y = self.y + value


def test_counted_and_estimated_vertices_of_one_table():
    """Vertex types and provenances add counted cycles to those that the user gave."""
    graph = Graph(IPUModel(tiles_per_ipu=4).create_device())
    cs = graph.add_compute_set("cs")
    x = variable(graph, INT, [3, 4], "x", 1)
    y = variable(graph, INT, [3], "y", 0)
    for i in range(3):
        vertex = graph.add_vertex(cs, Sized, {"x": x[i], "y": y[i]}, tile=0)
    graph.set_perf_estimate(vertex, 1000)
    engine = loaded(graph, Repeat(2, Execute(cs)))
    engine.run()
    report = engine.report()
    total = report.vertex_types[0].cycles
    assert total == sum(report.provenance_cycles.values())
    assert total > 2 * 1000
    assert report.provenance_cycles["derived"] > 0


@pytest.mark.parametrize("how", ["vertex", "codelet"])
@pytest.mark.parametrize("has_run", [False, True])
def test_an_estimate_counts_as_the_users_everywhere(how, has_run):
    """Totals, vertex types and the summary all say that a stated cost is the user's."""
    graph = new_graph()
    cs = graph.add_compute_set("cs")
    x = variable(graph, INT, [4], "x", 1)
    y = variable(graph, INT, [], "y", 0)
    vertex = graph.add_vertex(cs, Sized, {"x": x, "y": y}, tile=0)
    if how == "vertex":
        graph.set_perf_estimate(vertex, 50)
    else:
        graph.register_perf_estimator("Sized", lambda v, chip: 50)
    engine = loaded(graph, Execute(cs))
    if has_run:
        engine.run()
    report = engine.report()
    assert [row.provenance for row in report.vertex_types] == ["yours"]
    assert report.placeholder_share == 0
    if has_run:
        assert {k: v for k, v in report.provenance_cycles.items() if v} == {"yours": 50}
