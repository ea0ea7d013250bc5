"""Commands as processes: closed pipes, full disks, Ctrl-C, terminals and locales."""

import os
import signal
import subprocess
import sys
from contextlib import ExitStack, contextmanager

import pytest

INTERRUPTED = 130
WAITS = "import time\nprint('ready', flush=True)\ntime.sleep(60)\n"


# `python -m tremula`; what a job in the background inherits is to ignore Ctrl-C.
HEEDING = (
    "import runpy, signal\n"
    "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
    "runpy.run_module('tremula', run_name='__main__')\n"
)


@contextmanager
def started(folder, *arguments, **options):
    """A `tremula` process; whatever happens, it is gone at the end."""
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    command = [sys.executable, "-c", HEEDING, *arguments]
    with subprocess.Popen(command, cwd=folder, **{**streams, **options}) as process:
        try:
            yield process
        finally:
            process.kill()


@pytest.mark.slow
def test_ctrl_c(files):
    """Ctrl-C ends a script, a sweep, a measurement, a check and a demo at once, in a word."""
    (files / "waits.py").write_text(WAITS)
    cases = (
        (["run", "waits.py"], "stdout"),
        (["whatif", "waits.py"], "stdout"),
        (["bench", "core", "--only", "heat"], "stderr"),
        (["validate"], "stderr"),
        (["demo", "--tiles", "--steps", "100000000", "--report", "out"], "stdout"),
    )
    with ExitStack() as stack:
        begun = [stack.enter_context(started(files, *arguments)) for arguments, _ in cases]
        for process, (arguments, tells) in zip(begun, cases, strict=True):
            getattr(process, tells).readline()  # it is at work
            process.send_signal(signal.SIGINT)
            _, err = process.communicate(timeout=200)
            assert process.returncode == INTERRUPTED, (arguments, err)
            assert err.endswith("\ninterrupted\n"), (arguments, err)
            assert "Traceback" not in err


@pytest.mark.slow
def test_ctrl_c_is_how_the_page_ends(files):
    """`tremula view` runs until Ctrl-C, which is no failure."""
    with started(files, "view", "report", "--no-browser") as process:
        assert process.stdout.readline().startswith("http://127.0.0.1:")
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=200)
        assert (process.returncode, err) == (0, "")


def test_a_closed_pipe(files):
    """`tremula … | head -1` does not complain about lines that are not read."""
    (files / "prints.py").write_text("for i in range(200_000):\n    print(i)\n")
    with started(files, "run", "prints.py") as process:
        assert process.stdout.readline() == "0\n"
        process.stdout.close()
        assert process.stderr.read() == ""
        assert process.wait(timeout=200) == 1


def test_a_full_disk_behind_the_output(files):
    """`tremula … > FILE` on a full disk fails and says why, once."""
    with open("/dev/full", "w") as full, started(files, "chips", stdout=full) as process:
        assert process.communicate()[1] == "error: No space left on device.\n"
        assert process.returncode == 1


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_other_encodings(files, encoding):
    """Where the output lacks a character another one stands for it."""
    environment = {**os.environ, "PYTHONIOENCODING": encoding}
    with started(files, "report", "report", env=environment, text=None) as process:
        out, err = process.communicate()
        assert (process.returncode, err) == (0, b"")
        assert b"cycles" in out
