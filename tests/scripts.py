"""Running scripts in separate processes, forked from one that has imported the slow modules.

Importing PyTorch takes seconds of every process. A fork of a process that has imported it starts
at once, and is as separate as any other: own memory, streams, folder, arguments and exit code. All
workers of `make test` share the process that they are forks of.
"""

import atexit
import os
import pickle
import runpy
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Mapping
from functools import cache
from multiprocessing import util
from pathlib import Path
from typing import NamedTuple

from tests import fork_server
from tremula.system.launch.topology import Topology

TIMEOUT_S = 300
PRINTED = "printed.txt"


class Fork(NamedTuple):
    """A process that runs a script, and the connection that tells how it ended."""

    number: int
    connection: socket.socket


def run_script(
    script: Path, folder: Path, arguments: list[str], environment: Mapping[str, str] | None = None
) -> tuple[int | None, str]:
    """Exit code and output of a script, in a folder; both streams as one, as they were written.

    Warnings are errors, as with `python -W error`. `environment` adds to the variables there are.
    """
    return _run(_be_script, folder, (script, arguments), environment)


def run_code(
    code: str, folder: Path, *arguments: str, **environment: str
) -> tuple[int | None, str]:
    """`run_script` for a script that is written to the folder first."""
    script = folder / "script.py"
    script.write_text(code, encoding="utf-8")
    return run_script(script, folder, list(arguments), environment)


def run_instances(code: str, folder: Path, n: int, n_replicas: int) -> list[tuple[int | None, str]]:
    """`run_code` in several processes that know of each other, as `tremula poprun` starts them."""
    script = folder / "script.py"
    script.write_text(code, encoding="utf-8")
    topology = Topology(("localhost",), n, n_replicas, 1)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        meeting = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(probe.getsockname()[1])}
    started = []
    for instance in range(n):
        place = folder / str(instance)
        place.mkdir()
        variables = {**meeting, **topology.environment(instance)}
        started.append(_start(_be_script, place, (script, []), variables))
    return [_end(process, folder / str(i)) for i, process in enumerate(started)]


def run_command(folder: Path, *arguments: object, **environment: str) -> tuple[int | None, str]:
    """Exit code and output of a `tremula` command, in a folder; warnings are not shown."""
    return _run(_be_command, folder, (list(map(str, arguments)),), environment)


def _run(
    target: Callable[..., None],
    folder: Path,
    arguments: tuple[object, ...],
    environment: Mapping[str, str] | None,
) -> tuple[int | None, str]:
    return _end(_start(target, folder, arguments, environment), folder)


def _start(
    target: Callable[..., None],
    folder: Path,
    arguments: tuple[object, ...],
    environment: Mapping[str, str] | None,
) -> Fork:
    variables = {**os.environ, **(environment or {})}
    call = pickle.dumps((target, folder, folder / PRINTED, variables, *arguments))
    with tempfile.NamedTemporaryFile(delete=False) as file:
        file.write(call)
    path = f"import sys; sys.path[:] = {sys.path!r}"
    code = f"{path}; from tests.scripts import _be_stored; _be_stored({file.name!r})"
    connection = socket.socket(socket.AF_UNIX)
    connection.settimeout(TIMEOUT_S)
    connection.connect(_server())
    socket.send_fds(connection, [code.encode()], [0, 1, 2])
    number = fork_server.next_number(connection)
    assert number is not None, "the process that scripts are forks of has ended"
    return Fork(number, connection)


@cache
def _server() -> str:
    """Where the run's process for scripts listens; a run without forked workers starts one."""
    shared = os.environ.get(fork_server.VARIABLE)
    if shared is not None:
        return shared
    folder = tempfile.mkdtemp()
    path = Path(folder, "scripts")
    command = [sys.executable, fork_server.__file__, str(path), str(os.getpid())]
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL)
    atexit.register(lambda: (process.kill(), process.wait(), shutil.rmtree(folder)))
    while not path.exists():
        assert process.poll() is None, "the process that scripts are forks of has ended"
        time.sleep(0.01)
    return str(path)


def _end(fork: Fork, folder: Path) -> tuple[int | None, str]:
    with fork.connection:
        try:
            status = fork_server.next_number(fork.connection)
        except TimeoutError:
            os.kill(fork.number, signal.SIGKILL)
            status = None
    text = (folder / PRINTED).read_text(encoding="utf-8")
    (folder / PRINTED).unlink()
    return status, text


def _be_stored(file: str) -> None:
    """Run what `_start` has stored."""
    call = Path(file).read_bytes()
    Path(file).unlink()
    target, *arguments = pickle.loads(call)
    try:
        _be(target, *arguments)
    finally:
        util._exit_function()  # ends processes that the script has started
        threading._shutdown()


def _be(
    target: Callable[..., None],
    folder: Path,
    printed: Path,
    variables: Mapping[str, str],
    *arguments: object,
) -> None:
    os.environ.update(variables)
    os.chdir(folder)
    with printed.open("w", encoding="utf-8") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(line_buffering=True)
    target(*arguments)


def _be_command(arguments: list[str]) -> None:
    from tremula.commands import main

    warnings.simplefilter("ignore")
    sys.argv = ["tremula", *arguments]
    sys.exit(main(arguments))


def _be_script(script: Path, arguments: list[str]) -> None:
    sys.argv = [str(script), *arguments]
    sys.path.insert(0, str(script.parent))
    warnings.resetwarnings()
    warnings.simplefilter("error")
    # PyTorch Geometric scripts some of its classes when it is imported.
    warnings.filterwarnings("ignore", "`torch.jit.script` is deprecated", DeprecationWarning)
    # Keras's Variable converts to an array without NumPy 2's `copy`.
    text = "__array__ implementation doesn't accept a copy keyword"
    warnings.filterwarnings("ignore", text, DeprecationWarning)
    runpy.run_path(str(script), run_name="__main__")
