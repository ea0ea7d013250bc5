"""The core figures: building, compiling and running tile programs."""

import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator

import numpy as np

from benchmarks.figures import Figure, Suite
from benchmarks.measure import peak_rss_of, ratio

SUITE = Suite("core")
N_ADDERS = 1_000_000
GIB = 2**30

_COMPILE_ADDERS = f"""
from benchmarks.core.programs import adder_engine
adder_engine(8)  # warm up: load the kernels' and passes' native code
import time
started = time.perf_counter()
adder_engine({N_ADDERS})
print(time.perf_counter() - started)
"""


@SUITE.measurement("adders-bulk")
def adders_bulk() -> Iterator[Figure]:
    """A million Adders by add_vertices, compiled."""
    usage = peak_rss_of(_COMPILE_ADDERS)
    yield Figure.of("adders-bulk-seconds", float(usage.output), "s", "<= 5")
    yield Figure.of("adders-bulk-peak", usage.peak_bytes / GIB, "GiB", "<= 1")


@SUITE.measurement("adders-one-by-one")
def adders_one_by_one() -> Iterator[Figure]:
    """Adders added one at a time, views and all."""
    import tremula as tr
    from benchmarks.core.programs import Adder, adder_tiles, adder_variables

    graph = tr.Graph(tr.IPUModel("bow").create_device())
    x, y, z = adder_variables(graph, N_ADDERS)
    adders = graph.add_compute_set("adders")
    tiles = adder_tiles(N_ADDERS).tolist()
    started = time.process_time()  # one thread: other programs on the machine do not count
    for i in range(N_ADDERS):
        graph.add_vertex(adders, Adder, {"x": x[i], "y": y[i], "z": z[i], "bias": i}, tile=tiles[i])
    per_second = N_ADDERS / (time.process_time() - started)
    yield Figure.of("adders-one-by-one", per_second, "vertices/s", ">= 100000")


@SUITE.measurement("adders-run")
def adders_run() -> Iterator[Figure]:
    """Running the table against the same loop by hand."""
    from benchmarks.core.programs import ADDER_LENGTH, adder_engine, adders_by_hand

    engine = adder_engine(N_ADDERS).load()
    random = np.random.default_rng(0)
    x = random.random(N_ADDERS, np.float32)
    y = random.random(N_ADDERS * ADDER_LENGTH, np.float32)
    engine.write_tensor("x", x)
    engine.write_tensor("y", y)
    place = np.arange(N_ADDERS)
    start, length = place * ADDER_LENGTH, np.full(N_ADDERS, ADDER_LENGTH)
    z, bias = np.zeros_like(x), np.arange(N_ADDERS, dtype=np.float32)
    columns = (place, start, length, place.copy(), bias)
    measured = ratio(engine.run, lambda: adders_by_hand(x, y, z, *columns))
    np.testing.assert_allclose(engine.read_tensor("z"), z, rtol=1e-6)
    yield Figure.of("adders-run", measured.value, "× by hand", "<= 1.2")


@SUITE.measurement("heat")
def heat() -> Iterator[Figure]:
    """200 steps of the heat equation on 4096², halos by views."""
    from benchmarks.core.programs import heat_by_hand
    from tremula.demo.heat import heat_engine

    n, n_steps = 4096, 200
    engine = heat_engine(n, n_steps, (184, 8)).load()
    start = np.random.default_rng(0).random((n, n), np.float32)
    engine.write_tensor("a", start)
    engine.write_tensor("b", start)
    a, b = start.copy(), start.copy()
    heat_by_hand(a.copy(), b.copy(), 2)
    engine.run()
    heat_by_hand(a, b, n_steps)
    np.testing.assert_allclose(engine.read_tensor("plate"), a, rtol=1e-4, atol=1e-5)
    measured = ratio(engine.run, lambda: heat_by_hand(a, b, n_steps), rounds=3)
    yield Figure.of("heat-4096", measured.value, "× by hand", "<= 1.5")


@SUITE.measurement("repeat")
def repeat() -> Iterator[Figure]:
    """Repeat(10,000) of a 1472-vertex set against the same loop by hand."""
    from benchmarks.core.programs import N_TILES, repeat_by_hand, repeat_engine

    n_repeats = 10_000
    engine = repeat_engine(n_repeats).load()
    random = np.random.default_rng(0)
    x, y = random.random(N_TILES, np.float32), random.random(N_TILES, np.float32)
    place = np.arange(N_TILES)
    engine.write_tensor("x", x)
    engine.write_tensor("y", y)
    engine.run()
    by_hand = x.copy()
    repeat_by_hand(by_hand, y, place, place, n_repeats)
    np.testing.assert_allclose(engine.read_tensor("x"), by_hand, rtol=1e-6)
    measured = ratio(engine.run, lambda: repeat_by_hand(by_hand, y, place, place, n_repeats))
    yield Figure.of("repeat-10000", measured.value, "× by hand", "<= 1.3")


