"""A program of any number of steps and tiles with uneven cycles, for figures of reports."""

from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

import tremula as tr
from tremula import FLOAT, Input, Output, Vector, Vertex, float32
from tremula.compiler.executable.executable import Executable

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
    def cycles(v: Any, chip: object) -> np.ndarray:  # noqa: ANN401, ARG004 - the form of a cost
        return 20 + v.sizes["x"]


def long_executable(n_steps: int, n_tiles: int = 1472) -> Executable:
    """Layers of compute sets, executed over and over; every step has its own cycles.

    The program is real: its memory, liveness and exchange are what the compiler finds. Cycles of
    tiles are random, as a real program with this many different steps takes minutes to
    build: 30 to 100 % of the tiles are active, with 2 % jitter, as in the study of formats.
    """
    # Control code grows with steps: 100,000 of them take 3.2 MB on a tile.
    model = tr.IPUModel("bow", tiles_per_ipu=n_tiles, n_bytes_per_tile=1 << 24)
    graph = tr.Graph(model.create_device())
    sets = _layers(graph, n_tiles)
    steps = [tr.Execute(sets[i % len(sets)]) for i in range(n_steps)]
    executable = tr.compile_graph(graph, [tr.Sequence(steps, name="training")])
    return _with_uneven_cycles(executable, n_steps, n_tiles)


def _layers(graph: tr.Graph, n_tiles: int) -> list:
    tiles = np.arange(n_tiles)
    tensors = []
    for i in range(N_LAYERS * N_SETS_PER_LAYER + 1):
        name = f"layer{i // N_SETS_PER_LAYER}/activations{i % N_SETS_PER_LAYER}"
        tensor = graph.add_variable(FLOAT, [n_tiles, _FLOATS_PER_TILE], name)
        for tile in range(n_tiles):
            graph.set_tile_mapping(tensor[tile], (tile + i) % n_tiles)
        tensors.append(tensor)
    graph.create_host_write("input", tensors[0])
    sets = []
    for i, (x, y) in enumerate(pairwise(tensors)):
        name = f"layer{i // N_SETS_PER_LAYER}/op{i % N_SETS_PER_LAYER}/halve"
        sets.append(graph.add_compute_set(name))
        graph.add_vertices(sets[-1], Halve, {"x": x, "y": y}, tiles=tiles)
    return sets


def _with_uneven_cycles(executable: Executable, n_steps: int, n_tiles: int) -> Executable:
    random = np.random.default_rng(0)
    base = random.integers(500, 20_000, n_steps)
    n_active = (random.uniform(0.3, 1.0, n_steps) * n_tiles).astype(np.int64)
    jitter = 1 + 0.02 * random.standard_normal((n_steps, n_tiles), np.float32)
    is_active = np.arange(n_tiles) < n_active[:, None]
    compute = (base[:, None] * jitter).astype(np.int64) * is_active
    # What a tile exchanges follows from layouts: a few values, in regular ranges of tiles.
    band = np.arange(n_tiles) * 4 // n_tiles
    exchange = (base[:, None] // 16 + 8 * band) * is_active
    analysis = executable.analysis
    costs = replace(
        analysis.costs,
        tile_row=np.arange(n_steps),
        compute_tiles=compute,
        busy_tiles=compute,
        exchange_tiles=exchange,
        compute=compute.max(axis=1, keepdims=True),
        exchange=exchange.max(axis=1, keepdims=True),
    )
    return replace(executable, analysis=replace(analysis, costs=costs))


def small_report(folder: Path) -> tuple[Path, Path]:
    """The report of a few steps on a few tiles, and a system trace beside it."""
    from tremula.vision.report.write import report_of_engine
    from tremula.vision.trace import recorder as trace

    trace_path = trace.start(folder)
    device = tr.IPUModel("bow", tiles_per_ipu=8).create_device()
    graph = tr.Graph(device)
    sets = _layers(graph, 8)[:12]
    engine = tr.Engine(graph, tr.Repeat(3, tr.Sequence([tr.Execute(s) for s in sets])))
    with trace.channel("loop").span("epoch", number=1):
        engine.load(device).run()
    trace.Graph("loss", "nats").series("training").add(2.3)
    trace.Heatmap("gradients", [0, 1, 2]).add([0.5, 1.5])
    trace.stop()
    return report_of_engine(engine, folder), trace_path
