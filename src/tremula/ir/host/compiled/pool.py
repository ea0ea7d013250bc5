"""The compiling process, from the side that uses it: started early, asked once, ended.

It loads Inductor while the model is captured, so its imports cost no time of the script's, and
its forks compile all parts of a step at the same time.
"""

import atexit
import contextlib
import os
import pickle
import subprocess
import sys
import threading
from collections.abc import Sequence

from tremula.ir.host.compiled.requests import CompileRequest

OFF_VARIABLE = "TREMULA_COMPILE_PROCESS"  # "0": compile in this process
# Looks for GPUs without using them: a process that has used one cannot be forked.
_ENVIRONMENT = {"PYTORCH_NVML_BASED_CUDA_CHECK": "1", "TORCH_WARM_POOL": "0"}
_CODE = (
    "import sys; sys.path[:] = {path!r}; from tremula.ir.host.compiled.worker import main; main()"
)


class CompilePool:
    """A process that compiles functions for this one."""

    def __init__(self) -> None:
        path = [entry or os.getcwd() for entry in sys.path]
        self._process = subprocess.Popen(
            [sys.executable, "-c", _CODE.format(path=path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, **_ENVIRONMENT},
        )
        self._lock = threading.Lock()
        atexit.register(self.close)

    def compile(self, requests: Sequence[CompileRequest]) -> list[str]:
        """Wait until all functions are stored; returns what went wrong with each, or ""."""
        errors = ["the compiling process ended"] * len(requests)
        with self._lock:
            stdin, stdout = self._process.stdin, self._process.stdout
            assert stdin is not None, "a pipe"
            assert stdout is not None, "a pipe"
            try:
                pickle.dump(list(requests), stdin)
                stdin.flush()
                for _ in requests:
                    number, error = pickle.load(stdout)
                    errors[number] = error
            except (OSError, EOFError, pickle.UnpicklingError, ValueError):
                return errors
        return errors

    def close(self) -> None:
        """End the process; what it is compiling is given up."""
        atexit.unregister(self.close)
        with contextlib.suppress(OSError):
            if self._process.poll() is None:
                self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()


class _Running:
    """The pool of this process, if one was started."""

    pool: CompilePool | None = None
    lock = threading.Lock()


def is_allowed() -> bool:
    return os.environ.get(OFF_VARIABLE, "1") != "0"


def start_pool() -> None:
    """Start the compiling process, unless it runs already; returns at once."""
    with _Running.lock:
        if _Running.pool is None and is_allowed():
            with contextlib.suppress(OSError):
                _Running.pool = CompilePool()


def running_pool() -> CompilePool | None:
    return _Running.pool


def end_pool() -> None:
    """End the compiling process: its memory is free, and the next one starts afresh."""
    with _Running.lock:
        pool, _Running.pool = _Running.pool, None
    if pool is not None:
        pool.close()
