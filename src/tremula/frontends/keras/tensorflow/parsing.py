"""`tf.io`: examples as tensors, raw bytes as numbers, files and folders."""

import glob as python_glob
import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import IO, Any

import numpy as np

from tremula.base.storage.atomic_file import write_bytes
from tremula.frontends.keras.errors import keras_error
from tremula.frontends.keras.tensorflow.records import Example, Feature
from tremula.frontends.keras.tensorflow.types import DType, as_dtype

# As text, as bytes, or as an array of one of them.
FileName = str | bytes | os.PathLike[str] | np.ndarray
_KINDS = {"int64": "int64_list", "float32": "float_list", "string": "bytes_list"}


def _stored_kind(dtype: object) -> DType:
    kind = as_dtype(dtype)
    if str(kind) not in _KINDS:
        raise ValueError(f"a feature of a record is int64, float32 or string; got {kind!r}.")
    return kind


@dataclass(frozen=True)
class FixedLenFeature:
    """A feature with a shape, and the value of records without it."""

    shape: Sequence[int]
    dtype: object
    default_value: object = None


@dataclass(frozen=True)
class VarLenFeature:
    """A feature with any number of values."""

    dtype: object


@dataclass(frozen=True)
class FixedLenSequenceFeature:
    """Rows of a shape, any number of them."""

    shape: Sequence[int]
    dtype: object
    allow_missing: bool = False
    default_value: object = None


@dataclass(frozen=True)
class SparseTensor:
    """Values at indices of an array that is otherwise empty."""

    indices: np.ndarray
    values: np.ndarray
    dense_shape: np.ndarray


def to_dense(
    sp_input: SparseTensor, default_value: object = None, **_details: object
) -> np.ndarray:
    """`tf.sparse.to_dense`: the array itself."""
    default = (
        (b"" if sp_input.values.dtype == object else 0) if default_value is None else default_value
    )
    result = np.full(tuple(sp_input.dense_shape), default, sp_input.values.dtype)
    result[tuple(sp_input.indices.T)] = sp_input.values
    return result


def parse_single_example(
    serialized: bytes | np.ndarray,  # bytes, or an array of them
    features: Mapping[str, object],
    example_names: object = None,
    name: str = "",
) -> dict[str, np.ndarray | SparseTensor]:
    """The features of a record, as arrays."""
    del example_names, name
    data = serialized.item() if isinstance(serialized, np.ndarray) else serialized
    if not isinstance(data, bytes):
        raise TypeError(f"an example is parsed from bytes; got {type(data).__name__}.")
    stored = Example.FromString(data).features.feature
    return {key: _feature(key, spec, stored) for key, spec in features.items()}


def parse_example(
    serialized: Sequence[bytes], features: Mapping[str, object], **_details: object
) -> dict[str, np.ndarray]:
    """The features of several records, stacked."""
    for key, spec in features.items():
        if not isinstance(spec, FixedLenFeature):
            raise keras_error(
                f"tf.io.parse_example: feature {key!r} has no fixed length.",
                hint="use parse_single_example in dataset.map, before batch",
            )
    rows = [parse_single_example(each, features) for each in serialized]
    return {key: np.stack([np.asarray(row[key]) for row in rows]) for key in features}


def _feature(key: str, spec: object, stored: Mapping[str, Feature]) -> np.ndarray | SparseTensor:
    kind = _stored_kind(getattr(spec, "dtype", None))
    own = stored.get(key)
    if own is not None and own.kind not in (None, _KINDS[str(kind)]):
        raise ValueError(f"feature {key!r} is an {own.kind} in the record, not {kind!r}.")
    values = np.asarray(
        list(own.values) if own is not None else [], object if kind == "string" else str(kind)
    )
    if isinstance(spec, VarLenFeature):
        n = len(values)
        return SparseTensor(np.arange(n, dtype=np.int64)[:, None], values, np.array([n]))
    if isinstance(spec, FixedLenSequenceFeature):
        return values.reshape(-1, *spec.shape)
    if not isinstance(spec, FixedLenFeature):
        raise TypeError(f"feature {key!r}: {spec!r} is no description of a feature.")
    if own is None or own.kind is None:
        if spec.default_value is None:
            raise ValueError(f"the record has no feature {key!r}, and there is no default_value.")
        values = np.asarray(spec.default_value, values.dtype)
        return np.broadcast_to(values, tuple(spec.shape)).copy()
    expected = int(np.prod(tuple(spec.shape), dtype=np.int64))
    if values.size != expected:
        raise ValueError(
            f"feature {key!r} has {values.size} values; its shape {tuple(spec.shape)} takes"
            f" {expected}."
        )
    return values.reshape(tuple(spec.shape))


