"""The interpreter of xdist's workers in `make test`: a fork of one process that has imported all.

Imports take half of the time that a worker needs before its first test, several times that where
no bytecode is stored yet. `python tests/forked_worker.py -u -c CODE` runs the code as Python would.
The first such process of a run forks the one that imports; each hands it its streams, and waits for
the fork that uses them to end. Without an answer the code runs in a plain interpreter. Before it
imports front ends, that process forks another, of which the scripts of all workers are forks.
"""

import fcntl
import gc
import importlib
import importlib.util
import os
import socket
import sys
import tempfile
import warnings
from contextlib import suppress
from pathlib import Path
from typing import TextIO

_ROOT = Path(__file__).resolve().parent.parent
sys.path[0] = str(_ROOT)
from tests import fork_server  # noqa: E402 - it is beside this script

# In the order in which test modules would import them, then what their first tests would load.
_MODULES = (
    "torch._dynamo torch_geometric poptorch transformers tremula.explore poptorch_geometric "
    "tremula.jax popart popxl tremula.keras optimum.graphcore scipy.optimize "
    "transformers.models.bert.modeling_bert tremula.onnx fastapi schemathesis.pytest.plugin "
    "tremula.ir.run.compiled_step tremula.ir.run.tile_program tremula.runtime.engine "
    "torch._inductor.compile_fx distributed"
).split()


def main() -> None:
    """Run the code of the command line in a fork, or in this process's place."""
    code, run = sys.argv[-1], os.getppid()
    with suppress(OSError), _connected(run) as connection:
        socket.send_fds(connection, [code.encode()], [0, 1, 2])
        for stream in (0, 1):
            os.close(stream)  # the fork's now: the run waits for their end
        fork_server.next_number(connection)
        fork_server.next_number(connection)  # when it has ended
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
    listener = fork_server.listening(path)
    if os.fork():
        listener.close()
        return
    lock.close()  # otherwise it would be locked as long as this process lives
    try:
        _start_scripts(path.with_suffix(".scripts"), run, listener)
        _write_bytecode()
        _import_all()
        fork_server.serve(listener, run)
    finally:
        path.unlink(missing_ok=True)
        os._exit(0)


def _start_scripts(path: Path, run: int, of_workers: socket.socket) -> None:
    """Fork the process that scripts are forks of, with the imports there are so far."""
    nothing = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1):
        os.dup2(nothing, stream)
    importlib.import_module("tests.variables").set_variables(is_worker=True)
    os.environ[fork_server.VARIABLE] = str(path)
    fork_server.import_base()
    listener = fork_server.listening(path)
    if os.fork():
        listener.close()
        return
    of_workers.close()
    try:
        fork_server.serve(listener, run)
    finally:
        path.unlink(missing_ok=True)
        os._exit(0)


def _write_bytecode() -> None:
    """In a new environment, have another process import the libraries in the opposite order.

    There the time goes to compiling them. Each process finds bytecode of what the other had first.
    """
    spec = importlib.util.find_spec("transformers")
    if spec is None or spec.cached is None or Path(spec.cached).exists():
        return
    if os.fork() == 0:
        with suppress(BaseException):
            _import_all(_MODULES[::-1])
        os._exit(0)


def _import_all(modules: list[str] = _MODULES) -> None:
    importlib.import_module("tremula").install()
    warnings.simplefilter("ignore")
    for name in modules:
        with suppress(ImportError):  # tests of what is not installed say so
            importlib.import_module(name)
    warnings.resetwarnings()
    gc.collect()
    gc.freeze()  # a collection would write to pages that forks share


if __name__ == "__main__":
    main()
