"""A stream and its load or store at once."""

import numpy as np

import popxl
from popxl import ops
from tremula.frontends.popxl.dtypes import to_array as to_numpy


def host_load(
    t: object, dtype: popxl.dtype, name: str
) -> tuple[np.ndarray, popxl.HostToDeviceStream, popxl.Tensor]:
    """For a host array: the array in this type, a stream for it, and the tensor that is loaded."""
    array = to_numpy(t, dtype)
    stream = popxl.h2d_stream(array.shape, dtype, f"{name}_stream")
    return array, stream, ops.host_load(stream, name)


def host_store(t: popxl.Tensor) -> popxl.DeviceToHostStream:
    """The stream that a tensor is stored to."""
    stream = popxl.d2h_stream(t.shape, t.dtype, f"{t.name}_stream")
    ops.host_store(stream, t)
    return stream
