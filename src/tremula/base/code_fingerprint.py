"""Fingerprints of our own source files, so that caches never outlive the code that filled them."""

import hashlib
import sys
from functools import cache
from pathlib import Path

PACKAGE = Path(__file__).resolve().parent.parent


@cache
def code_fingerprint(*parts: str) -> str:
    """A hash of the text of these files and folders of `tremula`, and of Python's version.

    `code_fingerprint("base", "codelets/native")`; folders with all that is in them, however deep.
    """
    hasher = hashlib.sha256(sys.version.encode())
    for part in parts:
        place = PACKAGE / part
        for path in sorted(place.rglob("*.py")) if place.is_dir() else [place]:
            hasher.update(f"{path.relative_to(PACKAGE).as_posix()}\0".encode())
            hasher.update(path.read_bytes())
    return hasher.hexdigest()