_SLICES = """
import time, tremula as tr
graph = tr.Graph(tr.IPUModel("bow").create_device())
tensor = graph.add_variable(tr.FLOAT, [1000, 1000, 1000], "big")
started = time.perf_counter()
for i in range(1_000_000):
    tensor.slice(i % 900, i % 900 + 50, 1)
print(time.perf_counter() - started)
"""


@SUITE.measurement("views")
def views() -> Iterator[Figure]:
    """A million slices of a tensor of 10⁹ elements."""
    usage = peak_rss_of(_SLICES)
    yield Figure.of("views-seconds", float(usage.output), "s", "<= 5")
    yield Figure.of("views-peak", usage.peak_bytes / 1e9, "bytes/element", "<= 0.5")


@SUITE.measurement("tutorial-6")
def tutorial_6() -> Iterator[Figure]:
    """The planner of tutorial 6 on 10000 x 1000, and what its plan costs when it runs."""
    import tremula as tr
    from tremula.garden.models import matrix_vector as tut6

    n_rows, n_cols = 10_000, 1_000
    gc200, gc2 = (tr.IPUModel(arch).create_target() for arch in ("ipu2", "ipu1"))
    best = tut6.plan(n_rows, n_cols, gc200)
    worst_on_gc2 = tut6.plan(n_rows, n_cols, gc2).worst_cycles
    yield Figure.of("tut6-best-ipu2", best.cycles, "cycles", "== 3996")
    yield Figure.of("tut6-worst-ipu2", best.worst_cycles, "cycles", "== 53807")
    yield Figure.of("tut6-worst-ipu1", worst_on_gc2, "cycles", "== 64373")
    graph = tr.Graph(gc200)
    program = tut6.build(graph, n_rows, n_cols, best.n_splits).multiply
    engine = tr.Engine(graph, program).load()
    engine.run()
    tiles = engine.report().tiles
    yield Figure.of("tut6-busy", float(tiles.busy.mean()), "cycles", "3717.6 ± 0.5 %")
    yield Figure.of("tut6-compute", float(tiles.compute.mean()), "cycles", "3801.8 ± 0.5 %")


@SUITE.measurement("import")
def import_time() -> Iterator[Figure]:
    """`import tremula`, with a graph's worth of names, in a fresh process; best of five."""
    code = (
        "import time; t = time.perf_counter(); import tremula; tremula.Graph; "
        "print(time.perf_counter() - t); import sys; assert 'torch' not in sys.modules"
    )
    runs = [
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        for _ in range(5)
    ]
    best = min(float(run.stdout) for run in runs)
    yield Figure.of("import-seconds", best, "s", "<= 0.3")


_FIRST_ENGINE = """
from benchmarks.core.programs import adder_engine
adder_engine(1472).load().run()
"""


@SUITE.measurement("first-engine")
def first_engine() -> Iterator[Figure]:
    """The first engine ever on a machine, a vertex per tile: imports and all, no caches.

    Processor time of one process, which other programs on the machine hardly change.
    """
    with tempfile.TemporaryDirectory() as folder:
        caches = {"TREMULA_CACHE_DIR": folder, "NUMBA_CACHE_DIR": f"{folder}/numba"}
        used = peak_rss_of(
            "import time\n" + _FIRST_ENGINE + "print(time.process_time())", environment=caches
        )
    yield Figure.of("first-engine", float(used.output), "s", "<= 5")


_MANY_VERTICES = """
import time, tremula as tr
from benchmarks.core.many_vertices import many_vertices_source, some_of_many
from benchmarks.core.programs import adder_engine
adder_engine(8).load().run()  # warm up: load what every engine needs
started = time.perf_counter()
graph = tr.Graph(tr.IPUModel("bow", tiles_per_ipu=16).create_device())
assert len(graph.add_codelets(many_vertices_source())) == 750
engine = tr.Engine(graph, some_of_many(graph)).load()
engine.run()
print(time.perf_counter() - started)
"""


@SUITE.measurement("cpp-750-vertices")
def many_cpp_vertices() -> Iterator[Figure]:
    """A C++ file of 750 vertices: all are described, 15 of them run; first time, and again.

    Each in a new process, which has run another engine before.
    """
    with tempfile.TemporaryDirectory() as folder:
        for name, bar in (("cpp-750-vertices", "<= 30"), ("cpp-750-vertices-again", "<= 1")):
            used = peak_rss_of(_MANY_VERTICES, environment={"TREMULA_CACHE_DIR": folder})
            yield Figure.of(name, float(used.output), "s", bar)
