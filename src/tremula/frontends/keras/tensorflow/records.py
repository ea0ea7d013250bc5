"""Files of records as TensorFlow writes them: framed bytes, and `tf.train.Example` inside them."""

import gzip
import struct
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from os import PathLike, fspath
from typing import Any

import numpy as np

from tremula.base.errors import FileLoadError

_POLYNOMIAL = 0x82F63B78  # CRC-32C, reflected
_MASK_DELTA = 0xA282EAD8  # TensorFlow stores checksums rotated and moved by this
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5  # wire types of protocol buffers


def _table() -> list[int]:
    result = []
    for byte in range(256):
        value = byte
        for _ in range(8):
            value = (value >> 1) ^ (_POLYNOMIAL if value & 1 else 0)
        result.append(value)
    return result


_TABLE = _table()


def masked_checksum(data: bytes) -> int:
    """The checksum that follows lengths and records."""
    value = 0xFFFFFFFF
    for byte in data:
        value = _TABLE[(value ^ byte) & 0xFF] ^ (value >> 8)
    value ^= 0xFFFFFFFF
    return (((value >> 15) | (value << 17)) + _MASK_DELTA) & 0xFFFFFFFF


def framed(record: bytes) -> bytes:
    """A record as it is in a file."""
    length = struct.pack("<Q", len(record))
    return b"".join(
        (
            length,
            struct.pack("<I", masked_checksum(length)),
            record,
            struct.pack("<I", masked_checksum(record)),
        )
    )


class TFRecordOptions:
    """How a file of records is compressed."""

    def __init__(self, compression_type: str | None = None, **_details: object):
        self.compression_type = _compression(compression_type)


class TFRecordWriter:
    """`tf.io.TFRecordWriter`: appends records to a file."""

    def __init__(self, path: str | PathLike[str], options: TFRecordOptions | str | None = None):
        is_options = isinstance(options, TFRecordOptions)
        kind = options.compression_type if is_options else _compression(options)
        self._file: Any = gzip.open(path, "wb") if kind == "GZIP" else open(path, "wb")  # noqa: SIM115
        self._pending = zlib.compressobj() if kind == "ZLIB" else None

    def write(self, record: bytes) -> None:
        if isinstance(record, np.ndarray):
            record = record.item()
        if not isinstance(record, bytes):
            raise TypeError(
                f"a record is bytes; got {type(record).__name__}. Call example.SerializeToString()."
            )
        data = framed(record)
        self._file.write(data if self._pending is None else self._pending.compress(data))

    def flush(self) -> None:
        self._file.flush()

    def close(self) -> None:
        if self._pending is not None:
            self._file.write(self._pending.flush())
            self._pending = None
        self._file.close()

    def __enter__(self) -> "TFRecordWriter":
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()


def read_records(path: str | PathLike[str], compression: str | None = None) -> Iterator[bytes]:
    """The records of a file, in order."""
    with _opened(path, _compression(compression)) as file:
        while header := file.read(12):
            if len(header) < 12 or _checksum(header[8:]) != masked_checksum(header[:8]):
                raise _damaged(path)
            (length,) = struct.unpack("<Q", header[:8])
            record, footer = file.read(length), file.read(4)
            if len(record) < length or len(footer) < 4:
                raise _damaged(path)
            yield record


def _opened(path: str | PathLike[str], compression: str) -> Any:
    import io

    if compression == "GZIP":
        return gzip.open(path, "rb")
    if compression == "ZLIB":
        with open(path, "rb") as file:
            return io.BytesIO(zlib.decompress(file.read()))
    return open(path, "rb")


def _compression(kind: str | None) -> str:
    if kind not in (None, "", "GZIP", "ZLIB"):
        raise ValueError(f"compression_type must be '', 'GZIP' or 'ZLIB'; got {kind!r}.")
    return kind or ""


def _checksum(data: bytes) -> int:
    return struct.unpack("<I", data)[0]


def _damaged(path: str | PathLike[str]) -> FileLoadError:
    return FileLoadError(
        f"{fspath(path)} is not a file of TensorFlow's records, or it is damaged.",
        hint="if it is compressed, give compression_type='GZIP' or 'ZLIB'",
    )


# -- protocol buffers ------------------------------------------------------------------------------


def varint(value: int) -> bytes:
    """A whole number, seven bits in each byte."""
    value &= 0xFFFFFFFFFFFFFFFF
    result = bytearray()
    while value > 0x7F:
        result.append(value & 0x7F | 0x80)
        value >>= 7
    result.append(value)
    return bytes(result)


def in_field(number: int, data: bytes) -> bytes:
    """A field of bytes, of text or of another message."""
    return varint(number << 3 | _BYTES) + varint(len(data)) + data


def fields(data: bytes) -> Iterator[tuple[int, Any]]:
    """The fields of a message: number and value."""
    position = 0
    while position < len(data):
        tag, position = _read_varint(data, position)
        kind = tag & 7
        if kind == _VARINT:
            value, position = _read_varint(data, position)
        elif kind == _BYTES:
            length, position = _read_varint(data, position)
            value, position = data[position : position + length], position + length
        elif kind in (_FIXED32, _FIXED64):
            n_bytes = 4 if kind == _FIXED32 else 8
            value, position = data[position : position + n_bytes], position + n_bytes
        else:
            raise ValueError("this is not a message of a protocol buffer")
        if position > len(data):
            raise ValueError("a message of a protocol buffer ends early")
        yield tag >> 3, value


