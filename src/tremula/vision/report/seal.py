"""The seal of a report: a checksum of all its bytes, so that damage is found when it is opened.

Reports are written once and whole. Whatever changes a byte later, cuts the file or adds to it,
breaks the seal; so code that reads a sealed report may rely on what the writer put in. The seal
is in `user_version`, four bytes of an SQLite file that belong to the application.
"""

import os
import zlib
from pathlib import Path

import numpy as np

_AT, _N_BYTES = 60, 4  # where SQLite's header keeps `user_version`, most significant byte first
_PAGE_BYTES, _PAGES_AT_ONCE = 4096, 256
_UNSEALED = bytes(_N_BYTES)


def seal(path: str | os.PathLike[str]) -> None:
    """Write the checksum of a finished file into it."""
    checksum = checksum_of(path)
    with Path(path).open("r+b") as file:
        file.seek(_AT)
        file.write(checksum)


def seal_of(path: str | os.PathLike[str]) -> bytes | None:
    """The seal that a file carries; None if it has none."""
    with Path(path).open("rb") as file:
        result = file.read(_AT + _N_BYTES)[_AT:]
    return result if result != _UNSEALED else None


def checksum_of(path: str | os.PathLike[str]) -> bytes:
    """What the seal of a file must be.

    64-bit words are summed along each page and at each place of a page, three times as fast as a
    CRC of everything; then comes the CRC of those sums.
    """
    rows: list[np.ndarray] = []
    columns = np.zeros(_PAGE_BYTES // 8, np.uint64)
    buffer = bytearray(_PAGE_BYTES * _PAGES_AT_ONCE)
    words = np.frombuffer(buffer, "<u8").reshape(_PAGES_AT_ONCE, -1)
    n_bytes = 0
    with Path(path).open("rb") as file:
        while n_read := file.readinto(buffer):
            n_pages = -(-n_read // _PAGE_BYTES)
            buffer[n_read : n_pages * _PAGE_BYTES] = bytes(n_pages * _PAGE_BYTES - n_read)
            if not n_bytes:
                buffer[_AT : _AT + _N_BYTES] = _UNSEALED
            rows.append(words[:n_pages].sum(axis=1))
            columns += words[:n_pages].sum(axis=0)
            n_bytes += n_read
    crc = zlib.crc32(np.concatenate([columns, *rows]).tobytes(), n_bytes & 0xFFFFFFFF)
    return max(crc, 1).to_bytes(_N_BYTES, "big")
