"""Turns: the process that measures runs, those of all other cases are stopped.

A stopped process launches nothing, so what it had launched on the GPU ends within milliseconds.
Processes that a case has started, compilers among them, are stopped with it, also those in other
sessions: they are its descendants in /proc.
"""

import os
import signal
import socket
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from benchmarks.gpu_turns import VARIABLE

_DRAIN_S = 0.05  # until kernels that were launched have ended


class Turns:
    """Hands out turns, one at a time in the order of requests, to cases known by numbers."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="tremula-turns-")
        self._path = Path(self._folder.name, "socket")
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(self._path))
        self._listener.listen(256)
        self._free = threading.Lock()  # nothing starts during a turn
        self._change = threading.Lock()  # of what follows
        self._running: dict[int, int] = {}  # process of each case
        self._stopped_s: dict[int, float] = {}
        self._stopped: set[int] = set()  # during a turn
        self._turn_began = 0.0
        threading.Thread(target=self._serve, daemon=True).start()

    def variables(self, number: int) -> dict[str, str]:
        """What a case needs to ask for turns."""
        return {VARIABLE: f"{number}@{self._path}"}

    @contextmanager
    def no_turn(self) -> Iterator[bool]:
        """Inside no turn begins, if the value is True; otherwise one is under way."""
        is_free = self._free.acquire(blocking=False)
        try:
            yield is_free
        finally:
            if is_free:
                self._free.release()

    def add(self, number: int, process: int) -> None:
        """A case that was started, inside `no_turn`."""
        with self._change:
            self._running[number], self._stopped_s[number] = process, 0.0

    def remove(self, number: int) -> None:
        """A case that has ended."""
        with self._change:
            self._running.pop(number, None)

    def stopped_s(self, number: int) -> float:
        """For how long a case has been stopped, also in this turn."""
        with self._change:
            now = time.monotonic() - self._turn_began if number in self._stopped else 0.0
            return self._stopped_s.get(number, 0.0) + now

    def close(self) -> None:
        self._listener.close()
        self._folder.cleanup()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:  # closed
                return
            with connection, suppress(OSError, ValueError):
                number = int(connection.makefile("r").readline())
                with self._free:
                    self._give(number, connection)

    def _give(self, number: int, connection: socket.socket) -> None:
        """One turn: until the case closes its end, or ends."""
        with self._change:
            others = {n: process for n, process in self._running.items() if n != number}
            self._stopped, self._turn_began = set(others), time.monotonic()
        for process in others.values():
            stop_tree(process)
        time.sleep(_DRAIN_S)
        try:
            connection.sendall(b"!")
            connection.recv(1)
        finally:
            with self._change:
                seconds = time.monotonic() - self._turn_began
                for other in self._stopped:
                    self._stopped_s[other] += seconds
                self._stopped = set()
            for process in others.values():
                signal_tree(process, signal.SIGCONT)


def stop_tree(process: int) -> None:
    """Stop a process and all that it has started, also those that it starts meanwhile."""
    stopped: set[int] = set()
    while new := set(tree_of(process)) - stopped:
        for one in new:
            send_signal(one, signal.SIGSTOP)
        stopped |= new


def signal_tree(process: int, number: int) -> None:
    """Send a signal to a process and to all that it has started, their descendants included."""
    for one in tree_of(process):
        send_signal(one, number)


def send_signal(process: int, number: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(process, number)


def tree_of(process: int) -> list[int]:
    """A process and its descendants, parents first."""
    children: dict[int, list[int]] = {}
    for entry in os.listdir("/proc"):
        if entry.isdecimal() and (parent := _parent_of(entry)) is not None:
            children.setdefault(parent, []).append(int(entry))
    result = [process]
    for one in result:  # grows meanwhile
        result += children.get(one, ())
    return result


def _parent_of(process: str) -> int | None:
    try:
        stat = Path("/proc", process, "stat").read_text(encoding="utf-8", errors="replace")
    except OSError:  # it has ended
        return None
    return int(stat.rpartition(")")[2].split()[1])
