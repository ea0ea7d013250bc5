"""Turns on a GPU that several processes of one table share: one measures, the others are stopped.

`python -m tools.gpu_table` runs many cases at once and tells each by a variable where to ask for a
turn. Between turns models are compiled side by side. Without the variable `alone` does nothing.
"""

import os
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

VARIABLE = "TREMULA_GPU_TURNS"  # NUMBER@PATH: the number of the case, and a socket
# A stopped process launches nothing, but what it has launched runs on: a thousand kernels of an
# eager step may take a second. The GPU is free when small kernels take their usual time, several
# times in a row: beside another process each waits for its slice of time, a millisecond or more.
_PROBE_S, _N_PROBES, _LONGEST_WAIT_S = 0.4e-3, 50, 20.0
_turns: list[socket.socket] = []  # of this process: one at most


@contextmanager
def alone() -> Iterator[None]:
    """Inside, no other case of the table uses the GPU or a core; may be nested."""
    variable = os.environ.get(VARIABLE, "")
    if not variable or _turns:
        yield
        return
    number, _, path = variable.partition("@")
    with socket.socket(socket.AF_UNIX) as turn:
        turn.connect(path)
        turn.sendall(f"{number}\n".encode())
        turn.recv(1)  # answered when the others have stopped; the turn ends with the socket
        _turns.append(turn)
        try:
            _wait_for_gpu()
            yield
        finally:
            _turns.clear()


def _wait_for_gpu() -> None:
    """Until what other processes have launched is done."""
    import torch

    if not torch.cuda.is_initialized():
        return
    x = torch.zeros(1, device="cuda")

    def probe() -> None:
        x.add_(1)
        torch.cuda.synchronize()

    wait_until_short(probe)


def wait_until_short(probe: Callable[[], None]) -> float:
    """Call until it takes its usual time; returns the seconds that this took."""
    began, n_short = time.perf_counter(), 0
    while n_short < _N_PROBES and (before := time.perf_counter()) - began < _LONGEST_WAIT_S:
        probe()
        n_short = n_short + 1 if time.perf_counter() - before < _PROBE_S else 0
    return time.perf_counter() - began


def environment_of_part() -> dict[str, str]:
    """This process's variables for a process that it starts in its turn, which asks for none."""
    return {name: value for name, value in os.environ.items() if name != VARIABLE}
