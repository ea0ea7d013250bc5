"""Turns on a GPU that several processes of one table share: one measures, the others are stopped.

`python -m tools.gpu_table` runs many cases at once and tells each by a variable where to ask for a
turn. Between turns models are compiled side by side. Without the variable `alone` does nothing.
"""

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager

VARIABLE = "TREMULA_GPU_TURNS"  # NUMBER@PATH: the number of the case, and a socket
_turns: list[socket.socket] = []  # of this process: one at most


@contextmanager
def alone() -> Iterator[None]:
    """Inside, no other case of the table uses the GPU or a core; may be nested."""
    variable = os.environ.get(VARIABLE, "")
    if not variable or _turns:
        yield
        return
    number, _, path = variable.partition("@")
    with socket.socket(socket.AF_UNIX) as turn:
        turn.connect(path)
        turn.sendall(f"{number}\n".encode())
        turn.recv(1)  # answered when the others have stopped; the turn ends with the socket
        _turns.append(turn)
        try:
            yield
        finally:
            _turns.clear()


def environment_of_part() -> dict[str, str]:
    """This process's variables for a process that it starts in its turn, which asks for none."""
    return {name: value for name, value in os.environ.items() if name != VARIABLE}
