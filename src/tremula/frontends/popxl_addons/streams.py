"""Streams by name: inputs and outputs of a session."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Generic, Self, TypeVar

import popxl
from tremula.frontends.popxl_addons.utils import OrderedDict

Spec = tuple[Iterable[int], popxl.dtype]
Stream = TypeVar("Stream", popxl.HostToDeviceStream, popxl.DeviceToHostStream)


class _Streams(OrderedDict, Generic[Stream]):
    """Streams by name, by position and as attributes; iterating yields the streams."""

    stream_init: Callable[..., Any]

    def __init__(self, **streams: Spec):
        super().__init__()
        for name, (shape, dtype) in streams.items():
            self[name] = self.stream_init(tuple(shape), dtype, name)

    @classmethod
    def from_streams(cls, streams: Iterable[Stream]) -> Self:
        """Streams that exist already, by the ids of their tensors."""
        made = cls()
        for stream in streams:
            made[stream.tensor_id] = stream
        return made

    def __getattr__(self, key: str) -> Stream:
        if key.startswith("_"):  # of Python's protocols, such as copying
            raise AttributeError(key)
        try:
            return self[key]
        except KeyError as error:
            raise AttributeError(error.args[0]) from None

    def __getitem__(self, key: object) -> Any:
        if isinstance(key, int | slice):
            return list(self.values())[key]
        if key not in self:
            raise KeyError(f"No stream {key!r}, available: {', '.join(self.keys())}")
        return super().__getitem__(key)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.values())

    def names(self) -> list[str]:
        """All names."""
        return list(self.keys())


class InputStreams(_Streams[popxl.HostToDeviceStream]):
    """Streams to the device: `InputStreams(words=((4, 8), popxl.int32))`."""

    stream_init = staticmethod(popxl.h2d_stream)


class OutputStreams(_Streams[popxl.DeviceToHostStream]):
    """Streams from the device."""

    stream_init = staticmethod(popxl.d2h_stream)
