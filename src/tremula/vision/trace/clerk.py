"""The clerk of an open trace: a thread that writes it to disk and samples the host."""

import os
import sqlite3
import threading
import time
from collections.abc import Callable
from multiprocessing import current_process

from tremula.vision.trace.file import TraceFile

HOST = "host"  # choosing this channel also turns on samples of the host
_SAMPLE_S, _WRITE_S = 0.1, 0.5


class Clerk:
    """Writes a trace twice a second, with samples of the process's memory and processor time."""

    def __init__(
        self,
        file: TraceFile,
        *,
        samples_host: bool,
        on_failure: Callable[[TraceFile, Exception], None],
    ):
        self._file, self._on_failure = file, on_failure
        self._meter = HostMeter(file) if samples_host else None
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._work, name="trace clerk", daemon=True)
        self._thread.start()

    def end(self) -> None:
        """Write the rest and close the file."""
        self._is_over.set()
        self._thread.join()
        if self._meter is not None:
            self._meter.measure()
        try:
            self._file.close()
        except sqlite3.Error as error:
            self._on_failure(self._file, error)

    def _work(self) -> None:
        wait_s = _WRITE_S if self._meter is None else _SAMPLE_S
        written_s = time.monotonic()
        while not self._is_over.wait(wait_s):
            if self._meter is not None:
                self._meter.measure()
            if time.monotonic() - written_s >= _WRITE_S:
                written_s = time.monotonic()
                try:
                    self._file.flush()
                except sqlite3.Error as error:  # the disk is full, or the folder is gone
                    self._on_failure(self._file, error)
                    return


class HostMeter:
    """Samples this process: bytes in memory, and share of all processors since the last sample."""

    def __init__(self, file: TraceFile):
        self._file = file
        self._process = f"{current_process().name} {os.getpid()}"
        self._last = time.perf_counter(), time.process_time()
        self._n_cores = len(os.sched_getaffinity(0)) if _HAS_AFFINITY else os.cpu_count() or 1
        self.measure()

    def measure(self) -> None:
        now_ns, now = time.time_ns(), (time.perf_counter(), time.process_time())
        memory = resident_bytes() / 2**20
        self._file.sample("host memory", "MiB", self._process, now_ns, memory)
        elapsed_s, busy_s = (later - before for later, before in zip(now, self._last, strict=True))
        if elapsed_s > _SAMPLE_S / 2:
            share = 100 * busy_s / (elapsed_s * self._n_cores)
            self._file.sample("host utilisation", "%", self._process, now_ns, share)
            self._last = now


_HAS_AFFINITY = hasattr(os, "sched_getaffinity")


def resident_bytes() -> int:
    """Bytes of this process in memory; where the system does not say, their peak."""
    try:
        with open("/proc/self/statm", "rb") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        import resource

        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # in bytes on macOS
