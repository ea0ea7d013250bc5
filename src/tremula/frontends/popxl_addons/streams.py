"""Streams by name: what a session is fed, and what it gives."""

from collections.abc import Iterable, Mapping
from typing import Any

import popxl

Spec = tuple[Iterable[int], popxl.dtype]


class _Streams:
    """Streams by name, in the order they were made."""

    _make: Any = None

    def __init__(self, **specs: Spec):
        self._streams: dict[str, Any] = {
            name: type(self)._make(tuple(shape), dtype, name)
            for name, (shape, dtype) in specs.items()
        }

    @classmethod
    def from_streams(cls, streams: Iterable[Any]) -> Any:
        """Streams that are there already, by their own names."""
        made = cls()
        made._streams = {stream.tensor_id: stream for stream in streams}
        return made

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name not in self._streams:
            raise AttributeError(f"No stream {name!r}, there are: {', '.join(self._streams)}")
        return self._streams[name]

    def __getitem__(self, name: str) -> Any:
        return self._streams[name]

    def __iter__(self) -> Any:
        return iter(self._streams.values())

    def __len__(self) -> int:
        return len(self._streams)

    def names(self) -> list[str]:
        """All names."""
        return list(self._streams)


class InputStreams(_Streams):
    """Streams to the device: `InputStreams(words=((4, 8), popxl.int32))`."""

    _make = staticmethod(popxl.h2d_stream)


class OutputStreams(_Streams):
    """Streams from the device."""

    _make = staticmethod(popxl.d2h_stream)


def host_inputs(streams: InputStreams, data: Mapping[str, Any]) -> dict[Any, Any]:
    """Arrays by name as a session wants them: by stream."""
    unknown = set(data) - set(streams.names())
    if unknown:
        raise ValueError(f"No stream {sorted(unknown)}, there are: {', '.join(streams.names())}")
    return {streams[name]: value for name, value in data.items()}