def decode_raw(
    input_bytes: bytes | np.ndarray,
    out_type: object,
    little_endian: bool = True,
    fixed_length: int | None = None,
    name: str = "",
) -> np.ndarray:
    """Bytes as numbers of a type."""
    del name
    if fixed_length is not None:
        raise keras_error("tf.io.decode_raw(fixed_length=…) is not supported.")
    data = input_bytes.item() if isinstance(input_bytes, np.ndarray) else input_bytes
    kind = np.dtype(as_dtype(out_type).as_numpy_dtype).newbyteorder("<" if little_endian else ">")
    return np.frombuffer(data, kind).astype(kind.newbyteorder("="))


# -- files -----------------------------------------------------------------------------------------


def read_file(filename: FileName, name: str = "") -> bytes:
    """The bytes of a file."""
    del name
    with open(_path(filename), "rb") as file:
        return file.read()


def write_file(filename: FileName, contents: bytes, name: str = "") -> None:
    """Make a file of bytes, and its folder."""
    del name
    path = _path(filename)
    os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
    write_bytes(path, contents)


def _path(name: FileName) -> str:
    path = os.fsdecode(name.item() if isinstance(name, np.ndarray) else name)
    if "://" in path:
        raise keras_error(f"{path!r} is not a file of this computer.", hint="download it first")
    return path


def GFile(name: FileName, mode: str = "r") -> IO[Any]:
    """`tf.io.gfile.GFile`: an open file."""
    return open(_path(name), mode, encoding=None if "b" in mode else "utf-8")


def exists(path: FileName) -> bool:
    return os.path.exists(_path(path))


def isdir(path: FileName) -> bool:
    return os.path.isdir(_path(path))


def glob(pattern: FileName | list[FileName] | tuple[FileName, ...]) -> list[str]:
    """Files whose names match a pattern, or one of several, sorted."""
    patterns = pattern if isinstance(pattern, list | tuple) else [pattern]
    return sorted(path for each in patterns for path in python_glob.glob(_path(each)))


def listdir(path: FileName) -> list[str]:
    return os.listdir(_path(path))


def makedirs(path: FileName) -> None:
    os.makedirs(_path(path), exist_ok=True)


mkdir = makedirs


def remove(path: FileName) -> None:
    os.remove(_path(path))


def rmtree(path: FileName) -> None:
    shutil.rmtree(_path(path))


def copy(src: FileName, dst: FileName, overwrite: bool = False) -> None:
    if os.path.exists(_path(dst)) and not overwrite:
        raise FileExistsError(f"{_path(dst)} exists; give overwrite=True")
    shutil.copy(_path(src), _path(dst))


def rename(src: FileName, dst: FileName, overwrite: bool = False) -> None:
    if os.path.exists(_path(dst)) and not overwrite:
        raise FileExistsError(f"{_path(dst)} exists; give overwrite=True")
    os.replace(_path(src), _path(dst))


def latest_checkpoint(checkpoint_dir: str, latest_filename: str | None = None) -> str | None:
    """The newest file of weights in a folder, for `model.load_weights`; None without one."""
    del latest_filename
    files = python_glob.glob(os.path.join(_path(checkpoint_dir), "*.weights.h5"))
    return max(files, key=os.path.getmtime, default=None)
