"""Figures of graph networks on a GPU: molecules with and without forces, an epoch, large graphs."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from benchmarks.compile_modes import compile_modes
from benchmarks.figures import Figure, Suite
from benchmarks.gpu_programs import call_until_chosen, free_memory, record_kernels, say
from benchmarks.measure import Ratio, ratio

if TYPE_CHECKING:  # PyTorch is loaded where it is used
    import torch

    from benchmarks.geometric.programs import MoleculeModel

# Model and molecules a step: least ratios to plain PyG, eager and, where there is one, compiled.
_ENERGIES = {
    "schnet-8": (">= 20", ">= 2"),
    "schnet-32": (">= 15", ">= 2"),
    "schnet-128": (">= 10", ">= 2"),
    "schnet-512": (">= 5", ">= 2"),
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
_N_ROUNDS = 4  # the first does not count


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
    if not _has_gpu():
        return
    import torch

    from benchmarks.geometric import programs

    columns = programs.molecules()
    sizes = programs.sizes_for(columns, 512)
    loader = programs.packed_loader(columns, sizes, 16)
    with _tf32():
        training = programs.our_training(programs.schnet(sizes.num_graphs), 16)
        first = programs.arguments(next(iter(loader)), programs.FIELDS)
        training(*first)
        chosen = call_until_chosen(training, lambda: training(*first))
        torch.cuda.synchronize()
        began = time.perf_counter()
        for batch in loader:
            training(*programs.arguments(batch, programs.FIELDS))
        torch.cuda.synchronize()
    seconds = time.perf_counter() - began
    yield Figure.of("gpu-epoch-qm9", seconds, "s", "<= 0.6", chosen)


def large_graphs(name: str) -> Iterator[Figure]:
    """Steps over all nodes of one graph of the size of ogbn-arxiv, TF32."""
    if not _has_gpu():
        return
    from benchmarks.geometric import large

    with _tf32():
        training, ours = large.our_step(name, _LARGE_GRAPH)
        ours(())
        chosen = call_until_chosen(training, lambda: ours(()))
        say(f"{name}: {chosen}")
        eager = _times_ours(name, large.plain_step(name, _LARGE_GRAPH), ours)
        if eager is not None:
            yield Figure.of(f"gpu-large-graph-{name}", eager.value, "× eager", ">= 2", chosen)
        compiled = {
            mode: _times_ours(f"{name} {mode}", large.plain_step(name, _LARGE_GRAPH, mode), ours)
            for mode in compile_modes()
        }
        values = {mode: times.value for mode, times in compiled.items() if times is not None}
        if values:
            best = min(values, key=values.__getitem__)
            unit, note = "× compile", f"{best}; {chosen}"
            yield Figure.of(f"gpu-large-graph-{name}-compiled", values[best], unit, ">= 1.5", note)
        record_kernels(f"{name}: ours, {chosen}", lambda: ours(()))
    free_memory()


def _times_ours(
    name: str, step: "Callable[[tuple], object]", ours: "Callable[[tuple], object]"
) -> Ratio | None:
    """The time of a step as a multiple of ours, timed in turn; None if PyTorch cannot compile."""
    import torch

    def waited(action: "Callable[[tuple], object]") -> Callable[[], None]:
        def run() -> None:
            action(())
            torch.cuda.synchronize()

        return run

    torch._dynamo.reset()
    try:
        times = ratio(waited(step), waited(ours), min_time_s=0.1)
    except Exception as error:  # noqa: BLE001 - whatever the compiler raises
        _say_why(name, error)
        return None
    ours_ms, step_ms = 1e3 * times.reference_s, 1e3 * times.ours_s
    say(f"{name}: ours {ours_ms:.2f} ms, PyTorch {step_ms:.2f} ms, ÷ {times.value:.3f}")
    return times


def accuracy() -> Iterator[Figure]:
    """SchNet after five epochs in TF32, and with products in bfloat16, against plain PyG."""
    if not _has_gpu():
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


def _has_gpu() -> bool:
    import torch

    return torch.cuda.is_available()


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


def _molecule_figures(
    name: str, model: "MoleculeModel", n_molecules: int, bar: str, compiled_bar: str
) -> Iterator[Figure]:
    """Against eager, and where there is a bar for it against the best of torch.compile."""
    from benchmarks.geometric import programs

    if not _has_gpu():
        return
    n_iterations, n_calls = max(16, 512 // n_molecules), 8
    columns = model.molecules(max(4000, 2 * n_molecules * n_iterations))
    sizes = programs.sizes_for(columns, n_molecules)
    loader = programs.packed_loader(columns, sizes, n_iterations)
    calls = [programs.arguments(b, model.fields) for _, b in zip(range(n_calls), loader)]  # noqa: B905
    n_per_call = sum(int(call[-1].sum()) for call in calls) / len(calls)
    training = programs.our_training(model.make(sizes.num_graphs), n_iterations)
    training(*calls[0])
    chosen = call_until_chosen(training, lambda: training(*calls[0]))
    say(f"{name}-{n_molecules}: {chosen}")
    ours = n_per_call / _seconds_each(lambda call: training(*call), calls)
    plain = programs.plain_loader(columns, n_molecules)
    batches = [
        programs.plain_arguments(b, model.fields)
        for _, b in zip(range(4 * n_calls), plain)  # noqa: B905
        if b.num_graphs == n_molecules
    ]
    eager = programs.PlainStep.of(model.make(n_molecules), "cuda")
    rate = n_molecules / _seconds_each(eager, batches)
    note = f"{ours:.0f} molecules/s, eager {rate:.0f}; {chosen}"
    yield Figure.of(f"gpu-{name}-{n_molecules}", ours / rate, "× eager", bar, note)
    if compiled_bar and compile_modes():
        one = programs.packed_loader(columns, sizes, 1)
        padded = [programs.arguments(b, model.fields) for _, b in zip(range(n_calls), one)]  # noqa: B905
        rates = _compiled_rates(name, model, padded, sizes.num_graphs)
        if "default" in compile_modes():
            dynamic = programs.PlainStep.of(model.make(n_molecules), "cuda", "dynamic")
            seconds = _seconds_or_none(f"{name} dynamic", dynamic, batches)
            rates |= {"dynamic": n_molecules / seconds} if seconds is not None else {}
        if rates:
            best = max(rates, key=rates.__getitem__)
            value, note = ours / rates[best], f"{best} {rates[best]:.0f} molecules/s; {chosen}"
            figure = f"gpu-{name}-{n_molecules}-compiled"
            yield Figure.of(figure, value, "× compile", compiled_bar, note)
    record_kernels(f"{name}-{n_molecules}: ours, {chosen}", lambda: training(*calls[0]))
    free_memory()


def _compiled_rates(
    name: str, model: "MoleculeModel", padded: list[tuple], num_graphs: int
) -> dict[str, float]:
    """Molecules per second of each mode of torch.compile that can train the model."""
    from benchmarks.geometric import programs

    n_padded = sum(int(batch[-1].sum()) for batch in padded) / len(padded)
    rates: dict[str, float] = {}
    for mode in compile_modes():
        static = programs.PlainStep.of(model.make(num_graphs), "cuda", mode)
        seconds = _seconds_or_none(f"{name} {mode}", static, padded)
        if seconds is not None:
            rates[mode] = n_padded / seconds
            say(f"{name} {mode}: {rates[mode]:.0f} molecules/s")
    return rates


def _seconds_or_none(
    name: str, action: "Callable[[tuple[torch.Tensor, ...]], object]", batches: list[tuple]
) -> float | None:
    """The time of a compiled step; None, and a line, if PyTorch cannot compile it."""
    import torch

    torch._dynamo.reset()
    try:
        return _seconds_each(action, batches)
    except Exception as error:  # noqa: BLE001 - whatever the compiler raises
        _say_why(name, error)
        return None


def _say_why(name: str, error: Exception) -> None:
    reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
    say(f"torch.compile cannot train {name}: {reason[:200]}")


def _seconds_each(
    action: "Callable[[tuple[torch.Tensor, ...]], object]", batches: list[tuple]
) -> float:
    """The best time per batch of some rounds on a GPU; the first round does not count."""
    import torch

    best = float("inf")
    for turn in range(_N_ROUNDS):
        torch.cuda.synchronize()
        began = time.perf_counter()
        for batch in batches:
            action(batch)
        torch.cuda.synchronize()
        if turn:
            best = min(best, (time.perf_counter() - began) / len(batches))
    return best
