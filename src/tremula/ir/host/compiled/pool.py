"""The compiling process, from the side that uses it: started early, asked once, ended.

It loads Inductor while the model is captured, so its imports cost no time of the script's, and
its forks compile all parts of a step at the same time.
"""

import atexit
import contextlib
import logging
import os
import select
import signal
import subprocess
import sys
import threading
import warnings
import weakref
from collections.abc import Callable, Sequence
from typing import IO

from tremula.ir.host.compiled.requests import CompileRequest, receive_answer, send_requests
from tremula.ir.host.compiled.worker import may_fork, serve

_log = logging.getLogger("tremula.gpu")
OFF_VARIABLE = "TREMULA_COMPILE_PROCESS"  # "0": compile in this process
# Looks for GPUs without using them: a process that has used one cannot be forked.
_ENVIRONMENT = {"PYTORCH_NVML_BASED_CUDA_CHECK": "1", "TORCH_WARM_POOL": "0"}
_TIMEOUT_S = 120  # for one more answer
_CODE = (
    "import sys; sys.path[:] = {path!r}; from tremula.ir.host.compiled.worker import main; main()"
)


class CompilePool:
    """A process that compiles functions for this one.

    A fork has PyTorch loaded already, which takes seconds; where this process has used a GPU, whose
    driver does not survive a fork, it is a new process.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._owner = os.getpid()
        self.sent = threading.Event()  # set when it works on requests
        self.is_fork = may_fork()
        _log.info("Inductor is loaded by %s", "a fork" if self.is_fork else "a new process")
        if self.is_fork:
            self._end, self._stdin, self._stdout = _forked()
        else:
            self._end, self._stdin, self._stdout = _spawned()
        atexit.register(self.close)

    def compile(self, requests: Sequence[CompileRequest]) -> list[str]:
        """Wait until all functions are stored; returns what went wrong with each, or ""."""
        errors = ["the compiling process ended"] * len(requests)
        with self._lock:
            try:
                send_requests(self._stdin, requests)
                self.sent.set()
                for _ in requests:
                    if not select.select([self._stdout], [], [], _TIMEOUT_S)[0]:
                        return [f"no answer for {_TIMEOUT_S} s"] * len(requests)
                    number, error = receive_answer(self._stdout, len(requests))
                    errors[number] = error
            except (OSError, EOFError, ValueError):
                return errors
        return errors

    def close(self) -> None:
        """End the process; what it is compiling is given up. Not from a fork of the script."""
        atexit.unregister(self.close)
        if os.getpid() == self._owner:
            self._end()
        for pipe in (self._stdin, self._stdout):
            with contextlib.suppress(OSError, ValueError):
                pipe.close()


End = Callable[[], None]


def _spawned() -> tuple[End, IO[bytes], IO[bytes]]:
    path = [entry or os.getcwd() for entry in sys.path]
    process = subprocess.Popen(
        [sys.executable, "-c", _CODE.format(path=path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={**os.environ, **_ENVIRONMENT},
        bufsize=0,
        start_new_session=True,  # an interrupt from the keyboard is for the script
    )
    assert process.stdin is not None, "a pipe"
    assert process.stdout is not None, "a pipe"

    def end() -> None:
        with contextlib.suppress(OSError):
            os.killpg(process.pid, signal.SIGKILL)  # with its forks
        process.wait()

    return end, process.stdin, process.stdout


def _forked() -> tuple[End, IO[bytes], IO[bytes]]:
    requests, answers = os.pipe(), os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # if this process has other threads
        child = os.fork()
    if child == 0:
        os.close(requests[1])
        os.close(answers[0])
        try:
            _work_in_fork(requests[0], answers[1])
        finally:
            os._exit(0)
    os.close(requests[0])
    os.close(answers[1])

    def end() -> None:
        for kill in os.killpg, os.kill:  # with its forks; it may not lead a group yet
            with contextlib.suppress(OSError):
                kill(child, signal.SIGKILL)
        with contextlib.suppress(OSError):
            os.waitpid(child, 0)

    return end, os.fdopen(requests[1], "wb"), os.fdopen(answers[0], "rb", 0)


def _work_in_fork(requests: int, answers: int) -> None:
    """Become the compiling process; never returns to what the script was doing."""
    import torch

    os.setsid()
    for number in signal.SIGINT, signal.SIGTERM, signal.SIGCHLD:
        signal.signal(number, signal.SIG_DFL)
    nothing = os.open(os.devnull, os.O_RDWR)
    for stream in 0, 1, 2:
        os.dup2(nothing, stream)
    os.environ.update(_ENVIRONMENT)
    warnings.simplefilter("ignore")  # a script may make them errors: importing Inductor warns
    torch.set_num_threads(1)  # those of the parent are not in a fork
    serve(os.fdopen(requests, "rb"), os.fdopen(answers, "wb"))


class _RunningPool:
    """The pool of this process, if one was started, and how many models may use it."""

    pool: CompilePool | None = None
    n_users = 0
    lock = threading.RLock()  # a collection inside of it may end the use of another model


class PoolUse:
    """A model's use of the compiling process; without models it ends.

    A use ends when `end` is called, and otherwise with this object: a model may never run, or
    be deleted before its program is chosen.
    """

    def __init__(self) -> None:
        self.end = weakref.finalize(self, _end_use)  # does nothing when it is called again
        self.end.atexit = False  # a pool ends itself


def is_allowed() -> bool:
    return os.environ.get(OFF_VARIABLE, "1") != "0"


def start_pool() -> PoolUse | None:
    """Start the compiling process for a model, unless it runs already; returns at once.

    None if it is turned off, or cannot start.
    """
    with _RunningPool.lock:
        if _RunningPool.pool is None and is_allowed():
            with contextlib.suppress(OSError):
                _RunningPool.pool = CompilePool()
        if _RunningPool.pool is None:
            return None
        _RunningPool.n_users += 1
        return PoolUse()


def running_pool() -> CompilePool | None:
    return _RunningPool.pool


def _end_use() -> None:
    with _RunningPool.lock:
        _RunningPool.n_users -= 1
        if _RunningPool.n_users:
            return
        pool, _RunningPool.pool = _RunningPool.pool, None
    if pool is not None:
        pool.close()
