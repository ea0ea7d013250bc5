"""Times of a large model's training step on a GPU, ours and torch.compile's, kernel by kernel.

    python tools/gpu_profile.py gpt2-small-bf16 [--modes default,reduce-overhead] [--top 15]

A name is one of `benchmarks.poptorch.models.large_cases`, followed by -bf16 or -autocast for these.
"""

import argparse
import time
from collections.abc import Callable

import torch

import tremula
from benchmarks.poptorch.models import Case, in_bfloat16, large_cases, with_autocast
from benchmarks.poptorch.suite import _our_model, _plain_step


def case_of(name: str) -> Case:
    """The case of a name with its precision."""
    for suffix, change in (("-bf16", in_bfloat16), ("-autocast", with_autocast)):
        if name.endswith(suffix):
            return change(large_cases()[name.removesuffix(suffix)])
    return large_cases()[name]


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
    if not n_rows:
        return
    activities = [torch.profiler.ProfilerActivity.CUDA]
    with torch.profiler.profile(activities=activities) as profile:
        for _ in range(3):
            step()
        torch.cuda.synchronize()
    rows = [
        (event.self_device_time_total / 3, event.count // 3, event.key)
        for event in profile.key_averages()
        if event.self_device_time_total
    ]
    rows.sort(reverse=True)
    print(f"  {sum(row[0] for row in rows) / 1e3:8.3f} ms in {sum(r[1] for r in rows)} kernels")
    for total_us, count, name in rows[:n_rows]:
        print(f"  {total_us:9.1f} us {count:5d} × {name[:110]}")


def measure(name: str, modes: list[str], host: str, n_rows: int) -> None:
    """Print a line and a table for ours and for each mode of torch.compile."""
    case = case_of(name)
    began = time.perf_counter()
    model, batch = _our_model(case, host=host, device="cuda")
    ours = lambda: model(*batch)  # noqa: E731
    ours()
    compiled_s = time.perf_counter() - began
    ours_ms = median_ms(ours)
    print(f"{name}: ours ({host}) {ours_ms:.2f} ms, first results after {compiled_s:.1f} s")
    print_kernels(ours, n_rows)
    for mode in modes:
        torch._dynamo.reset()
        began = time.perf_counter()
        plain = _plain_step(case, "cuda", mode)
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
