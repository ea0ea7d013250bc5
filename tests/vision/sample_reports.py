"""A program of any number of steps and tiles with uneven cycles, for figures of reports."""

import subprocess
import sys
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

import tremula as tr
from tremula import FLOAT, Input, Output, Vector, Vertex, float32
from tremula.base.errors import FileLoadError, RuntimeFailure
from tremula.compiler.executable.executable import Executable
from tremula.poplar.tensors.tile_map import TileMapping

N_LAYERS = 24
N_SETS_PER_LAYER = 4
_FLOATS_PER_TILE = 32


class Halve(Vertex):
    """Some work for each tile."""

    x: Input[Vector[float32]]
    y: Output[Vector[float32]]

    def compute(self: Any) -> None:
        for i in range(len(self.x)):
            self.y[i] = self.x[i] * float32(0.5)

    @staticmethod
    def cycles(v: Any, chip: object) -> np.ndarray:
        return 20 + v.sizes["x"]


def long_executable(
    n_steps: int, tiles_per_ipu: int = 1472, n_ipus: int = 1, n_layers: int = N_LAYERS
) -> Executable:
    """Layers of compute sets, executed over and over; every step has its own cycles.

    The program is real: its memory, liveness and exchange are what the compiler finds. Cycles of
    tiles are random, as a real program with this many different steps takes minutes to
    build: 30 to 100 % of the tiles are active, with 2 % jitter, as in the study of formats.
    """
    # Control code grows with steps: 100,000 of them take 3.2 MB on a tile.
    model = tr.IPUModel("bow", n_ipus, tiles_per_ipu, n_bytes_per_tile=1 << 24)
    graph = tr.Graph(model.create_device())
    sets = _layers(graph, tiles_per_ipu * n_ipus, n_layers)
    steps = [tr.Execute(sets[i % len(sets)]) for i in range(n_steps)]
    executable = tr.compile_graph(graph, [tr.Sequence(steps, name="training")])
    return _with_uneven_cycles(executable, n_steps, tiles_per_ipu, n_ipus)


def _layers(graph: tr.Graph, n_tiles: int, n_layers: int) -> list:
    tiles = np.arange(n_tiles)
    tensors = []
    for i in range(n_layers * N_SETS_PER_LAYER + 1):
        name = f"layer{i // N_SETS_PER_LAYER}/activations{i % N_SETS_PER_LAYER}"
        tensor = graph.add_variable(FLOAT, [n_tiles, _FLOATS_PER_TILE], name)
        begin = tiles * _FLOATS_PER_TILE
        mapping = TileMapping(begin, begin + _FLOATS_PER_TILE, np.roll(tiles, -i), n_tiles)
        graph.set_tile_mapping(tensor, mapping)
        tensors.append(tensor)
    graph.create_host_write("input", tensors[0])
    sets = []
    for i, (x, y) in enumerate(pairwise(tensors)):
        name = f"layer{i // N_SETS_PER_LAYER}/op{i % N_SETS_PER_LAYER}/halve"
        sets.append(graph.add_compute_set(name))
        graph.add_vertices(sets[-1], Halve, {"x": x, "y": y}, tiles=tiles)
    return sets


def _with_uneven_cycles(
    executable: Executable, n_steps: int, tiles_per_ipu: int, n_ipus: int
) -> Executable:
    random = np.random.default_rng(0)
    n_tiles = tiles_per_ipu * n_ipus
    base = random.integers(500, 20_000, n_steps)
    n_active = (random.uniform(0.3, 1.0, n_steps) * tiles_per_ipu).astype(np.int64)
    # What a tile exchanges follows from layouts: a few values, in regular ranges of tiles.
    band = 8 * (np.arange(n_tiles) % tiles_per_ipu * 4 // tiles_per_ipu)
    compute, exchange = (np.empty((n_steps, n_tiles), np.int64) for _ in range(2))
    for step in range(n_steps):
        jitter = 1 + 0.02 * random.standard_normal(n_tiles, np.float32)
        is_active = np.arange(n_tiles) % tiles_per_ipu < n_active[step]
        compute[step] = (base[step] * jitter).astype(np.int64) * is_active
        exchange[step] = (base[step] // 16 + band) * is_active
    analysis = executable.analysis
    by_chip = (n_steps, n_ipus, tiles_per_ipu)
    costs = replace(
        analysis.costs,
        tile_row=np.arange(n_steps),
        compute_tiles=compute,
        busy_tiles=compute,
        exchange_tiles=exchange,
        compute=compute.reshape(by_chip).max(axis=2),
        exchange=exchange.reshape(by_chip).max(axis=2),
    )
    return replace(executable, analysis=replace(analysis, costs=costs))


def small_report(folder: Path) -> tuple[Path, Path]:
    """The report of a few steps on a few tiles, and a system trace beside it."""
    from tremula.vision.report.write import report_of_engine
    from tremula.vision.trace import recorder as trace

    trace_path = trace.start(folder)
    device = tr.IPUModel("bow", tiles_per_ipu=8).create_device()
    graph = tr.Graph(device)
    sets = _layers(graph, 8, 3)
    engine = tr.Engine(graph, tr.Repeat(3, tr.Sequence([tr.Execute(s) for s in sets])))
    with trace.channel("loop").span("epoch", number=1):
        engine.load(device).run()
    trace.Graph("loss", "nats").series("training").add(2.3)
    trace.Heatmap("gradients", [0, 1, 2]).add([0.5, 1.5])
    trace.stop()
    return report_of_engine(engine, folder), trace_path


def report_of_example(folder: Path, name: str, *arguments: str) -> Path:
    """Run an example of a checkout, as `tremula run --report` does; returns its one report."""
    script = Path(__file__).resolve().parents[2] / "examples" / name
    if not script.exists():
        raise FileLoadError(
            f"there is no example {str(script)!r}.", hint="measure this in a checkout of Tremula"
        )
    command = [sys.executable, "-m", "tremula", "run", "--report", str(folder), str(script)]
    done = subprocess.run([*command, *arguments], capture_output=True, text=True, check=False)
    reports = list(folder.rglob("profile.pop"))
    if done.returncode or len(reports) != 1:
        raise RuntimeFailure(
            f"{name} ended with exit code {done.returncode} and left {len(reports)} reports:\n"
            f"{done.stderr[-2000:]}",
            hint="run the example by itself",
        )
    return reports[0]
