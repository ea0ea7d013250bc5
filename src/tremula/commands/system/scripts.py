"""Console scripts: `vipu …` is `tremula vipu …`, `gc-info …` is `tremula system info …`."""

import sys
from pathlib import Path

from tremula.commands import main


def _script(*words: str) -> int:
    return main([*words, *sys.argv[1:]])


def vipu() -> int:
    return _script("vipu")


def vipu_server() -> int:
    return _script("vipu-server")


def poprun() -> int:
    return _script("poprun")


def gc_tool() -> int:
    """`gc-NAME …` is `tremula system NAME …`."""
    return _script("system", Path(sys.argv[0]).name.removeprefix("gc-"))
