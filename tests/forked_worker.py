"""The interpreter of xdist's workers in `make test`: a fork of one process that has imported all.

Imports take half of the time that a worker needs before its first test, several times that where
no bytecode is stored yet. `python tests/forked_worker.py -u -c CODE` runs the code as Python would.
The first such process of a run forks the one that imports; each hands it its streams, and waits for
the fork that uses them to end. Without an answer the code runs in a plain interpreter.
"""

import fcntl
import gc
import importlib
import os
import select
import signal
import socket
import sys
import tempfile
import warnings
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import TextIO

_ROOT = Path(__file__).resolve().parent.parent
# In the order in which test modules would import them, then what their first tests would load.
_MODULES = (
    "torch._dynamo torch_geometric poptorch transformers tremula.explore poptorch_geometric "
    "tremula.jax popart popxl tremula.keras optimum.graphcore scipy.optimize "
    "transformers.models.bert.modeling_bert tremula.onnx fastapi schemathesis.pytest.plugin "
    "tremula.ir.run.compiled_step tremula.ir.run.tile_program tremula.runtime.engine "
    "torch._inductor.compile_fx distributed"
).split()
_LOOK_S = 2.0  # how often the importing process looks whether the run has ended


def main() -> None:
    """Run the code of the command line in a fork, or in this process's place."""
    code, run = sys.argv[-1], os.getppid()
    with suppress(OSError), _connected(run) as connection:
        socket.send_fds(connection, [code.encode()], [0, 1, 2])
        for stream in (0, 1):
            os.close(stream)  # the fork's now: the run waits for their end
        connection.recv(1)  # returns when the fork has ended
        os._exit(0)
    os.execv(sys.executable, [sys.executable, "-u", "-c", code])


def _connected(run: int) -> socket.socket:
    """A connection to the importing process of this run, which the first to come starts."""
    folder = Path(tempfile.gettempdir(), f"tremula-workers-{os.getuid()}")
    folder.mkdir(mode=0o700, exist_ok=True)
    if folder.stat().st_uid != os.getuid():
        raise PermissionError(folder)
    path, connection = folder / str(run), socket.socket(socket.AF_UNIX)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not path.exists():
            _start(path, run, lock)
        connection.connect(str(path))
    return connection


def _start(path: Path, run: int, lock: TextIO) -> None:
    """Fork the importing process; connections wait until it has imported everything."""
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(path))
    listener.listen()
    if os.fork():
        listener.close()
        return
    lock.close()  # otherwise it would be locked as long as this process lives
    try:
        _import_all()
        _serve(listener, run)
    finally:
        path.unlink(missing_ok=True)
        os._exit(0)


def _import_all() -> None:
    nothing = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1):
        os.dup2(nothing, stream)
    sys.path[0] = str(_ROOT)
    variables = importlib.import_module("tests.variables")
    variables.set_variables(is_worker=True)
    importlib.import_module("tremula").install()
    warnings.simplefilter("ignore")
    for name in _MODULES:
        with suppress(ImportError):  # tests of what is not installed say so
            importlib.import_module(name)
    warnings.resetwarnings()
    gc.collect()
    gc.freeze()  # a collection would write to pages that forks share


def _serve(listener: socket.socket, run: int) -> None:
    """Fork for each connection until the run has ended."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while _is_alive(run):
        if not select.select([listener], [], [], _LOOK_S)[0]:
            continue
        connection, _ = listener.accept()
        code, streams, _, _ = socket.recv_fds(connection, 1 << 16, 3)
        if not os.fork():
            listener.close()
            _be_worker(code.decode(), streams)
        connection.close()
        for stream in streams:
            os.close(stream)


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True


def _be_worker(code: str, streams: list[int]) -> None:
    """Be an interpreter that was started with `-u -c`, until its code ends."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(write_through=True)
    sys.argv, sys.path[0] = ["-c"], ""
    sys.modules["__main__"] = namespace = ModuleType("__main__")
    status = 0
    try:
        exec(code, namespace.__dict__)
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else 1
    finally:
        sys.stdout.flush()
        os._exit(status)


if __name__ == "__main__":
    main()
