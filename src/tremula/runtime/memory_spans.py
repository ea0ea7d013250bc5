"""Host memory of a stream as C++ programs name it: from where it begins to where it ends."""

import ctypes

import numpy as np

from tremula.base.errors import StreamConnectionError

Address = int | np.ndarray | ctypes.c_void_p


def memory_between(handle: str, begin: Address, end: Address, dtype: np.dtype) -> np.ndarray:
    """The elements from `begin` to `end`: addresses, or arrays whose first element is meant.

    Of addresses the caller keeps the memory alive, as in C++.
    """
    n_bytes = _address(end) - _address(begin)
    if n_bytes <= 0 or n_bytes % dtype.itemsize:
        raise StreamConnectionError(
            f"stream {handle!r} got memory that ends {n_bytes} bytes after it begins, which is not "
            f"a number of elements of {dtype}.",
            hint="give the address of the first element, and that after the last",
        )
    if not isinstance(begin, np.ndarray):
        memory = (ctypes.c_uint8 * n_bytes).from_address(_address(begin))
        return np.frombuffer(memoryview(memory), dtype)
    if n_bytes > begin.nbytes or not begin.flags.c_contiguous:
        raise StreamConnectionError(
            f"stream {handle!r} got {n_bytes} bytes from the start of an array that has "
            f"{begin.nbytes} contiguous ones.",
            hint="give two views of one array: connect_stream(handle, data, data[n:])",
        )
    return begin.reshape(-1)[: n_bytes // begin.itemsize]


def _address(value: Address) -> int:
    if isinstance(value, np.ndarray):
        return value.ctypes.data
    if isinstance(value, ctypes.c_void_p):
        return value.value or 0
    return int(value)
