"""Processes as forks of one that has imported the slow modules.

    python tests/fork_server.py PATH RUN       listens at PATH until process RUN has ended

A client connects, hands over code and its three streams, and is told the number of the fork, and
the code's exit code when it ends.
"""

import gc
import importlib
import os
import select
import signal
import socket
import struct
import sys
import traceback
from pathlib import Path
from types import ModuleType

VARIABLE = "TREMULA_TEST_SCRIPTS"  # the path at which the run's process for scripts listens
# No front end: scripts check what their imports load. `torch.optim` imports `torch._dynamo`.
_BASE = (
    "torch._dynamo torch_geometric tremula.compiler.compile tremula.ir.lowering.program.build "
    "tremula.ir.run.compiled_step tremula.ir.run.tile_cache tremula.ir.run.tile_program "
    "tremula.runtime.engine tremula.runtime.forecast"
).split()
_USING_A_GPU = ("torch_geometric",)  # its import starts the driver, if there is one
_DRIVER = "/dev/nvidiactl"
_LOOK_S = 2.0  # how often a server looks whether the run has ended
_NUMBER = struct.Struct("i")


def import_base() -> None:
    """Import what most scripts need, and let Numba load its tables, as the first kernel would."""
    os.environ["PYTORCH_NVML_BASED_CUDA_CHECK"] = "1"  # a fork could not use a GPU that was used
    for name in _BASE:
        if name not in _USING_A_GPU or not Path(_DRIVER).exists():
            importlib.import_module(name)
    cpu_target = importlib.import_module("numba.core.registry").cpu_target
    cpu_target.target_context.refresh()
    gc.collect()
    gc.freeze()  # a collection would write to pages that forks share


def listening(path: Path) -> socket.socket:
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(path))
    listener.listen()
    return listener


def next_number(connection: socket.socket) -> int | None:
    """What a fork tells next: its process number, then its exit code; None if it was killed."""
    content = connection.recv(_NUMBER.size, socket.MSG_WAITALL)
    return _NUMBER.unpack(content)[0] if len(content) == _NUMBER.size else None


def serve(listener: socket.socket, run: int) -> None:
    """Fork for each connection until the run has ended."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while _is_alive(run):
        if not select.select([listener], [], [], _LOOK_S)[0]:
            continue
        connection, _ = listener.accept()
        code, streams, _, _ = socket.recv_fds(connection, 1 << 16, 3)
        if not os.fork():
            listener.close()
            _be_process(code.decode(), streams, connection)
        connection.close()
        for stream in streams:
            os.close(stream)


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True


def _be_process(code: str, streams: list[int], connection: socket.socket) -> None:
    """Be an interpreter that was started with `-u -c`, until its code ends."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    connection.send(_NUMBER.pack(os.getpid()))
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(write_through=True)
    sys.argv, sys.path[0] = ["-c"], ""
    sys.modules["__main__"] = namespace = ModuleType("__main__")
    status = 1
    try:
        exec(code, namespace.__dict__)
        status = 0
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else int(end.code is not None)
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)
    except BaseException:  # noqa: BLE001 - whatever it is, it ends this process
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        connection.send(_NUMBER.pack(status))
        os._exit(status)


def main() -> None:
    """Serve one run that was started without `tests/forked_worker.py`."""
    path, run = Path(sys.argv[1]), int(sys.argv[2])
    sys.path[0] = str(Path(__file__).resolve().parent.parent)
    listener = listening(path)
    import_base()
    serve(listener, run)


if __name__ == "__main__":
    main()
