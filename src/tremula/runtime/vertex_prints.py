"""What C++ codelets print while a program runs, written to a stream of the script's choice."""

import ctypes
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO

_STDOUT = 1


@contextmanager
def vertex_prints_to(stream: IO[str] | None) -> Iterator[None]:
    """Collect what native code prints to the process's standard output; None leaves it there.

    The output of other threads that print at the same time is collected, too.
    """
    if stream is None:
        yield
        return
    libc = ctypes.CDLL(None)
    with tempfile.TemporaryFile() as printed:
        libc.fflush(None)
        before = os.dup(_STDOUT)
        os.dup2(printed.fileno(), _STDOUT)
        try:
            yield
        finally:
            libc.fflush(None)
            os.dup2(before, _STDOUT)
            os.close(before)
            printed.seek(0)
            stream.write(printed.read().decode(errors="replace"))
