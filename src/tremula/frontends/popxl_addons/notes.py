"""What the addons remember about a program, beside the program itself."""

from typing import Any
from weakref import WeakKeyDictionary

import popxl

_notes: "WeakKeyDictionary[popxl.Ir, dict[str, Any]]" = WeakKeyDictionary()


def notes_of(ir: popxl.Ir) -> dict[str, Any]:
    """Notes by subject; they live as long as the program."""
    return _notes.setdefault(ir, {})
