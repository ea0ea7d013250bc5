"""How figures are measured: ratios interleaved in one process, memory in a fresh process."""

import gc
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from tremula.base.errors import RuntimeFailure

Action = Callable[[], object]
Clock = Callable[[], float]


@dataclass(frozen=True, slots=True)
class Ratio:
    """Our time as a multiple of the reference's, and the best time per call of each."""

    value: float
    ours_s: float
    reference_s: float


def ratio(
    ours: Action,
    reference: Action,
    *,
    rounds: int = 9,
    of: Literal["median", "minima"] = "median",
    min_time_s: float = 0.02,
    clock: Clock | None = None,
    finish: Action | None = None,
) -> Ratio:
    """Time both in turn and compare.

    `of="median"` is the median of the ratios of each round: load that comes and goes slows both
    halves of a round. `of="minima"` is the ratio of the best times: right where noise only adds.
    Each is called once first (compilation does not count), and then so often per round that the
    clock's own grain does not matter. With `clock=time.process_time` others' load does not count:
    right where both use one thread. `finish` ends each side's turn, in its time: it waits for what
    calls have left to a GPU.
    """
    ours()
    reference()
    clock = clock or time.perf_counter
    finish = finish or _nothing
    n_ours = _calls_for(ours, min_time_s, clock, finish)
    n_reference = _calls_for(reference, min_time_s, clock, finish)
    times: list[tuple[float, float]] = []
    for i in range(rounds):
        # They take turns at going first, so that neither always finds the warmer cache.
        if i % 2:
            reference_s = _time(reference, n_reference, clock, finish)
            ours_s = _time(ours, n_ours, clock, finish)
        else:
            ours_s = _time(ours, n_ours, clock, finish)
            reference_s = _time(reference, n_reference, clock, finish)
        times.append((ours_s, reference_s))
    best_ours, best_reference = (min(column) for column in zip(*times, strict=True))
    ratios = [ours_s / reference_s for ours_s, reference_s in times]
    value = statistics.median(ratios) if of == "median" else best_ours / best_reference
    return Ratio(value, best_ours, best_reference)


def _nothing() -> None:
    return


def _calls_for(action: Action, min_time_s: float, clock: Clock, finish: Action) -> int:
    return max(1, round(min_time_s / max(_time(action, 1, clock, finish), 1e-9)))


def _time(action: Action, n_calls: int, clock: Clock, finish: Action) -> float:
    """Seconds per call, without the garbage collector."""
    was_collecting = gc.isenabled()
    gc.disable()
    try:
        begin = clock()
        for _ in range(n_calls):
            action()
        finish()
        return (clock() - begin) / n_calls
    finally:
        if was_collecting:
            gc.enable()


@dataclass(frozen=True, slots=True)
class Usage:
    """What a piece of code took in a fresh interpreter."""

    time_s: float  # of the code alone, without the interpreter's start
    peak_bytes: int  # of the whole process
    output: str


# The peak is VmHWM where there is one: ru_maxrss of a child starts, on Linux, at its parent's peak.
_WATCHER = """
import json, sys, time
code_path, result_path = sys.argv[1:]
code = compile(open(code_path, encoding="utf-8").read(), "<measured code>", "exec")
begin = time.perf_counter()
exec(code, {"__name__": "__main__"})
time_s = time.perf_counter() - begin
try:
    lines = open("/proc/self/status", encoding="ascii").read().splitlines()
    peak = next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM"))
except FileNotFoundError:
    import resource
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # in bytes on macOS
json.dump({"time_s": time_s, "peak_bytes": peak}, open(result_path, "w"))
"""


def peak_rss_of(
    code: str, *, timeout_s: float = 600, environment: Mapping[str, str] | None = None
) -> Usage:
    """Run `code` in a fresh interpreter; its time, the process's peak memory, what it printed.

    `environment` adds to the variables of this process.
    """
    with tempfile.TemporaryDirectory() as folder:
        code_path, result_path = Path(folder, "code.py"), Path(folder, "result.json")
        code_path.write_text(code, encoding="utf-8")
        done = subprocess.run(
            [sys.executable, "-c", _WATCHER, str(code_path), str(result_path)],
            capture_output=True,
            text=True,
            timeout=timeout_s,
            env={**os.environ, **(environment or {})},
            check=False,
        )
        if done.returncode != 0:
            raise RuntimeFailure(
                f"code measured in a separate process failed with exit code {done.returncode}:\n"
                f"{done.stderr.strip()}",
                hint="run the code by itself",
            )
        result = json.loads(result_path.read_text(encoding="utf-8"))
    return Usage(result["time_s"], result["peak_bytes"], done.stdout)
