"""Where in the user's program something was made: the first frame outside Tremula."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
# The programs of the benches use Tremula as a user's do.
_USERS = _PACKAGE + "bench" + os.sep
_stated: "Source | None" = None
_interned: dict[tuple[str, int], "Source"] = {}


@dataclass(frozen=True, slots=True, eq=False)
class Source:
    """A line of the user's program. Interned: the same line is the same object."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


def source_at(file: str, line: int) -> Source:
    """The one Source of a line; make them only with this, so that equal means identical."""
    key = (file, line)
    source = _interned.get(key)
    if source is None:
        source = _interned[key] = Source(*key)
    return source


def user_source() -> Source:
    """The line of the nearest caller that is not part of Tremula, or what `at_source` says."""
    if _stated is not None:
        return _stated
    frame = sys._getframe(1)
    while (
        (file := frame.f_code.co_filename).startswith(_PACKAGE) and not file.startswith(_USERS)
    ) or (
        file == "<string>" and frame.f_code.co_name == "__init__"  # made by dataclasses
    ):
        if frame.f_back is None:
            break
        frame = frame.f_back
    return source_at(file, frame.f_lineno)


@contextmanager
def at_source(source: Source | None) -> Iterator[None]:
    """What is made inside the block comes from `source`: a line of a model, not of our caller."""
    global _stated  # noqa: PLW0603  one program is built at a time
    before, _stated = _stated, source or _stated
    try:
        yield
    finally:
        _stated = before
