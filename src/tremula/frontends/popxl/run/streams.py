"""Host buffers of one run: what loads take and stores leave, element by element."""

from collections.abc import Mapping
from typing import Protocol

import numpy as np
import torch

from tremula.frontends.popart.exceptions import popart_runtime_error
from tremula.frontends.popxl.core.ir import Ir
from tremula.frontends.popxl.core.streams import DeviceToHostStream, HostToDeviceStream, Stream
from tremula.frontends.popxl.dtypes import from_carrier, to_carrier


def buffer_shape(ir: Ir, stream: Stream) -> tuple[int, ...]:
    """The shape of a stream's array for one run: transfers and replicas first, if several."""
    return full_shape(ir, stream.shape)


def full_shape(ir: Ir, shape: tuple[int, ...]) -> tuple[int, ...]:
    n = (ir.num_host_transfers, ir.instance_replication_factor)
    return tuple(k for k in n if k > 1) + shape


class Streams(Protocol):
    """Where loads take their elements from and stores leave theirs."""

    def load(self, stream: HostToDeviceStream, replicas: list[int]) -> list[torch.Tensor]: ...
    def store(
        self, stream: DeviceToHostStream, replicas: list[int], values: list[torch.Tensor]
    ) -> None: ...


class StreamBuffers:
    """Arrays of one run, as `[transfers, replicas, …]`, and how far each stream has got."""

    def __init__(
        self,
        ir: Ir,
        inputs: Mapping[HostToDeviceStream, np.ndarray],
        outputs: Mapping[DeviceToHostStream, np.ndarray],
    ):
        n = ir.instance_replication_factor
        self.n_replicas = n
        self._inputs = {
            stream: array.reshape(-1, n, *stream.shape) for stream, array in inputs.items()
        }
        self._outputs = {
            stream: array.reshape(-1, n, *stream.shape) for stream, array in outputs.items()
        }
        self._places: dict[Stream, list[int]] = {}

    def load(self, stream: HostToDeviceStream, replicas: list[int]) -> list[torch.Tensor]:
        """The next element for each of some replicas."""
        array, type_ = self._inputs[stream], stream.dtype
        return [
            to_carrier(array[self._next(stream, r, len(array))][r], type_).clone() for r in replicas
        ]

    def store(
        self, stream: DeviceToHostStream, replicas: list[int], values: list[torch.Tensor]
    ) -> None:
        array = self._outputs[stream]
        for r, value in zip(replicas, values, strict=True):
            array[self._next(stream, r, len(array))][r] = from_carrier(value, stream.dtype)

    def _next(self, stream: Stream, replica: int, n: int) -> int:
        places = self._places.setdefault(stream, [0] * self.n_replicas)
        place = places[replica]
        if place >= n:
            raise popart_runtime_error(
                f"Stream {stream.tensor_id} is used more than {n} times in one run:"
                f" set ir.num_host_transfers to the number of transfers"
            )
        places[replica] += 1
        return place
