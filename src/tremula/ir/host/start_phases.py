"""How long each phase of a start takes, in the log `tremula.gpu` and in an open trace.

    logging.basicConfig(format="%(relativeCreated)8.0f %(message)s")
    logging.getLogger("tremula.gpu").setLevel(logging.INFO)

prints a line when a phase ends: `capture: 1.92 s (1.90 s of CPU time)`.
"""

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager

from tremula.base.tracing import COMPILATION, span

_log = logging.getLogger("tremula.gpu")


@contextmanager
def start_phase(label: str) -> Iterator[None]:
    """Measure a block; phases may be inside others, and in any thread."""
    began, began_cpu = time.perf_counter(), time.thread_time()
    try:
        with span(COMPILATION, label):
            yield
    finally:
        seconds, cpu_seconds = time.perf_counter() - began, time.thread_time() - began_cpu
        _log.info("%s: %.2f s (%.2f s of CPU time)", label, seconds, cpu_seconds)
