"""Times of a large model's training step on a GPU, ours and torch.compile's, kernel by kernel.

    python tools/gpu_profile.py gpt2-small-bf16 [--modes default,reduce-overhead] [--top 15]

A name is one of `benchmarks.poptorch.models.large_cases`, followed by -bf16 or -autocast for these.
"""

import argparse
import time
from collections.abc import Callable

import torch

import tremula
from benchmarks.gpu_programs import kernel_table
from benchmarks.poptorch.models import case_named
from benchmarks.poptorch.steps import our_model, plain_step


def median_ms(step: Callable[[], object], n: int = 30) -> float:
    """The median time of a step whose result is waited for."""
    times = []
    for _ in range(n):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        step()
        torch.cuda.synchronize()
        times.append(time.perf_counter() - begin)
    return sorted(times)[n // 2] * 1e3


def print_kernels(step: Callable[[], object], n_rows: int) -> None:
    """The kernels of a step by their time on the GPU."""
    if n_rows:
        print(kernel_table(step, n_rows))


def measure(name: str, modes: list[str], host: str, n_rows: int) -> None:
    """Print a line and a table for ours and for each mode of torch.compile."""
    case = case_named(name)
    began = time.perf_counter()
    model, batch = our_model(case, host=host, device="cuda")
    ours = lambda: model(*batch)  # noqa: E731
    ours()
    compiled_s = time.perf_counter() - began
    ours_ms = median_ms(ours)
    print(f"{name}: ours ({host}) {ours_ms:.2f} ms, first results after {compiled_s:.1f} s")
    print_kernels(ours, n_rows)
    for mode in modes:
        torch._dynamo.reset()
        began = time.perf_counter()
        plain = plain_step(case, "cuda", mode)
        step = lambda: plain(*(t.to("cuda", non_blocking=True) for t in batch))  # noqa: B023, E731
        for _ in range(4):
            step()
        torch.cuda.synchronize()
        compiled_s = time.perf_counter() - began
        plain_ms = median_ms(step)
        print(f"{name}: {mode or 'eager'} {plain_ms:.2f} ms ({plain_ms / ours_ms:.3f}),"
              f" compiled in {compiled_s:.1f} s")  # fmt: skip
        print_kernels(step, n_rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="+")
    parser.add_argument("--modes", default="default,reduce-overhead")
    parser.add_argument("--host", default="inductor-cuda-graph")
    parser.add_argument("--top", type=int, default=15)
    arguments = parser.parse_args()
    tremula.install()
    torch.set_float32_matmul_precision("high")
    for name in arguments.names:
        modes = [mode for mode in arguments.modes.split(",") if mode]
        measure(name, modes, arguments.host, arguments.top)


if __name__ == "__main__":
    main()
