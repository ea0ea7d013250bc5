"""The PopTorch Geometric figures: feeding, packing, speed on a CPU and a GPU, accuracy, layers."""

import json
import time
from collections.abc import Iterator

from benchmarks.figures import Figure, Suite
from benchmarks.geometric import gpu
from benchmarks.measure import peak_rss_of, ratio

SUITE = Suite("geometric")


@SUITE.measurement("feeding")
def feeding() -> Iterator[Figure]:
    """Molecules per second of the packed loader, masks included, against PyG's DataLoader."""
    from benchmarks.geometric.programs import (
        molecules,
        packed_loader,
        plain_loader,
        sizes_for,
    )

    columns = molecules(8000)
    loader = packed_loader(columns, sizes_for(columns, 16), 32)
    plain = plain_loader(columns, 16)
    measured = ratio(lambda: list(loader), lambda: list(plain), rounds=3)
    # Packs are whole calls, so that some of the last molecules are left out.
    share = sum(int(batch.graphs_mask.sum()) for batch in loader) / len(columns)
    yield Figure.of("feeding-packed", share / measured.value, "× PyG", ">= 30")


@SUITE.measurement("packing")
def packing() -> Iterator[Figure]:
    """Packs of all molecules: seconds to plan them, and how full they are."""
    from poptorch_geometric.histogram_packing_sampler import HistogramPackingSampler
    from tremula.garden.models.datasets.qm9 import qm9

    sizes = qm9().graph_sizes
    began = time.perf_counter()
    sampler = HistogramPackingSampler(sizes, 30, 256, shuffle=True, seed=0)
    next(iter(sampler))
    yield Figure.of("packing-seconds", time.perf_counter() - began, "s", "<= 10")
    yield Figure.of("packing-efficiency", sampler.efficiency, "of nodes", ">= 0.98")


_TILES = """
import json, time, torch, poptorch
from benchmarks.geometric.programs import *
columns = molecules(500)
sizes = sizes_for(columns, 7)
model = schnet(sizes.num_graphs)
training = our_training(model, 1)
batch = next(iter(packed_loader(columns, sizes, 1)))
training.compile(*arguments(batch, FIELDS))
began = time.perf_counter()
training.tile_program().timing(has_run=False)
print(json.dumps(time.perf_counter() - began))
"""


@SUITE.measurement("tile-compile")
def tile_compile() -> Iterator[Figure]:
    """The tile program of a training step of SchNet, built and compiled."""
    used = peak_rss_of(_TILES)
    seconds = json.loads(used.output.strip().splitlines()[-1])
    yield Figure.of("tile-compile-schnet", seconds, "s", "<= 30")


@SUITE.measurement("host")
def host() -> Iterator[Figure]:
    """A step on a CPU, eager, against plain PyG on the same static batch."""
    from benchmarks.geometric.programs import (
        MODELS,
        PlainStep,
        arguments,
        molecules,
        our_training,
        packed_loader,
        sizes_for,
    )
    from tremula.ir.settings import configured

    columns = molecules(500)
    sizes = sizes_for(columns, 7)
    batch = next(iter(packed_loader(columns, sizes, 1)))
    for name, case in MODELS.items():
        model = case.make(sizes.num_graphs)
        inputs = arguments(batch, case.fields)
        plain, ours = PlainStep.of(model), our_training(model, 1)
        with configured(host="eager", device="cpu"):
            ours(*inputs)
        measured = ratio(lambda: ours(*inputs), lambda: plain(inputs), min_time_s=0.2)  # noqa: B023
        yield Figure.of(f"host-{name}", measured.value, "× eager", "<= 1.0")


@SUITE.measurement("accuracy")
def accuracy() -> Iterator[Figure]:
    """SchNet after 5 epochs, ours and plain PyG, from the same seeds and batches: mean errors."""
    import torch

    from benchmarks.geometric.programs import (
        FIELDS,
        PlainStep,
        arguments,
        molecules,
        our_training,
        packed_loader,
        schnet,
        sizes_for,
    )

    columns = molecules(256)
    sizes = sizes_for(columns, 32)
    torch.manual_seed(0)
    model = schnet(sizes.num_graphs)
    plain, ours = PlainStep.of(model), our_training(model, 1)
    loader = packed_loader(columns, sizes, 1)
    for _ in range(5):
        for batch in loader:
            inputs = arguments(batch, FIELDS)
            ours(*inputs)
            plain(inputs)
    ours.copyWeightsToHost()
    errors = []
    for trained in (ours.model, plain.model):
        result = []
        with torch.no_grad():
            for batch in loader:
                out, _ = trained(*arguments(batch, FIELDS))
                result.append((out - batch.y)[batch.graphs_mask].abs())
        errors.append(float(torch.cat(result).mean()))
    difference = 100 * abs(errors[0] - errors[1]) / errors[1]
    yield Figure.of("accuracy-schnet-mae", difference, "% apart", "<= 2")


@SUITE.measurement("layers")
def layers() -> Iterator[Figure]:
    """Layers of PyG that can be static, and train as in plain PyG: on the host and on tiles."""
    from tests.frontends.geometric.layer_sweep import FINE, SIDES, sweep
    from tests.frontends.geometric.layer_table import CASES

    cases = [case for case in CASES if case.make is not None]
    rows = list(sweep(cases, n_processes=2))
    for side in SIDES:
        n_fine = sum(getattr(row, side) == FINE for row in rows)
        yield Figure.of(f"layers-{side}", 100 * n_fine / len(rows), "%", ">= 98")


gpu.add_to(SUITE)
