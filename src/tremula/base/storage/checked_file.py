"""Files of the cache that end in a checksum: one that was damaged or cut short counts as missing.

Machine code is not read by a parser that would notice: a library that lost its end can end the
process that loads it. The checksum comes last, where loaders of libraries do not look.
"""

import hashlib
import os
import time
from contextlib import suppress
from pathlib import Path

from tremula.base.storage.atomic_file import atomic_file

_MARK = b"tremula\1"
_N_CHECK = hashlib.sha256().digest_size + len(_MARK)
DAY_S = 24 * 3600


def write_checked(path: Path, content: bytes) -> None:
    """Write a file that `read_checked` accepts, in a folder that only its owner can read."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    with atomic_file(path) as file:
        file.write(content + hashlib.sha256(content).digest() + _MARK)


def read_checked(path: Path) -> bytes | None:
    """The content of a file to use; None if there is none, or it is not what was written."""
    content = _whole_content(path)
    if content is not None:
        _note_use(path)
    return content


def is_usable(path: Path) -> bool:
    """Whether a file that something else is going to read, a loader of libraries say, is whole."""
    return read_checked(path) is not None


def is_whole(path: Path) -> bool:
    """Whether a file is as it was written; this is not a use of it."""
    return _whole_content(path) is not None


def _whole_content(path: Path) -> bytes | None:
    try:
        stored = path.read_bytes()
    except OSError:
        return None
    content, check = stored[:-_N_CHECK], stored[-_N_CHECK:]
    return content if check == hashlib.sha256(content).digest() + _MARK else None


def _note_use(path: Path) -> None:
    """Set the time of a file in use: `tremula cache prune` removes what was not used for long."""
    with suppress(OSError):
        if time.time() - path.stat().st_mtime > DAY_S:
            os.utime(path)
