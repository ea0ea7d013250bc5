"""Figures of graph networks on a GPU: molecules with and without forces, an epoch, large graphs."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from benchmarks.compile_modes import compile_modes
from benchmarks.figures import Figure, Measurement
from benchmarks.measure import ratio

if TYPE_CHECKING:  # PyTorch is loaded where it is used
    import torch

    from benchmarks.geometric.programs import MoleculeModel

# Molecules a step, least ratio to plain PyG.
_SIZES = ((8, ">= 20"), (32, ">= 15"), (128, ">= 10"), (512, ">= 5"))
_FORCE_SIZES = ((8, ">= 20"), (32, ">= 12"), (128, ">= 8"))
_LARGE_GRAPH = (169_343, 1_166_243)  # nodes and edges of ogbn-arxiv
_N_ROUNDS = 4  # the first does not count


def energies() -> Iterator[Figure]:
    """Training on a GPU against plain PyG, eager and compiled, in molecules per second, TF32."""
    from benchmarks.geometric.programs import MODELS

    with _tf32():
        for n_molecules, bar in _SIZES if _has_gpu() else ():
            yield from _molecule_figures("schnet", MODELS["schnet"], n_molecules, bar, ">= 2")
        for name in ("gin", "gat") if _has_gpu() else ():
            yield from _molecule_figures(name, MODELS[name], 128, ">= 8", "")


def forces() -> Iterator[Figure]:
    """Energies and forces, trained on both: second derivatives, in molecules per second, TF32."""
    from benchmarks.geometric.programs import WITH_FORCES

    with _tf32():
        for name, model in WITH_FORCES.items() if _has_gpu() else ():
            sizes = _FORCE_SIZES if name == "schnet-forces" else ((32, ">= 10"),)
            for n_molecules, bar in sizes:
                yield from _molecule_figures(name, model, n_molecules, bar, ">= 3")


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
        training(*programs.arguments(next(iter(loader)), programs.FIELDS))
        torch.cuda.synchronize()
        began = time.perf_counter()
        for batch in loader:
            training(*programs.arguments(batch, programs.FIELDS))
        torch.cuda.synchronize()
    yield Figure.of("gpu-epoch-qm9", time.perf_counter() - began, "s", "<= 0.6")


def large_graphs() -> Iterator[Figure]:
    """Steps over all nodes of one graph of the size of ogbn-arxiv, TF32."""
    if not _has_gpu():
        return
    from benchmarks.geometric import large

    with _tf32():
        for name in large.LAYERS:
            ours = large.our_step(name, _LARGE_GRAPH)
            eager = _times_ours(name, large.plain_step(name, _LARGE_GRAPH), ours)
            if eager is not None:
                yield Figure.of(f"gpu-large-graph-{name}", eager, "× eager", ">= 2")
            compiled = [
                _times_ours(f"{name} {mode}", large.plain_step(name, _LARGE_GRAPH, mode), ours)
                for mode in compile_modes()
            ]
            best = min((times for times in compiled if times is not None), default=None)
            if best is not None:
                yield Figure.of(f"gpu-large-graph-{name}-compiled", best, "× compile", ">= 1.5")


def _times_ours(
    name: str, step: "Callable[[tuple], object]", ours: "Callable[[tuple], object]"
) -> float | None:
    """The time of a step as a multiple of ours, timed in turn; None if PyTorch cannot compile."""
    import torch

    def waited(action: "Callable[[tuple], object]") -> Callable[[], None]:
        def run() -> None:
            action(())
            torch.cuda.synchronize()

        return run

    torch._dynamo.reset()
    try:
        return ratio(waited(step), waited(ours), min_time_s=0.1).value
    except Exception as error:  # noqa: BLE001 - whatever the compiler raises
        _say_why(name, error)
        return None


def accuracy() -> Iterator[Figure]:
    """SchNet after five epochs in TF32, and with products in bfloat16, against plain PyG."""
    if not _has_gpu():
        return
    with _tf32():
        for name in ("tf32", "bf16"):
            errors = [_errors_after_training(name == "bf16", seed) for seed in range(3)]
            ours, plain = (sum(each) / len(errors) for each in zip(*errors, strict=True))
            print(f"{name}: mean error ours {ours:.4f}, plain {plain:.4f}", file=sys.stderr)
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


MEASUREMENTS: dict[str, Measurement] = {
    "gpu": energies,
    "gpu-forces": forces,
    "gpu-epoch": epoch,
    "gpu-large-graphs": large_graphs,
    "gpu-accuracy": accuracy,
}


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

    n_iterations, n_calls = max(16, 512 // n_molecules), 8
    columns = model.molecules(max(4000, 2 * n_molecules * n_iterations))
    sizes = programs.sizes_for(columns, n_molecules)
    loader = programs.packed_loader(columns, sizes, n_iterations)
    calls = [programs.arguments(b, model.fields) for _, b in zip(range(n_calls), loader)]  # noqa: B905
    n_per_call = sum(int(call[-1].sum()) for call in calls) / len(calls)
    training = programs.our_training(model.make(sizes.num_graphs), n_iterations)
    ours = n_per_call / _seconds_each(lambda call: training(*call), calls)
    plain = programs.plain_loader(columns, n_molecules)
    batches = [
        programs.plain_arguments(b, model.fields)
        for _, b in zip(range(4 * n_calls), plain)  # noqa: B905
        if b.num_graphs == n_molecules
    ]
    eager = programs.PlainStep.of(model.make(n_molecules), "cuda")
    rate = n_molecules / _seconds_each(eager, batches)
    print(f"{name}-{n_molecules}: {ours:.0f} molecules/s, eager {rate:.0f}", file=sys.stderr)
    yield Figure.of(f"gpu-{name}-{n_molecules}", ours / rate, "× eager", bar)
    if not compiled_bar or not compile_modes():
        return
    one = programs.packed_loader(columns, sizes, 1)
    padded = [programs.arguments(b, model.fields) for _, b in zip(range(n_calls), one)]  # noqa: B905
    n_padded = sum(int(batch[-1].sum()) for batch in padded) / len(padded)
    rates = _compiled_rates(name, model, padded, n_padded, sizes.num_graphs)
    dynamic = programs.PlainStep.of(model.make(n_molecules), "cuda", "dynamic")
    seconds = _seconds_or_none(f"{name} dynamic", dynamic, batches)
    rates += [n_molecules / seconds] if seconds is not None else []
    if rates:
        ratio = ours / max(rates)
        yield Figure.of(f"gpu-{name}-{n_molecules}-compiled", ratio, "× compile", compiled_bar)


def _compiled_rates(
    name: str, model: "MoleculeModel", padded: list[tuple], n_padded: float, num_graphs: int
) -> list[float]:
    """Molecules per second of each mode of torch.compile that can train the model."""
    from benchmarks.geometric import programs

    rates = []
    for mode in compile_modes():
        static = programs.PlainStep.of(model.make(num_graphs), "cuda", mode)
        seconds = _seconds_or_none(f"{name} {mode}", static, padded)
        rates += [n_padded / seconds] if seconds is not None else []
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
    print(f"torch.compile cannot train {name}: {reason[:200]}", file=sys.stderr)


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
