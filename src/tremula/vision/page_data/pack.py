"""Packs, which the page fetches: a JSON header, then little-endian columns, all deflated."""

import json
import struct
import zlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from tremula.base.columns import deflate, narrowest_of
from tremula.base.storage.strict_json import JsonObject

Ints = np.ndarray
_ALIGNMENT = 8
_LEVEL = 3  # of deflate: a sixth more bytes than 6 leaves, in a third of the time
# Typed arrays of browsers, except 64-bit integers: those become floats.
_TYPED = ("u1", "u2", "u4", "i1", "i2", "i4", "f4", "f8")


def pack_of(facts: Mapping[str, Any], columns: Mapping[str, Ints] | None = None) -> bytes:
    """A deflated pack. Columns keep their values; whole numbers take the smallest type."""
    arrays = {name: _narrow(np.asarray(column)) for name, column in (columns or {}).items()}
    listed: dict[str, list] = {}
    offset = 0
    for name, array in arrays.items():
        listed[name] = [array.dtype.str[1:], offset, array.size]
        offset += _padded(array.nbytes)
    header = json.dumps(
        {"facts": facts, "columns": listed}, ensure_ascii=False, allow_nan=False, default=_plain
    ).encode()
    header += b" " * (-(len(header) + 4) % _ALIGNMENT)
    parts = [struct.pack("<I", len(header)), header]
    for array in arrays.values():
        content = array.tobytes()
        parts += [content, b"\0" * (_padded(len(content)) - len(content))]
    return deflate(b"".join(parts), _LEVEL)


def unpack_pack(data: bytes) -> tuple[JsonObject, dict[str, Ints]]:
    """Facts and columns again, as the page sees them."""
    raw = zlib.decompress(data)
    (n_header,) = struct.unpack_from("<I", raw)
    header = json.loads(raw[4 : 4 + n_header])
    columns = {
        name: np.frombuffer(raw, np.dtype(f"<{dtype}"), n, 4 + n_header + offset)
        for name, (dtype, offset, n) in header["columns"].items()
    }
    return header["facts"], columns


def _narrow(array: Ints) -> Ints:
    if array.dtype.kind == "f":
        return array.astype("<f4" if array.dtype.itemsize <= 4 else "<f8")
    name = narrowest_of(array)
    return array.astype("<f8" if name not in _TYPED else f"<{name}").reshape(-1)


def _padded(n_bytes: int) -> int:
    return n_bytes + -n_bytes % _ALIGNMENT


def _plain(value: object) -> object:
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray):
        return value.tolist()
    raise TypeError(f"{type(value).__name__} cannot be part of a pack")
