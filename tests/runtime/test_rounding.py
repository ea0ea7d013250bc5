"""Workers' random numbers in codelets, and how programs change the rounding of halves."""

import math
import warnings
from typing import Any

import numpy as np
import pytest

import tremula as tr
from tests.runtime.programs import new_graph
from tremula.codelets import codelet_of
from tremula.codelets.interpret import interpret
from tremula.codelets.python.random import (
    random_state,
    random_uniform,
    seed_random,
    seeds_of,
    set_random_state,
    worker_running,
)
from tremula.codelets.python_codelet import call_kernel


def two_draws():
    return tr.random_uniform() + tr.random_uniform()


class Draw(tr.Vertex):
    """Draws in every way, also through a function."""

    out: tr.Output[tr.Vector[tr.float32]]
    bits: tr.Output[tr.Vector[tr.uint64]]

    def compute(self: Any):
        for i in range(len(self.out)):
            self.out[i] = two_draws() + tr.random_normal()
        self.bits[0] = tr.random_uint64()
        self.bits[1] = tr.random_uint32()
        self.bits[2] = random_state(0)


class DrawByAll(tr.MultiVertex):
    """Worker w writes its share."""

    out: tr.Output[tr.Vector[tr.float32]]

    def compute(self: Any, worker_id: int):
        n = len(self.out)
        for i in range(n * worker_id // 6, n * (worker_id + 1) // 6):
            self.out[i] = tr.random_uniform()


class Narrow(tr.Vertex):
    """Rounds floats to halves."""

    x: tr.Input[tr.Vector[tr.float32]]
    out: tr.Output[tr.Vector[tr.half]]

    def compute(self: Any):
        for i in range(len(self.x)):
            self.out[i] = self.x[i]


class Accumulate(tr.Vertex):
    """Sums halves in half, through a function, a product and a reduction."""

    x: tr.Input[tr.Vector[tr.half]]
    out: tr.Output[tr.Vector[tr.half]]

    def compute(self: Any):
        total = tr.half(0)
        for i in range(len(self.x)):
            total += self.x[i]
        self.out[0] = total
        self.out[1] = np.dot(self.x, self.x)
        self.out[2] = math.exp(self.x[0]) * self.x[1]
        self.out[3:] = self.x[3:]


class KeepGoing(tr.Vertex):
    """Its number of draws is data."""

    n: tr.Output[tr.uint32]

    def compute(self: Any):
        count = 0
        while tr.random_uniform() < 0.5:
            count += 1
        self.n = count


def drawing(n_vertices=40, n_each=1000, codelet=DrawByAll, options=None, tiles=4):
    """An engine that fills rows of numbers, one vertex each."""
    graph = new_graph(tiles=tiles)
    tile = np.arange(n_vertices) % tiles
    out = graph.add_variable(tr.FLOAT, [n_vertices, n_each], "out")
    for v in range(n_vertices):
        graph.set_tile_mapping(out[v], int(tile[v]))
    fields = {"out": out}
    if codelet is Draw:
        bits = graph.add_variable(tr.UNSIGNED_LONGLONG, [n_vertices, 3], "bits", mapping="linear")
        graph.create_host_read("bits", bits)
        fields["bits"] = bits
    graph.create_host_read("out", out)
    cs = graph.add_compute_set("draw")
    graph.add_vertices(cs, codelet, fields, tiles=tile)
    return tr.Engine(graph, tr.Sequence(tr.Execute(cs)), options or {}).load()


def narrowing(values, programs, options=None, codelet=Narrow, type=tr.FLOAT, n_out=None):
    """An engine that runs `codelet` on values, after each of the programs (numbered from 1)."""
    graph = new_graph()
    x = graph.add_variable(type, [len(values)], "x", mapping=1)
    out = graph.add_variable(tr.HALF, [n_out or len(values)], "out", mapping=1)
    graph.set_initial_value(x, np.asarray(values, x.type.dtype))
    graph.create_host_read("out", out)
    cs = graph.add_compute_set("narrow")
    graph.add_vertex(cs, codelet, {"x": x, "out": out}, tile=1)
    made = [tr.Sequence(tr.Execute(cs))]
    for program in programs:
        made.append(tr.Sequence())
        program(graph, made[-1])
    return tr.Engine(graph, made, options or {}).load()


def stochastic(graph, sequence):
    tr.set_stochastic_rounding(graph, sequence, True)


def nearest(graph, sequence):
    tr.set_stochastic_rounding(graph, sequence, False)


def overflow(**flags):
    quiet = {"inv": False, "div0": False, "oflo": False} | flags
    return lambda graph, sequence: tr.set_floating_point_behaviour(graph, sequence, **quiet)


def results(engine, n_runs):
    result = []
    for _ in range(n_runs):
        engine.run(0)
        result.append(engine.read_tensor("out"))
    return np.array(result)


# -- random numbers --------------------------------------------------------------------------------


def test_generator_is_xoroshiro128aox():
    """The first numbers from a known state, worked out by hand from the published recurrence."""
    record = np.array([1, 2, 0], np.uint64)
    with worker_running(record):
        assert tr.random_uint64() == 3  # 1 ^ 2, and no bit in common
        assert record[0] == (1 << 55) ^ 3 ^ (3 << 14)
        assert record[1] == 3 << 36
        assert tr.random_uint64() == (1 << 55) ^ 3 ^ (3 << 14) ^ (3 << 36)


def test_draws_are_the_same_natively_and_in_python():
    """Every random function gives the same values and leaves the same state either way."""
    codelet = codelet_of(Draw)
    columns = tuple(np.array([v]) for v in (100, 50, 300, 3, 480))
    arenas = [np.zeros(4096, np.uint8) for _ in range(2)]
    for arena in arenas:
        arena.view(np.uint64)[480:482] = seeds_of(3, 1)[0]
    call_kernel(codelet.kernel_address(), arenas[0], columns, 0, 1)
    interpret(codelet, arenas[1], columns, 0)
    assert np.array_equal(*arenas)
    assert len(np.unique(arenas[0].view(np.float32)[100:150])) == 50


def test_moments_of_uniform_and_normal():
    """Uniform numbers fill [0, 1) evenly; normal ones have mean 0, deviation 1, kurtosis 2.9."""
    record = np.array([*seeds_of(1, 1)[0], 0], np.uint64)
    with worker_running(record):
        normal = np.array([tr.random_normal() for _ in range(20_000)])
        uniform = np.array([tr.random_uniform() for _ in range(20_000)])
    assert abs(normal.mean()) < 0.03
    assert abs(normal.std() - 1) < 0.03
    assert abs((normal**4).mean() - 2.9) < 0.3  # of the sum of 12: 3 - 1.2 / 12
    counts = np.histogram(uniform, 20, (0, 1))[0]
    assert ((counts - 1000) ** 2).sum() / 1000 < 45  # chi square, 19 degrees of freedom
    assert 0 <= uniform.min() < uniform.max() < 1


def test_random_numbers_outside_compute_are_refused():
    """There is no worker on the host."""
    with pytest.raises(tr.errors.RuntimeFailure, match="exist only inside compute"):
        random_uniform()


def test_states_can_be_seeded_saved_and_set():
    """seed_random of stream i is what seeds_of says; a state set again repeats its numbers."""
    record = np.zeros(3, np.uint64)
    with worker_running(record):
        seed_random(77, 5)
        assert np.array_equal(record[:2], seeds_of(77, 6)[5])
        saved = [random_state(0), random_state(1)]
        first = tr.random_uint64()
        set_random_state(0, saved[0])
        set_random_state(1, saved[1])
        assert tr.random_uint64() == first


@pytest.mark.parametrize("codelet", [Draw, DrawByAll])
def test_values_depend_on_the_seed_and_not_on_threads(codelet):
    """One and four threads draw the same; another seed draws others; load starts again."""
    one = drawing(codelet=codelet, options={"tremula.threads": 1})
    four = drawing(codelet=codelet, options={"tremula.threads": 4})
    other = drawing(codelet=codelet, options={"tremula.seed": 1})
    for engine in (one, four, other):
        engine.run()
    first = one.read_tensor("out")
    assert np.array_equal(first, four.read_tensor("out"))
    assert not np.array_equal(first, other.read_tensor("out"))
    one.run()
    assert not np.array_equal(first, one.read_tensor("out"))
    one.load().run()
    assert np.array_equal(first, one.read_tensor("out"))


def test_every_worker_of_every_replica_has_its_own_numbers():
    """No number of a MultiVertex on 4 tiles of 2 replicas occurs twice."""
    graph = new_graph(n_ipus=2, replicas=2)
    out = graph.add_variable(tr.FLOAT, [4, 60], "out", mapping="linear")
    graph.create_host_read("out", out)
    cs = graph.add_compute_set("draw")
    graph.add_vertices(cs, DrawByAll, {"out": out}, tiles=range(4))
    engine = tr.Engine(graph, tr.Sequence(tr.Execute(cs))).load()
    engine.run()
    both = np.concatenate([engine.read_tensor("out", r).ravel() for r in range(2)])
    assert len(np.unique(both)) == both.size


def test_hw_seeds_repeat_random_numbers():
    """Seeds saved before and restored after make a program draw the same again."""
    graph = new_graph()
    out = graph.add_variable(tr.FLOAT, [24], "out", mapping=2)
    graph.create_host_read("out", out)
    cs = graph.add_compute_set("draw")
    graph.add_vertex(cs, DrawByAll, {"out": out}, tile=2)
    save, restore = tr.Sequence(), tr.Sequence()
    seeds = tr.get_hw_seeds(graph, save)
    tr.set_hw_seeds(graph, seeds, restore)
    engine = tr.Engine(graph, [save, tr.Sequence(tr.Execute(cs)), restore]).load()
    drawn = []
    for program in (0, 1, 2, 1):
        engine.run(program)
        drawn.append(engine.read_tensor("out"))
    assert np.array_equal(drawn[1], drawn[3])


def test_wrong_hw_seeds_are_refused():
    """A seed of two words is not the seeds of all workers."""
    graph = new_graph()
    seed = graph.add_variable(tr.UNSIGNED_INT, [2], "seed", mapping=0)
    with pytest.raises(tr.errors.ControlProgramError, match=r"are unsigned int \[4, 6, 4\], got"):
        tr.set_hw_seeds(graph, seed, tr.Sequence())


def test_branches_on_random_numbers_are_counted_as_they_run():
    """A loop that ends at random has no cost before it runs, and one after."""
    graph = new_graph()
    n = graph.add_variable(tr.UNSIGNED_INT, [], "n", mapping=0)
    cs = graph.add_compute_set("keep going")
    graph.add_vertex(cs, KeepGoing, {"n": n}, tile=0)
    assert codelet_of(KeepGoing).is_data_dependent
    engine = tr.Engine(graph, tr.Sequence(tr.Execute(cs))).load()
    engine.run()
    assert engine.clock.total_cycles > 0


def test_strict_mode_allows_drawing():
    """Drawing changes the workers' states, which are outside all variables and order-dependent."""
    engine = drawing(12, 30, options={"debug.strict": "true"})
    engine.run()
    plain = drawing(12, 30)
    plain.run()
    assert np.array_equal(engine.read_tensor("out"), plain.read_tensor("out"))


def test_drawing_programs_survive_files(tmp_path):
    """A saved executable draws the same numbers, and one whose workers were moved is refused."""
    engine = drawing(8, 20)
    engine.executable.save(str(tmp_path / "draw.tremula"))
    loaded = tr.Engine(tr.Executable.load(str(tmp_path / "draw.tremula"))).load()
    for one in (engine, loaded):
        one.run()
    assert np.array_equal(engine.read_tensor("out"), loaded.read_tensor("out"))
    engine.executable.compute_sets[0].tables[0].columns[-1][0] += 1
    engine.executable.save(str(tmp_path / "moved.tremula"))
    with pytest.raises(tr.errors.FileLoadError, match="a worker's record is misplaced"):
        tr.Executable.load(str(tmp_path / "moved.tremula"))


# -- rounding --------------------------------------------------------------------------------------

NUMBERS = np.array([1.0001, -3.3, 0.1, 2.5, -1e-7, 3e-8, 6.1e-5, 1000.4, 0.0, 60000], np.float32)
# Neighbours of each number: the halves at or below it and at or above it.
BELOW = np.where(
    NUMBERS.astype(np.float16) > NUMBERS,
    np.nextafter(NUMBERS.astype(np.float16), np.float16(-np.inf)),
    NUMBERS.astype(np.float16),
)
ABOVE = np.where(BELOW == NUMBERS, BELOW, np.nextafter(BELOW, np.float16(np.inf)))


def test_default_rounding_is_numpys():
    """Without a rounding mode, halves round to nearest even and overflow to infinity."""
    values = [*NUMBERS, 65519, 65520, 1e9, -1e9, np.nan]
    engine = narrowing(values, [])
    with np.errstate(over="ignore"):
        expected = np.array(values, np.float32).astype(np.float16)
    assert np.array_equal(results(engine, 1)[0], expected, equal_nan=True)


def test_stochastic_rounding_is_unbiased_between_the_neighbours():
    """Each result is one of the two neighbours, and their mean is the number itself."""
    engine = narrowing(np.repeat(NUMBERS, 4000), [stochastic])
    engine.run(1)
    result = results(engine, 1)[0].reshape(len(NUMBERS), -1)
    assert ((result == BELOW[:, None]) | (result == ABOVE[:, None])).all()
    step = ABOVE.astype(np.float64) - BELOW
    error = np.abs(result.astype(np.float64).mean(axis=1) - NUMBERS)
    assert (error <= 4.5 * step / np.sqrt(4000) / 2).all()
    is_between = step > 0
    assert ((result != result[:, :1]).any(axis=1) == is_between).all()


def test_stochastic_rounding_repeats_from_the_seed_and_ends_when_told():
    """Loads with one seed round alike, runs differ; switched off it is nearest again."""
    engine = narrowing(np.full(64, 0.1), [stochastic, nearest])
    engine.run(1)
    first = results(engine, 2)
    assert not np.array_equal(*first)
    engine.run(2)
    assert (results(engine, 1) == np.float16(0.1)).all()
    engine.load().run(1)
    assert np.array_equal(results(engine, 2), first)
    engine.load()
    assert (results(engine, 1) == np.float16(0.1)).all()


def test_stochastic_rounding_reaches_every_operation():
    """Sums, products, functions and copies in half round by chance; exact ones stay exact."""
    values = np.full(64, 0.1).astype(np.float16)
    engine = narrowing(values, [stochastic], codelet=Accumulate, type=tr.HALF)
    engine.run(1)
    result = results(engine, 60).astype(np.float64)
    exact = values.astype(np.float64)
    assert abs(result[:, 0].mean() - exact.sum()) < 0.005
    assert abs(result[:, 1].mean() - (exact**2).sum()) < 0.002
    assert [len(np.unique(result[:, i])) > 1 for i in range(4)] == [True, True, True, False]
    assert (result[:, 3:] == exact[3:]).all()


@pytest.mark.parametrize(
    ("program", "expected"),
    [
        (overflow(nanoo=False), [65504, -65504, np.inf, 65504, 1]),
        (overflow(nanoo=True), [np.nan, np.nan, np.inf, 65504, 1]),
        (overflow(nanoo=False, esr=True), [65504, -65504, np.inf, 65504, 1]),
    ],
)
def test_overflow_follows_the_mode(program, expected):
    """Overflow gives the largest half or NaN; infinity, which is no overflow, stays."""
    engine = narrowing([1e6, -1e6, np.inf, 65504, 1], [program])
    engine.run(1)
    assert np.array_equal(results(engine, 1)[0], np.array(expected), equal_nan=True)


def test_overflow_that_stops_still_stops():
    """With the exception on, an overflowing half is an error and not the largest half."""
    engine = narrowing([1e6], [overflow(oflo=True)])
    engine.run(1)
    with pytest.raises(tr.errors.RuntimeFailure, match="overflow or division by zero"):
        engine.run(0)


def test_strict_mode_allows_stochastic_rounding():
    """The order of vertices may change what is rounded how; that is no mistake of the program."""
    engine = narrowing(np.full(64, 0.1), [stochastic], options={"debug.strict": "true"})
    engine.run(1)
    assert len(np.unique(results(engine, 1))) == 2


CPP = """
#include <poplar/Vertex.hpp>
struct Twice : public poplar::Vertex {
  poplar::InOut<poplar::Vector<half>> x;
  void compute() { for (auto &v : x) v = v + v; }
};
"""


def test_cpp_codelets_say_that_they_round_to_nearest(tmp_path):
    """A C++ codelet with halves in a program that changes rounding gives a warning."""
    (tmp_path / "twice.cpp").write_text(CPP)
    graph = new_graph()
    graph.add_codelets(str(tmp_path / "twice.cpp"))
    x = graph.add_variable(tr.HALF, [4], "x", mapping=0)
    cs = graph.add_compute_set("twice")
    graph.set_perf_estimate(graph.add_vertex(cs, "Twice", {"x": x}, tile=0), 10)
    program = tr.Sequence(tr.Execute(cs))
    tr.set_stochastic_rounding(graph, program, True)
    engine = tr.Engine(graph, program).load()
    with pytest.warns(UserWarning, match=r"C\+\+ codelets \(Twice\) round to nearest"):
        engine.run()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        narrowing([1.0], [stochastic]).run(1)


def test_the_option_starts_with_nan_on_overflow():
    """debug.nanOverflowMode makes halves that overflow NaN without any program asking."""
    engine = narrowing([1.0, 1e6], [], options={"debug.nanOverflowMode": "true"})
    engine.run(0)
    got = results(engine, 1).ravel()
    assert got[0] == 1.0
    assert np.isnan(got[1])
