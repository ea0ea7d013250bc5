"""Tensors that a model's file holds, or another file next to it, as PyTorch tensors.

Everything is checked before memory is taken: a tensor is only as large as the bytes that are there.
"""

import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from onnx import SparseTensorProto, TensorProto, numpy_helper
from torch import Tensor

from tremula.frontends.onnx.element_types import STRING, element_type, tensor_of
from tremula.frontends.onnx.errors import OnnxError

_BITS = {"UINT4": 4, "INT4": 4, "FLOAT4E2M1": 4, "UINT2": 2, "INT2": 2}
MAX_SPARSE_BYTES = 1 << 30  # a sparse tensor is loaded as a dense one


@dataclass(frozen=True)
class Reader:
    """Reads tensors of one model; `folder` is where files that it names must be."""

    folder: Path | None = None

    def tensor(self, proto: TensorProto, name: str) -> Tensor:
        dims = _checked_shape(proto, name)
        if proto.data_location == TensorProto.EXTERNAL:
            return self._external(proto, name, dims)
        if proto.data_type == STRING:
            _reject_size(name, len(proto.string_data), math.prod(dims), "strings")
            array = np.array([s.decode("utf-8", "replace") for s in proto.string_data], object)
            return tensor_of(array.reshape(dims))
        element_type(proto.data_type)
        n_bytes = n_bytes_of(proto.data_type, dims)
        if proto.HasField("raw_data"):
            _reject_size(name, len(proto.raw_data), n_bytes, "bytes")
        elif not _n_listed(proto) and math.prod(dims):
            raise OnnxError(f"The tensor {name!r} of {list(dims)} elements has no data.")
        try:
            return tensor_of(numpy_helper.to_array(proto)).reshape(dims)
        except (ValueError, TypeError, RuntimeError) as error:
            raise OnnxError(f"The tensor {name!r} cannot be read: {error}.") from None

    def sparse(self, proto: SparseTensorProto) -> Tensor:
        name, dims = proto.values.name, tuple(proto.dims)
        values = self.tensor(proto.values, name)
        places = self.tensor(proto.indices, f"{name} (indices)")
        if n_bytes_of(proto.values.data_type, dims) > MAX_SPARSE_BYTES:
            raise OnnxError(f"The sparse tensor {name!r} of {list(dims)} elements is too large.")
        if places.dim() == 2:
            weights = [math.prod(dims[i + 1 :]) for i in range(len(dims))]
            places = (places * torch.tensor(weights)).sum(1)
        dense = torch.zeros(math.prod(dims), dtype=values.dtype)
        if len(places) and not 0 <= int(places.min()) <= int(places.max()) < len(dense):
            raise OnnxError(f"The sparse tensor {name!r} has indices outside its shape {dims}.")
        dense[places.long()] = values
        return dense.reshape(dims)

    def _external(self, proto: TensorProto, name: str, dims: tuple[int, ...]) -> Tensor:
        entries = {entry.key: entry.value for entry in proto.external_data}
        path = self._path_of(entries.get("location", ""), name)
        n_bytes = n_bytes_of(proto.data_type, dims)
        offset, length = (_whole(entries, key, name) for key in ("offset", "length"))
        n_there = path.stat().st_size
        if (offset or 0) + n_bytes > n_there or length not in (None, n_bytes):
            raise OnnxError(
                f"The tensor {name!r} needs {n_bytes} bytes from byte {offset or 0} of"
                f" {path.name!r}, which has {n_there}"
                + (f"; the model says {length} bytes." if length is not None else "."),
                hint="the file is truncated, or belongs to another model",
            )
        with path.open("rb") as file:
            file.seek(offset or 0)
            raw = file.read(n_bytes)
        read = TensorProto(data_type=proto.data_type, dims=dims, raw_data=raw)
        return tensor_of(numpy_helper.to_array(read)).reshape(dims)

    def _path_of(self, location: str, name: str) -> Path:
        if self.folder is None:
            raise OnnxError(
                f"The tensor {name!r} is in the file {location!r}, but the model is from none.",
                hint="give import_model the path of the model",
            )
        path = (self.folder / location).resolve()
        if not location or not path.is_relative_to(self.folder.resolve()):
            raise OnnxError(
                f"The tensor {name!r} is in the file {location!r}, outside the model's folder.",
                hint="move the file beside the model and correct its location",
            )
        if not path.is_file():
            raise OnnxError(f"The tensor {name!r} is in the file {location!r}, which is missing.")
        return path


def _checked_shape(proto: TensorProto, name: str) -> tuple[int, ...]:
    if any(size < 0 for size in proto.dims):
        raise OnnxError(f"The tensor {name!r} has the shape {list(proto.dims)}.")
    return tuple(proto.dims)


def n_bytes_of(number: int, dims: tuple[int, ...]) -> int:
    kind = element_type(number)
    n_bits = _BITS.get(kind.name, 8 * kind.array.itemsize)
    return -(-math.prod(dims) * n_bits // 8)


def _n_listed(proto: TensorProto) -> int:
    lists = (proto.float_data, proto.int32_data, proto.int64_data, proto.double_data)
    return sum(map(len, (*lists, proto.uint64_data)))


def _reject_size(name: str, actual: int, expected: int, unit: str) -> None:
    if actual != expected:
        raise OnnxError(f"The tensor {name!r} should have {expected} {unit}, and has {actual}.")


def _whole(entries: dict[str, str], key: str, name: str) -> int | None:
    text = entries.get(key)
    if text is None:
        return None
    if not text.isdigit():
        raise OnnxError(f"The tensor {name!r} has the {key} {text!r} in its file.")
    return int(text)
