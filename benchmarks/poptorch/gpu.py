"""Figures of large and small models on a GPU, against eager PyTorch and torch.compile."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
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
    records_kernels,
    say,
    synchronize,
    timed_for,
)
from benchmarks.gpu_turns import alone
from benchmarks.measure import ratio
from benchmarks.poptorch.start import start_figures
from benchmarks.poptorch.steps import our_model, plain_step

if TYPE_CHECKING:  # PyTorch is loaded where it is used
    import torch

    from benchmarks.poptorch.models import Case

# Name, precision of float32 products on both sides, and the least ratio to eager.
_SMALL = (
    ("mnist", "highest", ">= 4"),
    ("gpt2-tiny", "highest", ">= 4"),
    ("gpt2-tiny-50257", "high", ">= 5"),
    # In full float32 the output layer's products bind both sides, at the GPU's peak.
    ("gpt2-tiny-50257", "highest", ">= 3"),
    ("gin-mlp", "highest", ">= 4"),
)
_LARGE = ("gpt2-small", "resnet50", "bert-base", "llama-110m", "vit-b", "convnext-t")
# Models that are also measured in bfloat16, and with autocast.
_REDUCED = ("gpt2-small", "llama-110m", "bert-base", "vit-b")
# Twelve equal layers, in bfloat16 and TF32.
_STARTS = ("gpt2-small-bf16", "llama-110m")
_N_WARM = 4  # calls that compile a step, and record its CUDA graph


def add_to(suite: Suite) -> None:
    """Add the measurements to a suite."""
    suite.measurement("gpu")(_small)
    suite.measurement_of("gpu-large", _LARGE)(_large)
    suite.measurement_of("gpu-bfloat16", _REDUCED)(_bfloat16)
    suite.measurement_of("gpu-autocast", _REDUCED)(_autocast)
    suite.measurement("gpu-tokens")(_tokens)
    suite.measurement_of("gpu-start", _STARTS)(_start)
    suite.measurement("gpu-curves")(_curves)


def _small() -> Iterator[Figure]:
    """32 device iterations per call on a GPU, against eager and against reduce-overhead."""
    if not _has_gpu():
        return
    from benchmarks.poptorch.models import cases

    for name, precision, bar in _SMALL:
        with _precision(precision):
            yield from _small_figures(cases(n_batch_scale=8)[name], precision, bar)


def _small_figures(case: "Case", precision: str, bar: str) -> Iterator[Figure]:
    import torch

    n = 32
    model, batch = our_model(case, n, host="inductor-cuda-graph", device="cuda")
    parts = [[t.to("cuda") for t in case.batch(case.n_batch)] for _ in range(n)]
    name = case.name if precision == "highest" else f"{case.name}-tf32"
    for mode, least in (("", bar), ("reduce-overhead", ">= 1.1")):
        plain = plain_step(case, "cuda", mode)

        def steps(plain: Callable = plain) -> None:
            for part in parts:
                plain(*part)
            torch.cuda.synchronize()

        measured = ratio(steps, lambda: model(*batch), min_time_s=0.2, finish=synchronize)
        unit = f"× faster than {mode or 'eager'}"
        yield Figure.of(f"gpu-{mode or 'eager'}-{name}", measured.value, unit, least)


def _large(name: str) -> Iterator[Figure]:
    """A large model with TF32: each mode of torch.compile against ours after "auto" has chosen.

    Both begin with a batch in the memory of the host, and have the loss there after each step. Ours
    comes back with it while the GPU still updates weights, as any call does, so the next batch
    travels meanwhile; the last step's update counts. The best mode is the least of the figures of a
    model.
    """
    from benchmarks.poptorch.models import large_cases

    yield from _large_figure(large_cases()[name], ">= 1.15")


def _bfloat16(name: str) -> Iterator[Figure]:
    """A large model in bfloat16, as `gpu-large` measures it; optimiser states are floats here."""
    from benchmarks.poptorch.models import in_bfloat16, large_cases

    yield from _large_figure(in_bfloat16(large_cases()[name]), ">= 1.1")


def _autocast(name: str) -> Iterator[Figure]:
    """A large model with float weights whose products are computed in bfloat16 by autocast."""
    from benchmarks.poptorch.models import large_cases, with_autocast

    yield from _large_figure(with_autocast(large_cases()[name]), ">= 1.05")


def _large_figure(case: "Case", bar: str) -> Iterator[Figure]:
    if not bench_device():
        return
    with _precision("high"):
        try:
            yield from _large_figures(case, bar)
        finally:
            free_memory()


def _large_figures(case: "Case", bar: str) -> Iterator[Figure]:
    model, batch = our_model(case, host="auto", device=bench_device())
    ours = lambda: model(*batch)  # noqa: E731
    chosen = call_until_chosen(model, ours)
    say(f"{case.name}: {chosen}")
    steps: dict[str, Callable[[], object]] = {f"ours, {chosen}": ours}
    for mode in compile_modes():
        step = _from_host(plain_step(case, bench_device(), mode), batch)
        if can_compile(f"{case.name}, {mode}", step, _N_WARM):
            yield _figure_of_mode(case.name, mode, step, ours, bar, chosen)
        if records_kernels():
            steps[mode] = step
            continue
        del step
        free_memory()
    for side, step in steps.items():  # after all are timed: a profiler may slow what follows
        record_kernels(f"{case.name}: {side}", step)


def _figure_of_mode(
    name: str,
    mode: str,
    step: Callable[[], object],
    ours: Callable[[], object],
    bar: str,
    chosen: str,
) -> Figure:
    """Ours and a compiled step of PyTorch, timed in turn while no other case runs."""
    with alone():
        measured = ratio(step, ours, min_time_s=timed_for(0.2), finish=synchronize)
    times = f"ours {1e3 * measured.reference_s:.2f} ms, {mode} {1e3 * measured.ours_s:.2f} ms"
    say(f"{name}: {times}, ÷ {measured.value:.3f}")
    unit = f"× faster than torch.compile, {mode}"
    return Figure.of(f"gpu-large-{name}:{mode}", measured.value, unit, bar, f"{times}; {chosen}")


def _from_host(
    plain: Callable[..., object], batch: "tuple[torch.Tensor, ...]"
) -> Callable[[], None]:
    """A step of PyTorch from a batch in the memory of the host until its loss is there."""

    def step() -> None:
        plain(*(tensor.to(bench_device(), non_blocking=True) for tensor in batch))
        synchronize()

    return step


def _tokens() -> Iterator[Figure]:
    """GPT-2 small in bfloat16 with 16 × 1024 tokens a step, in tokens per second."""
    import torch

    if not bench_device():
        return
    from dataclasses import replace

    from benchmarks.poptorch.models import in_bfloat16, large_cases

    n_batch = 1 if is_rehearsal() else 16
    ids = lambda n: (torch.randint(0, 50257, (n, 1024)),)  # noqa: E731
    case = replace(in_bfloat16(large_cases()["gpt2-small"]), batch=ids, n_batch=n_batch)
    host = "eager" if is_rehearsal() else "inductor-cuda-graph"
    model, batch = our_model(case, host=host, device=bench_device())
    with alone():
        seconds = ratio(
            lambda: model(*batch),
            lambda: None,
            min_time_s=timed_for(0.3),
            finish=synchronize,
        ).ours_s
    record_kernels(f"gpt2-small, {n_batch} × 1024, bfloat16: ours", lambda: model(*batch))
    note = f"{1e3 * seconds:.2f} ms a step"
    value = n_batch * 1024 / seconds
    yield Figure.of("gpu-tokens-gpt2-small", value, "tokens/s", ">= 400000", note)


def _start(name: str) -> Iterator[Figure]:
    """Seconds from the first call to the fast program, in a first and a second process."""
    import torch

    if torch.cuda.is_available():
        yield from start_figures(name)


def _curves() -> Iterator[Figure]:
    """Loss curves of GPT-2 small in bfloat16 over 200 steps, against plain PyTorch's."""
    from benchmarks.poptorch.curves import loss_curves

    yield from loss_curves(plain_step)


def _has_gpu() -> bool:
    return bench_device() == "cuda"


@contextmanager
def _precision(name: str) -> Iterator[None]:
    """Both sides compute products of floats with one precision."""
    import torch

    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(name)
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)
