"""Kernels compiled by other processes, all candidates at once, before the first of them runs.

Triton's compiler keeps Python's lock for much of its time, so threads help little. Each process
runs `offline.py` and leaves what it compiled in Triton's cache on disk, where this one reads it.
"""

import json
import os
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path

_MAX_PROCESSES = 16  # each has some 150 MB
_OFFLINE = Path(__file__).with_name("offline.py")


@dataclass(frozen=True)
class KernelRequest:
    """A text, the types of its arguments, and how it is launched on which kind of GPU."""

    path: str
    types: tuple[str, ...]
    choices: dict[str, int]
    capability: int  # 90 for 9.0


Answer = dict[str, object]  # "shared": bytes, or "error": a line


def compile_ahead(
    requests: Sequence[KernelRequest], n_processes: int | None = None
) -> list[Future[Answer]]:
    """Start to compile; the answers come as processes finish, in any order.

    An answer without "shared" and "error" says nothing: the caller compiles by itself then.
    """
    waiting: deque[tuple[KernelRequest, Future[Answer]]] = deque(
        (request, Future()) for request in requests
    )
    answers = [answer for _, answer in waiting]
    most = n_processes or min(_MAX_PROCESSES, os.cpu_count() or 1)
    for _ in range(min(most, len(answers))):
        threading.Thread(target=_work, args=(waiting,), daemon=True).start()
    return answers


def _work(waiting: deque[tuple[KernelRequest, Future[Answer]]]) -> None:
    """Pass requests to one process until there are no more."""
    process = _started()
    with process if process is not None else nullcontext():
        while True:
            try:
                request, answer = waiting.popleft()
            except IndexError:
                return
            answer.set_result(_asked(process, request))


def _started() -> subprocess.Popen[str] | None:
    paths = os.pathsep.join(path for path in sys.path if path)
    try:
        return subprocess.Popen(
            [sys.executable, str(_OFFLINE)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env={**os.environ, "PYTHONPATH": paths},
        )
    except OSError:
        return None


def _asked(process: subprocess.Popen[str] | None, request: KernelRequest) -> Answer:
    """The answer of a process; empty if it has ended."""
    if process is None or process.stdin is None or process.stdout is None:
        return {}
    try:
        process.stdin.write(json.dumps(asdict(request)) + "\n")
        process.stdin.flush()
        return json.loads(process.stdout.readline())
    except (OSError, ValueError):
        return {}
