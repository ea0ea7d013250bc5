"""Where in the user's program something was made: the first frame outside Tremula."""

import os
import sys
from dataclasses import dataclass
from types import CodeType

_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_interned: dict[tuple[str, int], "Source"] = {}


@dataclass(frozen=True, slots=True)
class Source:
    """A line of the user's program."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


def user_source() -> Source:
    """The line of the nearest caller that is not part of Tremula."""
    frame = sys._getframe(1)
    while frame.f_back is not None and _is_ours(frame.f_code):
        frame = frame.f_back
    key = (frame.f_code.co_filename, frame.f_lineno)
    source = _interned.get(key)
    if source is None:
        source = _interned[key] = Source(*key)
    return source


def _is_ours(code: CodeType) -> bool:
    """Code of this package, or the __init__ that dataclasses generate."""
    file = code.co_filename
    return file.startswith(_PACKAGE) or (file == "<string>" and code.co_name == "__init__")
