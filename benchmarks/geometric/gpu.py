"""Figures of graph networks on a GPU: molecules with and without forces, an epoch, large graphs."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from benchmarks.compile_modes import compile_modes
from benchmarks.figures import Figure, Suite
from benchmarks.gpu_programs import (
    bench_device,
    call_until_chosen,
    can_compile,
    free_memory,
    is_rehearsal,
    record_kernels,
    say,
    synchronize,
    timed_for,
)
from benchmarks.gpu_turns import alone
from benchmarks.measure import ratio

if TYPE_CHECKING:  # PyTorch is loaded where it is used
    import torch

    from benchmarks.geometric.programs import MoleculeModel
    from poptorch_geometric.columns import GraphColumns

# Model and molecules a step: least ratios to plain PyG, eager and, where there is one, compiled.
_ENERGIES = {
    "schnet-8": (">= 38", ">= 2"),
    "schnet-32": (">= 24", ">= 2"),
    "schnet-128": (">= 14", ">= 2"),
    "schnet-512": (">= 7.5", ">= 2"),
    "gin-128": (">= 8", ""),
    "gat-128": (">= 8", ""),
}
_FORCES = {
    "schnet-8": ">= 20",
    "schnet-32": ">= 12",
    "schnet-128": ">= 8",
    "painn-32": ">= 10",
    "egnn-32": ">= 10",
    "mace-32": ">= 10",
}
_LARGE_GRAPHS = ("gatv2", "gcn", "sage-max")
_LARGE_GRAPH = (169_343, 1_166_243)  # nodes and edges of ogbn-arxiv
_REHEARSAL_GRAPH = (300, 2000)
_N_ROUNDS = 4  # the first does not count
_N_MOLECULES = 4000  # at least, of which batches are made
_N_REHEARSAL_MOLECULES = 150
_N_WARM = 4  # batches that compile a step, and record its CUDA graph


def energies(case: str) -> Iterator[Figure]:
    """Training on a GPU against plain PyG, eager and compiled, in molecules per second, TF32."""
    from benchmarks.geometric.programs import MODELS

    bar, compiled_bar = _ENERGIES[case]
    name, n_molecules = case.rsplit("-", 1)
    with _tf32():
        yield from _molecule_figures(name, MODELS[name], int(n_molecules), bar, compiled_bar)


def forces(case: str) -> Iterator[Figure]:
    """Energies and forces, trained on both: second derivatives, in molecules per second, TF32."""
    from benchmarks.geometric.programs import WITH_FORCES

    name, n_molecules = case.rsplit("-", 1)
    model = WITH_FORCES[f"{name}-forces"]
    with _tf32():
        yield from _molecule_figures(
            f"{name}-forces", model, int(n_molecules), _FORCES[case], ">= 3"
        )


def epoch() -> Iterator[Figure]:
    """One epoch of QM9 from the loader to updated weights, TF32; compiled before."""
    if not bench_device():
        return
    from benchmarks.geometric import programs

    columns = programs.molecules(_N_REHEARSAL_MOLECULES if is_rehearsal() else None)
    sizes = programs.sizes_for(columns, 16 if is_rehearsal() else 512)
    n_iterations = 2 if is_rehearsal() else 16
    loader = programs.packed_loader(columns, sizes, n_iterations)
    with _tf32():
        training = programs.our_training(programs.schnet(sizes.num_graphs), n_iterations)
        first = programs.arguments(next(iter(loader)), programs.FIELDS)
        training(*first)
        chosen = call_until_chosen(training, lambda: training(*first))
        with alone():
            synchronize()
            began = time.perf_counter()
            for batch in loader:
                training(*programs.arguments(batch, programs.FIELDS))
            synchronize()
            seconds = time.perf_counter() - began
    yield Figure.of("gpu-epoch-qm9", seconds, "s", "<= 0.6", chosen)


def large_graphs(name: str) -> Iterator[Figure]:
    """Steps over all nodes of one graph of the size of ogbn-arxiv, TF32."""
    if not bench_device():
        return
    from benchmarks.geometric import large

    size = _REHEARSAL_GRAPH if is_rehearsal() else _LARGE_GRAPH
    with _tf32():
        training, ours = large.our_step(name, size)
        ours(())
        chosen = call_until_chosen(training, lambda: ours(()))
        say(f"{name}: {chosen}")
        for mode in ("", *compile_modes()):
            step = large.plain_step(name, size, bench_device(), mode)
            title = f"{name}, {mode or 'eager'}"
            if can_compile(title, partial(step, ()), _N_WARM):
                yield _figure_of_graph(name, mode, step, ours, chosen)
            del step
            free_memory()
        record_kernels(f"{name}: ours, {chosen}", lambda: ours(()))


def _figure_of_graph(
    name: str,
    mode: str,
    step: "Callable[[tuple], object]",
    ours: "Callable[[tuple], object]",
    chosen: str,
) -> Figure:
    """Ours and a step of PyTorch, timed in turn while no other case runs."""

    def waited(action: "Callable[[tuple], object]") -> Callable[[], None]:
        def run() -> None:
            action(())
            synchronize()

        return run

    with alone():
        times = ratio(waited(step), waited(ours), min_time_s=timed_for(0.1))
    ours_ms, step_ms = 1e3 * times.reference_s, 1e3 * times.ours_s
    note = f"ours {ours_ms:.2f} ms, {mode or 'eager'} {step_ms:.2f} ms"
    say(f"{name}: {note}, ÷ {times.value:.3f}")
    figure = f"gpu-large-graph-{name}" + (f"-compiled:{mode}" if mode else "")
    unit, bar = ("× compile", ">= 1.5") if mode else ("× eager", ">= 2")
    return Figure.of(figure, times.value, unit, bar, f"{note}; {chosen}")


def accuracy() -> Iterator[Figure]:
    """SchNet after five epochs in TF32, and with products in bfloat16, against plain PyG."""
    if bench_device() != "cuda":
        return
    with _tf32():
        for name in ("tf32", "bf16"):
            errors = [_errors_after_training(name == "bf16", seed) for seed in range(3)]
            ours, plain = (sum(each) / len(errors) for each in zip(*errors, strict=True))
            say(f"{name}: mean error ours {ours:.4f}, plain {plain:.4f}")
            difference = 100 * abs(ours - plain) / plain
            yield Figure.of(f"gpu-accuracy-schnet-{name}", difference, "% apart", "<= 2")


def _errors_after_training(autocasts: bool, seed: int) -> tuple[float, float]:
    """Mean errors of ours and of plain PyG, from the same weights and batches."""
    import torch

    from benchmarks.geometric import programs
    from benchmarks.poptorch.models import Autocast
    from tremula.ir.settings import configured

    columns = programs.molecules(4000)
    sizes = programs.sizes_for(columns, 64)
    torch.manual_seed(seed)
    model = programs.schnet(sizes.num_graphs)
    model = Autocast(model) if autocasts else model
    plain, ours = programs.PlainStep.of(model, "cuda"), programs.our_training(model, 1)
    loader = programs.packed_loader(columns, sizes, 1)
    batches = [programs.arguments(batch, programs.FIELDS) for batch in loader]
    with configured(host="cuda-graph", device="cuda"):
        for inputs in batches * 5:
            ours(*inputs)
            plain(inputs)
    ours.copyWeightsToHost()
    return _mean_error(ours.model.to("cuda"), batches), _mean_error(plain.model, batches)


def _mean_error(model: "torch.nn.Module", batches: list[tuple]) -> float:
    import torch

    result = []
    with torch.no_grad():
        for batch in batches:
            *_, y, mask = tensors = [tensor.to("cuda") for tensor in batch]
            result.append((model(*tensors)[0].float() - y)[mask].abs())
    return float(torch.cat(result).mean())


def add_to(suite: Suite) -> None:
    """Add the measurements to a suite."""
    suite.measurement_of("gpu", tuple(_ENERGIES))(energies)
    suite.measurement_of("gpu-forces", tuple(_FORCES))(forces)
    suite.measurement("gpu-epoch")(epoch)
    suite.measurement_of("gpu-large-graphs", _LARGE_GRAPHS)(large_graphs)
    suite.measurement("gpu-accuracy")(accuracy)


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


@dataclass(frozen=True)
class _Side:
    """One of two programs that are compared: its step, and the batches that it is timed with."""

    step: "Callable[[tuple[torch.Tensor, ...]], object]"
    batches: "list[tuple[torch.Tensor, ...]]"

    def warm_up(self) -> None:
        for batch in self.batches[:_N_WARM]:
            self.step(batch)
        synchronize()

    def rate(self) -> float:
        """Molecules per second: the best of some rounds; the first does not count."""
        n_molecules = sum(int(batch[-1].sum()) for batch in self.batches)
        best = float("inf")
        for turn in range(2 if is_rehearsal() else _N_ROUNDS):
            synchronize()
            began = time.perf_counter()
            for batch in self.batches:
                self.step(batch)
            synchronize()
            if turn:
                best = min(best, time.perf_counter() - began)
        return n_molecules / best


def _molecule_figures(
    name: str, model: "MoleculeModel", n_molecules: int, bar: str, compiled_bar: str
) -> Iterator[Figure]:
    """Against eager, and where there is a bar for it against each mode of torch.compile."""
    from benchmarks.geometric import programs

    if not bench_device():
        return
    n_iterations, n_calls = max(16, 512 // n_molecules), 8
    n_made = max(_N_MOLECULES, 2 * n_molecules * n_iterations)
    n_each = n_molecules
    if is_rehearsal():
        n_iterations, n_calls, n_made, n_each = 2, 2, _N_REHEARSAL_MOLECULES, 4
    columns = model.molecules(n_made)
    sizes = programs.sizes_for(columns, n_each)
    loader = programs.packed_loader(columns, sizes, n_iterations)
    calls = [programs.arguments(b, model.fields) for _, b in zip(range(n_calls), loader)]  # noqa: B905
    training = programs.our_training(model.make(sizes.num_graphs), n_iterations)
    ours = _Side(lambda call: training(*call), calls)
    ours.step(calls[0])
    chosen = call_until_chosen(training, lambda: training(*calls[0]))
    say(f"{name}-{n_molecules}: {chosen}")
    is_compiled = False
    for what, other in _other_sides(model, columns, n_each):
        if not can_compile(f"{name}-{n_molecules}, {what}", other.warm_up):
            if not is_compiled:
                break  # what the first mode cannot do no other can: second derivatives, say
            continue
        is_compiled = what != "eager"
        with alone():
            mine, theirs = ours.rate(), other.rate()
        note = f"{mine:.0f} molecules/s, {what} {theirs:.0f}; {chosen}"
        say(f"{name}-{n_molecules}: {note}")
        figure = f"gpu-{name}-{n_molecules}" + ("" if what == "eager" else f"-compiled:{what}")
        unit, least = ("× eager", bar) if what == "eager" else ("× compile", compiled_bar)
        yield Figure.of(figure, mine / theirs, unit, least, note)
        del other
        free_memory()
        if not compiled_bar:
            break
    record_kernels(f"{name}-{n_molecules}: ours, {chosen}", lambda: training(*calls[0]))


def _other_sides(
    model: "MoleculeModel", columns: "GraphColumns", n_molecules: int
) -> "Iterator[tuple[str, _Side]]":
    """Plain PyG, eager; compiled for padded batches in each mode; compiled for any shape."""
    from benchmarks.geometric import programs

    loader = programs.plain_loader(columns, n_molecules)
    n_batches = 4 if is_rehearsal() else 32
    batches = [
        programs.plain_arguments(b, model.fields)
        for _, b in zip(range(n_batches), loader)  # noqa: B905
        if b.num_graphs == n_molecules
    ]
    device = bench_device()
    yield "eager", _Side(programs.PlainStep.of(model.make(n_molecules), device), batches)
    sizes = programs.sizes_for(columns, n_molecules)
    one = programs.packed_loader(columns, sizes, 1)
    padded = [programs.arguments(b, model.fields) for _, b in zip(range(n_batches // 4), one)]  # noqa: B905
    for mode in compile_modes():
        step = programs.PlainStep.of(model.make(sizes.num_graphs), device, mode)
        yield mode, _Side(step, padded)
    if "default" in compile_modes():
        step = programs.PlainStep.of(model.make(n_molecules), device, "dynamic")
        yield "dynamic", _Side(step, batches)
