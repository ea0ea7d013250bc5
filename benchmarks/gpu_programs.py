"""What ran on a GPU: which program `auto` chose and why, and tables of kernels by time.

TREMULA_BENCH_KERNELS=FILE appends kernels to a file after a figure is timed. A profiler may slow
what the process times afterwards: measure several cases in separate processes then.
TREMULA_BENCH_REHEARSAL=1 runs the code of the figures on a CPU with small models: the values mean
nothing, but a mistake in it costs no time on a GPU.
"""

import gc
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.gpu_turns import alone

if TYPE_CHECKING:  # PyTorch is loaded where it is used
    import poptorch

REHEARSAL = "TREMULA_BENCH_REHEARSAL"
_N_PROFILED = 3  # steps
_N_ROWS = 30
_WIDTH = 110  # of a kernel's name
_N_CHARACTERS = 200  # of an error
NOT_COMPILED = "torch.compile cannot train"  # begins a line that tables show
_PAUSE_S = 0.1  # between calls while the other program is compiled


def is_rehearsal() -> bool:
    return os.environ.get(REHEARSAL, "0") not in ("", "0")


def bench_device() -> str:
    """Where GPU figures are measured; empty if there is no GPU.

    Asks as a model does that is about to be compiled: without using the driver, so that the process
    may still be forked for the compiler.
    """
    from tremula.ir.settings import sees_gpu

    if is_rehearsal():
        return "cpu"
    return "cuda" if sees_gpu() else ""


def timed_for(seconds: float) -> float:
    """For how long a side is timed in each round."""
    return 0.0 if is_rehearsal() else seconds


def synchronize() -> None:
    """Wait for the GPU, if there is one."""
    import torch

    if torch.cuda.is_available():
        torch.cuda.synchronize()


def call_until_chosen(
    model: "poptorch.PoplarExecutor", call: Callable[[], object], pause_s: float = _PAUSE_S
) -> str:
    """Call a model until the program that compiles in the background has decided.

    Returns the backend and the reason. A model that has run once. Both programs are compared and
    timed in a turn of this process; until then calls pause, and leave the GPU to others.
    """
    from tremula.ir.host.programs.fastest import FastestProgram
    from tremula.ir.run.session import HostSession

    session = model.compiled_program().session
    assert isinstance(session, HostSession), "on a GPU"
    program = session.program
    if not isinstance(program, FastestProgram):
        return type(program).__name__
    while program.is_compiling:
        call()
        time.sleep(pause_s)
    with alone():
        while not program.backend:
            call()
    return f"{program.backend}: {program.reason}"


def say(text: str) -> None:
    """A line on stderr at once: a run that is cut short loses nothing."""
    print(text, file=sys.stderr, flush=True)


def can_compile(name: str, call: Callable[[], object], n_calls: int = 1) -> bool:
    """Compile a step of PyTorch by calling it; False, and a line, if the compiler raises."""
    try:
        for _ in range(n_calls):
            call()
    except Exception as error:  # noqa: BLE001 - whatever the compiler raises
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        say(f"{NOT_COMPILED} {name}: {reason[:_N_CHARACTERS]}")
        return False
    return True


def free_memory() -> None:
    """Give back what the figure before has used."""
    import torch

    torch._dynamo.reset()
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def records_kernels() -> bool:
    return bool(os.environ.get("TREMULA_BENCH_KERNELS"))


def record_kernels(title: str, step: Callable[[], object]) -> None:
    """Append the kernels of a step to the file of the environment, if there is one."""
    file = os.environ.get("TREMULA_BENCH_KERNELS")
    if not file:
        return
    with alone(), Path(file).open("a", encoding="utf-8") as out:
        print(f"{title}\n{kernel_table(step, _N_ROWS)}", file=out, flush=True)


def kernel_table(step: Callable[[], object], n_rows: int) -> str:
    """The kernels of a step by their time on the GPU."""
    import torch

    activities = [torch.profiler.ProfilerActivity.CUDA]
    with torch.profiler.profile(activities=activities) as profile:
        for _ in range(_N_PROFILED):
            step()
        torch.cuda.synchronize()
    rows = [
        (event.self_device_time_total / _N_PROFILED, event.count // _N_PROFILED, event.key)
        for event in profile.key_averages()
        if event.self_device_time_total
    ]
    rows.sort(reverse=True)
    lines = [f"  {sum(r[0] for r in rows) / 1e3:8.3f} ms in {sum(r[1] for r in rows)} kernels"]
    lines += [f"  {us:9.1f} us {count:5d} × {name[:_WIDTH]}" for us, count, name in rows[:n_rows]]
    return "\n".join(lines)
