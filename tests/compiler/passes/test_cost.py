"""Cost: tutorial 6's figures, the order of cost sources, and what each kind of step takes."""

import numpy as np
import pytest

from tremula.base.errors import MissingPerfEstimate
from tremula.base.provenance import Provenance
from tremula.base.types import FLOAT, UNSIGNED_INT, float32
from tremula.codelets import Input, MultiVertex, Output, SupervisorVertex, Vector, Vertex
from tremula.compiler.passes.vertex_costs import PROVENANCES, tiles_of_vertices
from tremula.hardware import (
    chip,
    exchange_latency_cycles,
    longest_exchange_latency_cycles,
)
from tremula.poplar import programs as p
from tremula.poplar.graph import Graph
from tremula.poplar.target import IPUModel
from tremula.poplar.vertices.bulk import Slices


class Dot(Vertex):
    a: Input[Vector[float32]]
    b: Input[Vector[float32]]
    out: Output[float32]

    def compute(self):
        total = float32(0)
        for i in range(len(self.a)):
            total += self.a[i] * self.b[i]
        self.out = total

    def cycles(v, chip):
        return 5 + (v.sizes["a"] + 1) // 2


class Reduce(Vertex):
    a: Input[Vector[float32]]
    out: Output[float32]

    def compute(self):
        total = float32(0)
        for value in self.a:
            total += value
        self.out = total

    def cycles(v, chip):
        return 5 + (v.sizes["a"] + 1) // 2


class Count(Vertex):
    """Its loop depends on data: only counting can tell its cost."""

    x: Input[float32]
    y: Output[float32]

    def compute(self):
        left = self.x
        while left > 0:
            left -= 1
        self.y = left


class Six(MultiVertex):
    x: Input[Vector[float32]]
    y: Output[Vector[float32]]

    def compute(self, worker):
        self.y[worker] = self.x[worker]

    def cycles(v, chip):
        return 100 + 0 * v.sizes["x"]


class Alone(SupervisorVertex):
    x: Input[Vector[float32]]
    y: Output[Vector[float32]]

    def compute(self):
        self.y[0] = self.x[0]

    def cycles(v, chip):
        return 1000 + 0 * v.sizes["x"]


def tutorial_6(n_rows=10000, n_columns=1000, split=7):
    """Matrix times vector with each row cut in `split` parts, and a second set that adds them."""
    graph = Graph(IPUModel("ipu2").create_device())
    n_tiles = graph.target.n_tiles
    matrix = graph.add_variable(FLOAT, [n_rows, n_columns], "matrix")
    vector = graph.add_variable(FLOAT, [n_columns], "vector", mapping="linear")
    partials = graph.add_variable(FLOAT, [split, n_rows], "partials")
    out = graph.add_variable(FLOAT, [n_rows], "out", mapping="linear")
    tile_of = np.arange(split * n_rows) * n_tiles // (split * n_rows)
    multiply, reduce = graph.add_compute_set("multiply"), graph.add_compute_set("reduce")
    for part in range(split):
        begin, end = part * n_columns // split, (part + 1) * n_columns // split
        tiles = tile_of[part * n_rows : (part + 1) * n_rows]
        rows = np.arange(n_rows) * n_columns
        edges = {
            "a": Slices(matrix, rows + begin, rows + end),
            "b": Slices(vector, np.full(n_rows, begin), np.full(n_rows, end)),
            "out": partials[part],
        }
        graph.add_vertices(multiply, Dot, edges, tiles=tiles)
        first = np.flatnonzero(np.diff(tiles, prepend=-1))
        for low, high in zip(first, np.append(first[1:], n_rows), strict=True):
            graph.set_tile_mapping(matrix[low:high, begin:end], int(tiles[low]))
            graph.set_tile_mapping(partials[part, low:high], int(tiles[low]))
    tiles = np.arange(n_rows) * n_tiles // n_rows
    graph.add_vertices(reduce, Reduce, {"a": partials.transpose(), "out": out}, tiles=tiles)
    return graph, p.Sequence([p.Execute(multiply), p.Execute(reduce)])


