"""The version of Tremula, the one place it is written, and the Pythons that it runs on.

The first that is imported: it uses nothing that an older Python lacks. pip rejects other Pythons
when it installs Tremula; a clone on the path, or an exchanged Python, is rejected here.
"""

import os
import sys

VERSION = "0.2.0"

FIRST_PYTHON, LAST_PYTHON = (3, 11), (3, 14)
ANY_VERSION = "TREMULA_ANY_VERSION"  # set: versions outside of their range are tried


def require_python() -> None:
    """Raise where the running Python is outside of the range."""
    if FIRST_PYTHON <= tuple(sys.version_info[:2]) <= LAST_PYTHON or os.environ.get(ANY_VERSION):
        return
    running = ".".join(map(str, sys.version_info[:3]))
    names = [".".join(map(str, version)) for version in (FIRST_PYTHON, LAST_PYTHON)]
    raise ImportError(
        f"Tremula works with Python {names[0]} to {names[1]}, and this is {running}.\n"
        f"  try: python{names[0]} -m venv .venv, and install it there; "
        f"or set {ANY_VERSION}=1 to try it"
    )
