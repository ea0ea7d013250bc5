"""Streams between host and device."""

from typing import Any, Self

from tremula.frontends.popxl.core.context import get_main_graph
from tremula.frontends.popxl.core.tensor import Tensor, TensorSpec
from tremula.frontends.popxl.dtypes import dtype as DType


class Stream:
    """A queue of tensors: each load takes the next one, each store adds one."""

    _tensor: Tensor

    def __init__(self) -> None:
        raise TypeError(f"{type(self).__name__} is made by popxl.h2d_stream or popxl.d2h_stream")

    @classmethod
    def _make(cls, tensor: Tensor) -> Self:
        self = object.__new__(cls)
        self._tensor = tensor
        tensor.ir.stream_of_tensor[tensor.id] = self
        return self

    @property
    def tensor_id(self) -> str:
        """The name of the stream."""
        return self._tensor.id

    @property
    def shape(self) -> tuple[int, ...]:
        return self._tensor.shape

    @property
    def dtype(self) -> DType:
        return self._tensor.dtype

    @property
    def spec(self) -> TensorSpec:
        return self._tensor.spec

    @property
    def ir(self) -> Any:
        return self._tensor.ir

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Stream):
            return NotImplemented
        return self._tensor is other._tensor

    def __hash__(self) -> int:
        return hash(self._tensor)

    def __repr__(self) -> str:
        return f"{type(self).__name__}[{self.tensor_id} {self.dtype!r} {self.shape}]"


class HostToDeviceStream(Stream):
    """A stream of inputs."""


class DeviceToHostStream(Stream):
    """A stream of results."""


def h2d_stream(shape: tuple[int, ...], dtype: DType, name: str | None = None) -> HostToDeviceStream:
    """A stream of inputs, on the main graph."""
    return HostToDeviceStream._make(_handle(shape, dtype, name or "h2d_stream"))


def d2h_stream(shape: tuple[int, ...], dtype: DType, name: str | None = None) -> DeviceToHostStream:
    """A stream of results, on the main graph."""
    return DeviceToHostStream._make(_handle(shape, dtype, name or "d2h_stream"))


def _handle(shape: tuple[int, ...], type_: DType, name: str) -> Tensor:
    graph = get_main_graph()
    graph.ir.check_open()
    return graph.new_tensor(name, tuple(int(n) for n in shape), type_)
