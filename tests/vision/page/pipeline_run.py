"""A small pipeline over four chips with a report and a system trace.

Stages 0 to 3 go forward over the chips, 4 to 6 back again, as PopTorch's training does. Stage 3
has the most work, so the others wait for it.
"""

from pathlib import Path

import numpy as np

import tremula as tr
from tests.vision.programs import RowSum
from tremula.vision.trace import recorder as trace

N_CHIPS, N_TILES, N_ROWS = 4, 24, 48
CHIP_OF_STAGE = (0, 1, 2, 3, 2, 1, 0)
WORK_OF_STAGE = (6000, 5000, 6000, 16000, 8000, 7000, 8000)  # numbers that each row sums
N_STAGES, N_MICRO_BATCHES, N_RUNS = len(CHIP_OF_STAGE), 12, 2


def run_pipeline(folder: Path) -> None:
    """Leaves the report and the trace of two runs in a folder."""
    trace.start(folder)
    options = {"autoReport.all": "true", "autoReport.directory": str(folder)}
    device = tr.IPUModel("bow", n_ipus=N_CHIPS, tiles_per_ipu=N_TILES).create_device()
    graph = tr.Graph(device)
    engine = tr.Engine(graph, {"train": _program(graph)}, options)
    engine.connect_stream("samples", np.ones(N_ROWS, np.float32))
    engine.load(device)
    for _ in range(N_RUNS):
        engine.run("train")
    trace.stop()
    del engine  # writes its report


def _program(graph: tr.Graph) -> tr.Sequence:
    """Fill, the full pipeline as a loop, flush; then an update on all chips."""
    results = [_totals(graph, f"stage{s}/result", CHIP_OF_STAGE[s]) for s in range(N_STAGES)]
    arriving = [_totals(graph, f"stage{s}/input", CHIP_OF_STAGE[s]) for s in range(N_STAGES)]
    stages = [
        graph.add_function(tr.Sequence([_work(graph, s, results[s])], name=f"stage{s}"))
        for s in range(N_STAGES)
    ]
    samples = graph.add_host_to_device_fifo("samples", tr.FLOAT, N_ROWS)
    pipeline = tr.Sequence(name="pipeline")
    t = 0
    while t < N_MICRO_BATCHES + N_STAGES - 1:
        active = range(max(0, t - N_MICRO_BATCHES + 1), min(t, N_STAGES - 1) + 1)
        count = N_MICRO_BATCHES - N_STAGES + 1 if len(active) == N_STAGES else 1
        body = tr.Sequence([tr.Copy(samples, arriving[0])] if 0 in active else [])
        body.add(*(tr.Call(stages[s]) for s in reversed(active)))
        moving = [s for s in active if s + 1 < N_STAGES]
        if moving:
            shifted = tr.concat([results[s] for s in moving])
            body.add(tr.Copy(shifted, tr.concat([arriving[s + 1] for s in moving]), name="shift"))
        pipeline.add(tr.Repeat(count, body) if count > 1 else body)
        t += count
    updates = tr.Sequence([_work(graph, s, results[s], "update") for s in range(N_CHIPS)])
    return tr.Sequence([pipeline, updates], name="main")


def _totals(graph: tr.Graph, name: str, chip: int) -> tr.Tensor:
    result = graph.add_variable(tr.FLOAT, [N_ROWS], name)
    for row in range(N_ROWS):
        graph.set_tile_mapping(result[row], chip * N_TILES + row % N_TILES)
    return result


def _work(graph: tr.Graph, stage: int, totals: tr.Tensor, name: str = "forward") -> tr.Execute:
    """Sums of rows on the tiles of a stage's chip."""
    rows = graph.add_variable(tr.FLOAT, [N_ROWS, WORK_OF_STAGE[stage]], f"{name}{stage}/rows")
    graph.set_initial_value(rows, 1.0)
    tiles = CHIP_OF_STAGE[stage] * N_TILES + np.arange(N_ROWS) % N_TILES
    for row, tile in enumerate(tiles.tolist()):
        graph.set_tile_mapping(rows[row], tile)
    sums = graph.add_compute_set(f"{name}{stage}/sums")
    graph.add_vertices(sums, RowSum, {"row": rows, "total": totals}, tiles=tiles)
    return tr.Execute(sums)
