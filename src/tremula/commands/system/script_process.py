"""One process of `tremula launch`: sets what a script looks for, and becomes the script.

The variables are those that PopRun's MPI would have set, which say `poptorch.Options().Distributed`
and `popdist` their rank.
"""

import builtins
import os
import sys
from pathlib import Path
from types import TracebackType

# torchrun's variables, and what Open MPI calls them.
MPI_NAMES = {
    "WORLD_SIZE": "OMPI_COMM_WORLD_SIZE",
    "RANK": "OMPI_COMM_WORLD_RANK",
    "LOCAL_WORLD_SIZE": "OMPI_COMM_WORLD_LOCAL_SIZE",
    "LOCAL_RANK": "OMPI_COMM_WORLD_LOCAL_RANK",
}


def become_script(command: list[str]) -> None:
    """Run a script as the module `__main__`, which pickles and other processes look for.

    A Ctrl-C reaches every process of a terminal. One that does not handle it ends without a
    traceback: the launcher says what happened, once.
    """
    for name, mpi_name in MPI_NAMES.items():
        os.environ[mpi_name] = os.environ[name]
    path = Path(command[0])
    code = compile(path.read_bytes(), str(path), "exec", dont_inherit=True)
    sys.argv[:], sys.path[0] = command, str(path.resolve().parent)
    sys.excepthook = _report_failure
    main = sys.modules["__main__"].__dict__
    main.clear()
    main.update(
        __name__="__main__", __file__=str(path), __builtins__=builtins, __spec__=None,
        __doc__=None, __package__=None, __loader__=None,
    )  # fmt: skip
    exec(code, main)


def _report_failure(
    kind: type[BaseException], error: BaseException, trace: TracebackType | None
) -> None:
    """For sys.excepthook: nothing about an interrupt, and no frame of ours about others."""
    if issubclass(kind, KeyboardInterrupt):
        return
    while trace is not None and trace.tb_frame.f_code.co_name != "become_script":
        trace = trace.tb_next
    trace = None if trace is None else trace.tb_next
    sys.__excepthook__(kind, error.with_traceback(trace), trace)


if __name__ == "__main__":
    # The functions of the imported module stay when this one is replaced.
    from tremula.commands.system import script_process  # noqa: PLW0406

    script_process.become_script(sys.argv[1:])
