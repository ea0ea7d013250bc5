"""The PopTorch Geometric figures: feeding, packing, speed on a CPU and a GPU, accuracy, layers."""

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from benchmarks.figures import Figure, Suite
from benchmarks.measure import peak_rss_of, ratio

if TYPE_CHECKING:  # PyTorch is loaded where it is used
    import torch

SUITE = Suite("geometric")
# Molecules a step, least ratio to plain PyG and to the best of torch.compile.
_GPU_SIZES = ((8, ">= 20"), (32, ">= 15"), (128, ">= 10"), (512, ">= 5"))


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
    for name, (make, fields) in MODELS.items():
        model = make(sizes.num_graphs)
        inputs = arguments(batch, fields)
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


@SUITE.measurement("gpu")
def gpu() -> Iterator[Figure]:
    """Training on a GPU against plain PyG, eager and compiled, in molecules per second, TF32."""
    import torch

    if not torch.cuda.is_available():
        return
    with _tf32():
        for n_molecules, bar in _GPU_SIZES:
            yield from _gpu_figures("schnet", n_molecules, bar, compares_compiled=True)
        for name in ("gin", "gat"):
            yield from _gpu_figures(name, 128, ">= 8", compares_compiled=False)


@contextmanager
def _tf32() -> Iterator[None]:
    """All sides compute with the same precision: that of `set_float32_matmul_precision("high")`."""
    import torch

    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


def _gpu_figures(
    name: str, n_molecules: int, bar: str, *, compares_compiled: bool
) -> Iterator[Figure]:
    from benchmarks.geometric import programs

    n_iterations, n_calls = max(16, 512 // n_molecules), 8
    make, fields = programs.MODELS[name]
    columns = programs.molecules(max(4000, 2 * n_molecules * n_iterations))
    sizes = programs.sizes_for(columns, n_molecules)
    loader = programs.packed_loader(columns, sizes, n_iterations)
    calls = [programs.arguments(b, fields) for _, b in zip(range(n_calls), loader, strict=False)]
    n_per_call = sum(int(call[-1].sum()) for call in calls) / len(calls)
    training = programs.our_training(make(sizes.num_graphs), n_iterations)
    ours = n_per_call / _seconds_each(lambda call: training(*call), calls)
    plain = programs.plain_loader(columns, n_molecules)
    batches = [
        programs.plain_arguments(b, fields)
        for _, b in zip(range(4 * n_calls), plain, strict=False)
        if b.num_graphs == n_molecules
    ]
    eager = programs.PlainStep.of(make(n_molecules), "cuda")
    rate = n_molecules / _seconds_each(eager, batches)
    yield Figure.of(f"gpu-{name}-{n_molecules}", ours / rate, "× eager", bar)
    if not compares_compiled:
        return
    dynamic = programs.PlainStep.of(make(n_molecules), "cuda", "dynamic")
    one = programs.packed_loader(columns, sizes, 1)
    padded = [programs.arguments(b, fields) for _, b in zip(range(n_calls), one, strict=False)]
    static = programs.PlainStep.of(make(sizes.num_graphs), "cuda", "reduce-overhead")
    n_padded = sum(int(batch[-1].sum()) for batch in padded) / len(padded)
    best = max(
        n_molecules / _seconds_each(dynamic, batches), n_padded / _seconds_each(static, padded)
    )
    yield Figure.of(f"gpu-{name}-{n_molecules}-compiled", ours / best, "× compile", ">= 2")


def _seconds_each(
    action: "Callable[[tuple[torch.Tensor, ...]], object]", batches: "list[tuple]"
) -> float:
    """The best time per batch of some rounds on a GPU; the first round does not count."""
    import torch

    best = float("inf")
    for turn in range(4):
        torch.cuda.synchronize()
        began = time.perf_counter()
        for batch in batches:
            action(batch)
        torch.cuda.synchronize()
        if turn:
            best = min(best, (time.perf_counter() - began) / len(batches))
    return best


@SUITE.measurement("gpu-epoch")
def gpu_epoch() -> Iterator[Figure]:
    """One epoch of QM9 from the loader to updated weights, TF32; compiled before."""
    import torch

    if not torch.cuda.is_available():
        return
    from benchmarks.geometric import programs

    columns = programs.molecules()
    sizes = programs.sizes_for(columns, 512)
    loader = programs.packed_loader(columns, sizes, 16)
    with _tf32():
        training = programs.our_training(programs.schnet(sizes.num_graphs), 16)
        training(*programs.arguments(next(iter(loader)), programs.FIELDS))
        torch.cuda.synchronize()
        began = time.perf_counter()
        for batch in loader:
            training(*programs.arguments(batch, programs.FIELDS))
        torch.cuda.synchronize()
    yield Figure.of("gpu-epoch-qm9", time.perf_counter() - began, "s", "<= 0.6")


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