def test_tutorial_6_average_compute(analysed):
    """Average compute cycles are Graphcore's published ones within 0.5 %."""
    costs = analysed(*tutorial_6()).costs
    excluding = sum(costs.tile_busy(step).mean() for step in range(2))
    including = sum(costs.tile_compute(step).mean() for step in range(2))
    assert excluding == pytest.approx(3717.6, rel=0.005)
    assert including == pytest.approx(3801.8, rel=0.005)


def one_set(graph, codelet, *tiles, n=8, **estimates):
    """A compute set with one vertex on each given tile, all data there."""
    cs = graph.add_compute_set("cs")
    for number, tile in enumerate(tiles):
        x = graph.add_variable(FLOAT, [n], f"x{number}", mapping=tile)
        y = graph.add_variable(FLOAT, [n], f"y{number}", mapping=tile)
        vertex = graph.add_vertex(cs, codelet, {"x": x, "y": y}, tile=tile)
        if str(number) in estimates:
            graph.set_perf_estimate(vertex, estimates[str(number)], flops=7)
    return p.Execute(cs)


def test_vertices_go_to_the_least_loaded_worker():
    """Six workers share a tile; the tile takes six times its busiest worker."""
    tile = np.array([0, 0, 0, 0, 0, 0, 0, 1], np.int32)
    cycles = np.array([10, 1, 10, 10, 10, 10, 5, 3])
    tiles, busy = tiles_of_vertices([True], [tile], [cycles], 6, 3)
    assert tiles.tolist() == [60, 18, 0]
    assert busy.tolist() == [56, 3, 0]


def test_multi_and_supervisor_vertices_take_the_tile(small_graph, analysed):
    """Their cycles are tile cycles and add up."""
    graph = small_graph()
    six, alone = one_set(graph, Six, 0, 0, 1), one_set(graph, Alone, 1)
    costs = analysed(graph, p.Sequence([six, alone])).costs
    assert costs.tile_compute(0).tolist() == [200, 100, 0, 0]
    assert costs.tile_compute(1).tolist() == [0, 1000, 0, 0]
    assert costs.compute.tolist() == [[200], [1000]]


def test_sources_of_cost_in_order(small_graph, analysed):
    """The user's estimate comes first, then a registered estimator, then the codelet."""
    graph = small_graph()
    program = one_set(graph, Six, 0, 1, **{"1": 33})
    plain = analysed(graph, program).costs
    assert plain.tile_compute(0).tolist() == [100, 33, 0, 0]
    assert plain.n_flops.tolist() == [7]
    graph.register_perf_estimator("Six", lambda v, chip: (v.x.size * 2, v.x.size))
    estimated = analysed(graph, program).costs
    assert estimated.tile_compute(0).tolist() == [16, 33, 0, 0]
    assert estimated.n_flops.tolist() == [7 + 8]
    assert estimated.provenance_cycles[0, PROVENANCES.index(Provenance.YOURS)] == 49


class Adding(Six):
    """Says its flops."""

    def flops(v, chip):
        return 3 * v.x.size


class Lost(Six):
    def flops(v, chip):
        return -v.x.size


