"""`tremula launch --nproc N script.py …`: run a script in N processes that work together.

torchrun starts the processes and lets them find each other. Each runs `script_process.py`, which
becomes the script.
"""

import argparse
import logging
import os
import signal
import sys
from importlib.util import find_spec
from pathlib import Path

from tremula.base.errors import FileLoadError, PoplarError
from tremula.base.libraries.parts import install_hint
from tremula.base.libraries.patching import replaced
from tremula.commands.arguments import whole
from tremula.commands.system import script_process

_TORCHRUN = "torch.distributed.elastic"
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--nproc", type=whole(1, 1024), required=True, help="how many processes", metavar="N"
    )
    parser.add_argument("script", type=Path, help="a Python file")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="arguments of the script")


def run(args: argparse.Namespace) -> int:
    if not args.script.is_file():
        raise FileLoadError(
            f"there is no script {str(args.script)!r}.", hint="give the path of a Python file"
        )
    if find_spec("torch") is None:
        raise PoplarError(
            "`tremula launch` starts processes with PyTorch's torchrun, and PyTorch is not "
            "installed.",
            hint=install_hint("torch"),
        )
    return _run_processes(args.nproc, [str(args.script), *args.arguments])


def _run_processes(n_processes: int, command: list[str]) -> int:
    from torch.distributed.elastic.multiprocessing.api import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.elastic.rendezvous import dynamic_rendezvous
    from torch.distributed.run import parse_args
    from torch.distributed.run import run as run_torchrun

    _silence_torchrun()
    # Left alone, torchrun would give each process a single thread.
    os.environ.setdefault("OMP_NUM_THREADS", str(max(1, _n_cores() // n_processes)))
    own = ["--standalone", f"--nproc-per-node={n_processes}", "-m", script_process.__name__]
    # torchrun leaves handlers behind that raise its own exception.
    handlers = {number: signal.getsignal(number) for number in _SIGNALS}
    try:
        with replaced(dynamic_rendezvous, "get_method_name", lambda: "unknown"):
            run_torchrun(parse_args([*own, *command]))
    except ChildFailedError as error:
        rank, failure = error.get_first_failure()
        what = f"process {rank} of {n_processes} failed with exit code {failure.exitcode}"
        print(f"error: {what}; the others were stopped", file=sys.stderr)
        return failure.exitcode if failure.exitcode > 0 else 128 - failure.exitcode
    except SignalException as stopped:
        print(f"\nstopped by {stopped.sigval.name}", file=sys.stderr)
        return 128 + stopped.sigval
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
    return 0


def _silence_torchrun() -> None:
    """It would report a failed or interrupted process over a page; a line of ours says the same.

    Its modules have loggers, each with its own level.
    """
    for name in [*logging.root.manager.loggerDict, _TORCHRUN]:
        if name.startswith(_TORCHRUN):
            logging.getLogger(name).setLevel(logging.CRITICAL)


def _n_cores() -> int:
    """The cores this process may use; a container may limit them."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
