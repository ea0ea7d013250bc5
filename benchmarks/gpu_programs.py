"""What ran on a GPU: which program `auto` chose and why, and tables of kernels by time.

TREMULA_BENCH_KERNELS=FILE appends kernels to a file after a figure is timed. A profiler may slow
what the process times afterwards: measure several cases in separate processes then.
"""

import gc
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # PyTorch is loaded where it is used
    import poptorch

_N_PROFILED = 3  # steps
_N_ROWS = 30
_WIDTH = 110  # of a kernel's name


def call_until_chosen(model: "poptorch.PoplarExecutor", call: Callable[[], object]) -> str:
    """Call a model until the program that compiles in the background has decided.

    Returns the backend and the reason. A model that has run once, on a GPU.
    """
    from tremula.ir.host.programs.fastest import FastestProgram
    from tremula.ir.run.session import HostSession

    session = model.compiled_program().session
    assert isinstance(session, HostSession), "on a GPU"
    program = session.program
    if not isinstance(program, FastestProgram):
        return type(program).__name__
    while not program.backend:
        call()
    return f"{program.backend}: {program.reason}"


def say(text: str) -> None:
    """A line on stderr at once: a run that is cut short loses nothing."""
    print(text, file=sys.stderr, flush=True)


def free_memory() -> None:
    """Give back what the figure before has used."""
    import torch

    torch._dynamo.reset()
    gc.collect()
    torch.cuda.empty_cache()


def record_kernels(title: str, step: Callable[[], object]) -> None:
    """Append the kernels of a step to the file of the environment, if there is one."""
    file = os.environ.get("TREMULA_BENCH_KERNELS")
    if not file:
        return
    with Path(file).open("a", encoding="utf-8") as out:
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
