"""What variables hold on the host: arrays, memory maps, or arrays that are made when needed."""

from collections.abc import Callable, Sequence
from math import prod
from pathlib import Path

import numpy as np
import torch

from tremula.frontends.popxl.dtypes import downcast_of, dtype, to_array
from tremula.frontends.popxl.fp8_utils import host_pow2scale_cast_to_fp8


class LazyArray:
    """An array that is made when a session first needs it: `LazyArray(shape, dtype, make)`.

    A program whose weights are lazy can be built and costed without them.
    """

    def __init__(
        self, shape: Sequence[int], dtype_: object, make: Callable[[], np.ndarray] | None = None
    ):
        self.shape = tuple(int(n) for n in shape)
        self.popxl_dtype = dtype.as_dtype(dtype_)
        self.dtype = self.popxl_dtype.numpy_dtype
        self._make = make

    def materialised(self) -> np.ndarray:
        """The array: zeros, or what `make` returns."""
        if self._make is None:
            return np.zeros(self.shape, self.dtype)
        result = np.asarray(self._make(), self.dtype)
        if result.shape != self.shape:
            raise ValueError(f"A lazy array of shape {self.shape} was made with {result.shape}")
        return result

    def __repr__(self) -> str:
        return f"LazyArray({self.shape}, {self.popxl_dtype.name})"


HostData = np.ndarray | LazyArray


def to_numpy(
    x: object,
    dtype: dtype | None = None,
    downcast: bool = True,
    copy: bool = True,
    log2_scale: int | None = None,
    nan_on_overflow: bool | None = None,
) -> np.ndarray:
    """Host data as an array; without a type 64 bits become 32, 8-bit floats get a scale."""
    if dtype is not None and dtype.is_float8:
        x = x.detach().cpu().numpy() if isinstance(x, torch.Tensor) else x
        result = np.asarray(x, order="C")
        if result.dtype != dtype.numpy_dtype:
            saturates = nan_on_overflow is False
            return host_pow2scale_cast_to_fp8(result, dtype, log2_scale or 0, not saturates)
    else:
        for name, value in (("log2_scale", log2_scale), ("nan_on_overflow", nan_on_overflow)):
            if value is not None:
                raise RuntimeError(f"{name} is for 8-bit floats, not for {dtype or 'other types'}")
        result = to_array(x, dtype, downcast)
    return result.copy() if copy else result


def as_host_data(
    data: object,
    type_: dtype | None,
    downcast: bool,
    log2_scale: int | None = None,
    nan_on_overflow: bool | None = None,
) -> tuple[HostData, dtype]:
    """Data for a variable in its type; memory maps and lazy arrays are taken as they are."""
    type_ = dtype.as_dtype(type_) if type_ is not None else None
    if isinstance(data, LazyArray):
        if type_ is not None and data.popxl_dtype != type_:
            raise TypeError(f"{data!r} cannot become {type_!r}: make it in that type")
        return data, data.popxl_dtype
    if isinstance(data, np.memmap):
        return _mapped(data, type_), dtype.as_dtype(data.dtype)
    if not isinstance(data, np.ndarray | torch.Tensor):
        data = np.asarray(data)
    if isinstance(data, np.ndarray) and data.dtype.kind in "OSU":
        raise TypeError(f"Data of a variable must be numbers, got {data!r}")
    if type_ is None:
        result = dtype.as_dtype(data.dtype)
        type_ = downcast_of(result) if downcast else result
    return to_numpy(data, type_, downcast, False, log2_scale, nan_on_overflow), type_


def _mapped(data: np.memmap, type_: dtype | None) -> np.memmap:
    result = dtype.as_dtype(data.dtype)
    if type_ is not None and result != type_:
        raise ValueError(
            "When passing a memory-mapped NumPy array, the `dtype` parameter must be that of the"
            f" map or None: {result.name} cannot become {type_.name} without a copy. Map it as"
            f" {type_.name}, or pass np.array(map)"
        )
    if downcast_of(result) is not result:
        raise ValueError(
            f"When passing a memory-mapped NumPy array, the dtype {type_} is not supported, as it"
            f" requires downcasting: {result.name} has 64 bits. Map 32-bit numbers"
        )
    if not data.flags.c_contiguous or not data.flags.aligned:
        raise ValueError(
            "When passing a memory-mapped NumPy array, it must already be in C-ordered, aligned"
            " memory: it is not copied"
        )
    return data


def open_memmap(
    path: str | Path, shape: Sequence[int], type_: dtype, mode: str = "r+", offset: int = 0
) -> np.memmap:
    """A file of plain numbers as data of a variable; what is wrong with it is said here."""
    file, n_bytes = Path(path), offset + prod(shape) * type_.n_bytes
    if mode != "w+":
        if not file.is_file():
            raise FileNotFoundError(f"The file of weights {file} does not exist")
        size = file.stat().st_size
        if size < n_bytes:
            raise ValueError(
                f"The file of weights {file} is too short: {size} bytes, but"
                f" {type_.name} {tuple(shape)} at offset {offset} ends at {n_bytes}"
            )
    try:
        return np.memmap(file, type_.numpy_dtype, mode, offset, tuple(shape))  # type: ignore[call-overload]
    except PermissionError as error:
        raise PermissionError(
            f"The file of weights {file} cannot be opened for writing: open it with mode 'r',"
            " and its values stay on the device"
        ) from error


def is_read_only(data: HostData) -> bool:
    return isinstance(data, np.memmap) and not data.flags.writeable


def array_of(data: HostData) -> np.ndarray:
    return data.materialised() if isinstance(data, LazyArray) else data