def test_sources_of_flops_in_order(small_graph, analysed):
    """Flops come from an estimator that gives them, or the codelet; peaks from its unit."""
    graph = small_graph()
    program = one_set(graph, Adding, 0, 1)
    per_vertex = int(analysed(graph, program).costs.n_flops[0]) // 2
    assert per_vertex > 0
    graph.register_perf_estimator("Adding", lambda v, chip: v.x.size * 2)
    costs = analysed(graph, program).costs
    assert costs.n_flops.tolist() == [2 * per_vertex]
    peak = chip("gc200").flops_per_cycle_vector_float
    assert costs.peak_cycles.tolist() == [-(-2 * per_vertex // peak)]
    graph.register_perf_estimator("Adding", lambda v, chip: (v.x.size * 2, 1))
    assert analysed(graph, program).costs.n_flops.tolist() == [2]


def test_flops_without_numbers(small_graph, analysed):
    """A flops method that gives no usable number is an error that names the codelet."""
    graph = small_graph()
    program = one_set(graph, Lost, 0)
    with pytest.raises(MissingPerfEstimate, match="flops of codelet 'Lost' returned -"):
        analysed(graph, program)


def test_estimator_without_numbers(small_graph, analysed):
    """An estimator that gives no usable cost is an error, not zero."""
    for bad, got in ((-1, "-1 for vertex 0"), (np.zeros(5), "float64 of shape (5,)")):
        graph = small_graph()
        program = one_set(graph, Six, 0)
        graph.register_perf_estimator("Six", lambda v, chip, bad=bad: bad)
        with pytest.raises(MissingPerfEstimate) as caught:
            analysed(graph, program)
        assert f"codelet Six has no cost: its registered estimator gave {got}" in str(caught.value)
        assert "set_perf_estimate" in str(caught.value)
        assert "test_cost.py" in str(caught.value)


def test_data_dependent_vertices_are_counted(small_graph, analysed):
    """Without data the cost is open; estimates stay."""
    graph = small_graph()
    cs = graph.add_compute_set("cs")
    x = graph.add_variable(FLOAT, [6], "x", mapping=0)
    for i in range(3):
        vertex = graph.add_vertex(cs, Count, {"x": x[i], "y": x[3 + i]}, tile=i // 2)
    graph.set_perf_estimate(vertex, 5)
    result = analysed(graph, p.Execute(cs))
    costs = result.costs
    assert costs.needs_count.tolist() == [True]
    assert costs.is_active.tolist() == [[True]]
    assert costs.compute_sets[0].tables[0].cycles.tolist() == [-1, -1, 5]


def test_exchange_takes_latency_and_the_fullest_tile(small_graph, touch, analysed):
    """Payload at 4 bytes a cycle, at 8 where pairs of enough tiles receive the same."""
    machine = chip("gc200")
    for tiles, payload in (((2,), 100), ((2, 3), 100), ((2, 3, 4, 5), 50), ((2, 3, 4, 6), 50)):
        graph = small_graph(8)
        data = graph.add_variable(FLOAT, [100], "data", mapping=0)
        cs = graph.add_compute_set("cs")
        for tile in tiles:
            edges = {"reads": data, "changes": data[0:0], "writes": data[0:0]}
            graph.add_vertex(cs, touch, edges, tile=tile)
        costs = analysed(graph, p.Execute(cs)).costs
        latency = exchange_latency_cycles(machine, np.array([0, 0]), np.array([2, tiles[-1]]))
        assert costs.tile_exchange(0)[2] == latency[0] + payload
        assert costs.exchange[0, 0] == latency[1] + payload  # the sender, and the farthest
        assert costs.sync[0, 0] == machine.sync_cycles


def test_remote_outputs_take_a_second_phase(small_graph, touch, analysed):
    """Outputs whose home is elsewhere cost a sync and an exchange after the compute."""
    graph = small_graph()
    data = graph.add_variable(FLOAT, [100], "data", mapping=0)
    cs = graph.add_compute_set("cs")
    edges = {"reads": data[0:0], "changes": data[0:0], "writes": data}
    graph.add_vertex(cs, touch, edges, tile=1)
    costs = analysed(graph, p.Execute(cs)).costs
    assert costs.sync[0, 0] == chip("gc200").sync_cycles
    assert costs.exchange[0, 0] == chip("gc200").exchange_latency_cycles + 100


def test_tiles_meet_only_to_exchange(small_graph, analysed):
    """Steps that stay on their tiles need no sync; a copy to another tile does."""
    graph = small_graph()
    a, b = (graph.add_variable(FLOAT, [8], name, mapping=1) for name in "ab")
    c = graph.add_variable(FLOAT, [8], "c", mapping=3)
    steps = p.Sequence([one_set(graph, Six, 1), p.Copy(a, b), p.Copy(b, c)])
    costs = analysed(graph, steps).costs
    assert costs.sync[:, 0].tolist() == [0, 0, chip("gc200").sync_cycles]
    assert costs.is_active.all()


def test_starting_a_compute_set(analysed):
    """On a GC2 the control that starts a compute set takes time; copies have none of it."""
    graph = Graph(IPUModel("gc2", tiles_per_ipu=4).create_target())
    a, b = (graph.add_variable(FLOAT, [8], name, mapping=1) for name in "ab")
    costs = analysed(graph, p.Sequence([one_set(graph, Six, 1), p.Copy(a, b)])).costs
    assert costs.sync[:, 0].tolist() == [chip("gc2").compute_set_start_cycles, 0]


def test_steps_on_different_chips_overlap(small_graph, analysed):
    """A step advances only its chips; data from another chip joins all of them."""
    graph = small_graph(4, 2)
    here, there = one_set(graph, Six, 1), one_set(graph, Six, 5)
    a = graph.add_variable(FLOAT, [1000], "a", mapping=0)
    b = graph.add_variable(FLOAT, [1000], "b", mapping=4)
    costs = analysed(graph, p.Sequence([here, there, p.Copy(a, b)])).costs
    assert costs.is_active.tolist() == [[True, False], [False, True], [True, True]]
    assert costs.joins.tolist() == [False, False, True]
    assert (costs.link_exchange[2] > 0).all()
    assert (costs.sync[2] >= chip("gc200").external_sync_cycles).all()
    assert costs.compute.tolist() == [[100, 0], [0, 100], [0, 0]]


def test_copy_on_a_tile(small_graph, analysed):
    """A copy that stays on its tile is compute: little by one worker, more by all of them."""
    machine = chip("gc200")
    one, all_six = machine.one_word_copy_cycles, machine.on_tile_copy_setup_cycles
    accesses = 256 // machine.memcpy_bytes_per_cycle
    for n_floats, expected in ((1, one), (6, one + 2 * 12), (64, all_six + accesses)):
        graph = small_graph()
        a, b = (graph.add_variable(FLOAT, [n_floats], name, mapping=2) for name in "ab")
        costs = analysed(graph, p.Copy(a, b)).costs
        assert costs.tile_compute(0).tolist() == [0, 0, expected, 0]
    assert costs.exchange.tolist() == [[0]]


def test_streams_share_a_host_sync(small_graph, analysed):
    """Adjacent stream copies pay external sync and latency once, and bytes each."""
    graph = small_graph()
    machine = chip("gc200")
    steps = []
    for name in "ab":
        data = graph.add_variable(FLOAT, [10**6], name, mapping="linear")
        steps.append(p.Copy(graph.add_host_to_device_fifo(name, FLOAT, 10**6), data))
    costs = analysed(graph, p.Sequence(steps)).costs
    assert costs.joins.all()
    assert costs.sync[:, 0].tolist() == [machine.external_sync_cycles, 0]
    latency = machine.host_latency_s * machine.clock_hz
    assert costs.host_exchange[0, 0] - costs.host_exchange[1, 0] == pytest.approx(latency, abs=2)
    least = 4e6 / (machine.host_link_gbytes_per_s * 1e9) * machine.clock_hz
    assert costs.host_exchange[1, 0] >= least - 1


def test_syncs_and_branches(small_graph, analysed):
    """A sync costs by its type; a branch sends its predicate to all tiles."""
    graph = small_graph()
    flag = graph.add_variable(UNSIGNED_INT, [], "flag", mapping=0)
    program = p.Sequence(
        [p.Sync(p.SyncType.INTERNAL), p.Sync(p.SyncType.EXTERNAL), p.If(flag, p.Sequence())]
    )
    costs, machine = analysed(graph, program).costs, chip("gc200")
    internal, external = machine.sync_cycles, machine.external_sync_cycles
    assert costs.sync[:, 0].tolist() == [internal, external, internal]
    assert costs.joins.tolist() == [False, True, False]
    assert costs.exchange[2, 0] == longest_exchange_latency_cycles(machine) + 1


def test_remote_buffers_and_replicas(analysed):
    """Remote buffers cost streaming-memory time, copies between replicas link time."""
    graph = Graph(IPUModel("ipu2", 2, 4).create_device(), replication_factor=2)
    a, b = (graph.add_variable(FLOAT, [1000], name, mapping=1) for name in "ab")
    buffer = graph.add_remote_buffer("buffer", FLOAT, 1000)
    steps = [p.Copy(buffer, a), p.CrossReplicaCopy(a, b, {0: 1, 1: 0})]
    costs = analysed(graph, p.Sequence(steps)).costs
    assert costs.sync.shape == (2, 1)
    assert costs.joins.all()
    assert costs.host_exchange[0, 0] > 0
    assert costs.link_exchange[1, 0] > 0
    assert costs.link_exchange[0, 0] == costs.host_exchange[1, 0] == 0