def _as_bytes(value: object) -> bytes:
    if not isinstance(value, bytes):
        raise ValueError("a number where a message of a protocol buffer has bytes")  # noqa: TRY004
    return value


def _read_varint(data: bytes, position: int) -> tuple[int, int]:
    result = shift = 0
    while True:
        if position >= len(data) or shift > 63:
            raise ValueError("this is not a message of a protocol buffer")
        byte = data[position]
        position += 1
        result |= (byte & 0x7F) << shift
        if byte < 0x80:
            return result, position
        shift += 7


# -- examples --------------------------------------------------------------------------------------


@dataclass
class BytesList:
    """Values that are bytes."""

    value: Sequence[bytes] = ()

    def encoded(self) -> bytes:
        for each in self.value:
            if not isinstance(each, bytes):
                raise TypeError(f"BytesList takes bytes; got {type(each).__name__}.")
        return b"".join(in_field(1, each) for each in self.value)

    @classmethod
    def decoded(cls, data: bytes) -> "BytesList":
        return cls([_as_bytes(value) for _, value in fields(data)])


@dataclass
class FloatList:
    """Values that are float32."""

    value: Sequence[float] = ()

    def encoded(self) -> bytes:
        values = np.asarray(self.value, "<f4").reshape(-1)
        return in_field(1, values.tobytes()) if values.size else b""

    @classmethod
    def decoded(cls, data: bytes) -> "FloatList":
        parts = [np.frombuffer(_as_bytes(value), "<f4") for _, value in fields(data)]
        return cls(np.concatenate(parts).tolist() if parts else [])


@dataclass
class Int64List:
    """Values that are whole numbers."""

    value: Sequence[int] = ()

    def encoded(self) -> bytes:
        values = b"".join(varint(int(each)) for each in self.value)
        return in_field(1, values) if values else b""

    @classmethod
    def decoded(cls, data: bytes) -> "Int64List":
        result: list[int] = []
        for _, value in fields(data):
            if isinstance(value, int):
                result.append(_signed(value))
                continue
            position = 0
            while position < len(value):
                number, position = _read_varint(value, position)
                result.append(_signed(number))
        return cls(result)


def _signed(value: int) -> int:
    return value - (1 << 64) if value >= 1 << 63 else value


_KINDS: tuple[tuple[str, Any], ...] = (
    ("bytes_list", BytesList),
    ("float_list", FloatList),
    ("int64_list", Int64List),
)


@dataclass
class Feature:
    """One of three lists of values."""

    bytes_list: BytesList | None = None
    float_list: FloatList | None = None
    int64_list: Int64List | None = None

    @property
    def kind(self) -> str | None:
        """Which list is set."""
        return next((name for name, _ in _KINDS if getattr(self, name) is not None), None)

    WhichOneof = kind

    @property
    def values(self) -> Sequence[Any]:
        """The values, of whichever kind."""
        return getattr(self, self.kind).value if self.kind else ()

    def encoded(self) -> bytes:
        for number, (name, _) in enumerate(_KINDS, start=1):
            own = getattr(self, name)
            if own is not None:
                return in_field(number, own.encoded())
        return b""

    @classmethod
    def decoded(cls, data: bytes) -> "Feature":
        result = cls()
        for number, value in fields(data):
            if not 1 <= number <= len(_KINDS):
                raise ValueError(f"a feature has no list {number}: it is damaged")
            name, kind = _KINDS[number - 1]
            setattr(result, name, kind.decoded(_as_bytes(value)))
        return result


@dataclass
class Features:
    """Features by name."""

    feature: Mapping[str, Feature] = field(default_factory=dict)

    def encoded(self) -> bytes:
        entries = (
            in_field(1, name.encode()) + in_field(2, each.encoded())
            for name, each in sorted(self.feature.items())
        )
        return b"".join(in_field(1, entry) for entry in entries)

    @classmethod
    def decoded(cls, data: bytes) -> "Features":
        result = {}
        for _, entry in fields(data):
            parts = dict(fields(_as_bytes(entry)))
            name = _as_bytes(parts.get(1, b"")).decode()
            result[name] = Feature.decoded(_as_bytes(parts.get(2, b"")))
        return cls(result)


@dataclass
class Example:
    """`tf.train.Example`: what a record of training data holds."""

    features: Features = field(default_factory=Features)

    def SerializeToString(self) -> bytes:
        return in_field(1, self.features.encoded())

    @classmethod
    def FromString(cls, data: bytes) -> "Example":
        result = cls()
        result.ParseFromString(data)
        return result

    def ParseFromString(self, data: bytes) -> int:
        data = data.item() if isinstance(data, np.ndarray) else data
        parts = dict(fields(data))
        self.features = Features.decoded(_as_bytes(parts.get(1, b"")))
        return len(data)
