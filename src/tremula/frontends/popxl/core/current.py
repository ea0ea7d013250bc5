"""`popxl.context`'s Context: what is open in this thread, as one object; where code was called."""

import functools
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from traceback import walk_stack
from typing import Any, NamedTuple

from tremula.frontends.popxl.core.context import (
    GRAPHS,
    HOOK_HANDLES,
    HOOKS,
    IO,
    NAMES,
    SEQUENCES,
    current_ipu,
    current_tile_set,
    get_current_graph,
    get_main_graph,
)
from tremula.frontends.popxl.core.graph import Graph
from tremula.frontends.popxl.core.op import Op


class CallSite(NamedTuple):
    """A line of a user's program."""

    function: str
    file: str
    line: int


class Context:
    """A view of what `with` statements opened: graph, chip, tiles, names, order."""

    @property
    def ipu_id(self) -> int | None:
        return current_ipu()

    @property
    def io_tile_set(self) -> bool:
        """Whether operations go to I/O tiles."""
        return current_tile_set() == IO

    def push_name_scope(self, name: str) -> None:
        NAMES.set((*NAMES.get(), (get_current_graph(), name)))

    def pop_name_scope(self) -> str:
        names = NAMES.get()
        NAMES.set(names[:-1])
        return names[-1][1]

    @property
    def name_scopes(self) -> list[str]:
        return [name for _, name in NAMES.get()]

    def push_graph(self, g: Graph) -> None:
        g.__enter__()

    def pop_graph(self) -> Graph:
        graph = get_current_graph()
        GRAPHS.set(GRAPHS.get()[:-1])
        return graph

    @property
    def graph(self) -> Graph:
        return get_current_graph()

    @property
    def main_graph(self) -> Graph:
        return get_main_graph()

    @property
    def ir(self) -> Any:
        return get_current_graph().ir

    @property
    def in_sequence(self) -> bool | None:
        """Whether operations follow each other: None outside of any block."""
        sequences = SEQUENCES.get()
        return sequences[-1].mode if sequences else None

    def register_op_created_hook(self, fn: Callable[[Op], object]) -> int:
        """Call a function with each operation that is made in any graph; returns a handle."""
        handle = next(HOOK_HANDLES)
        HOOKS.set((*HOOKS.get(), (handle, fn)))
        return handle

    def remove_op_created_hook(self, handle: int) -> None:
        hooks = HOOKS.get()
        if handle not in {number for number, _ in hooks}:
            raise ValueError(f"There is no hook {handle} for created operations")
        HOOKS.set(tuple(hook for hook in hooks if hook[0] != handle))


_CONTEXT = Context()


def get_current_context() -> Context:
    """What is open in this thread."""
    return _CONTEXT


@contextmanager
def debug_context_frame_offset(i: int) -> Iterator[int]:
    """Keep frames of helpers out of source lines; here lines are those outside of the packages."""
    yield i


def get_source_location(offset: int) -> CallSite:
    """The line of a caller, `offset` frames up."""
    # inspect.stack would look for the module of each frame among all that are loaded.
    frames = [frame for frame, _ in walk_stack(sys._getframe(1))]
    if offset >= len(frames):
        raise IndexError(f"There are {len(frames)} frames, but frame {offset} was asked for")
    code = frames[offset].f_code
    return CallSite(code.co_name, str(Path(code.co_filename).resolve()), frames[offset].f_lineno)


def op_debug_context(name: str | Callable) -> Callable:
    """A decorator of functions that make operations, which names them in debug information."""

    def named(function: Callable) -> Callable:
        @functools.wraps(function)
        def make(*args: object, **kwargs: object) -> object:
            return function(*args, **kwargs)

        return make

    return named(name) if callable(name) else named
