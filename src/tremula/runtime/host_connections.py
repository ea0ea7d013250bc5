"""What a program is connected to on the host: ports of streams, functions, where it prints."""

import os
import sys
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from typing import IO, Protocol, TypeVar, runtime_checkable

import numpy as np

from tremula.base.errors import StreamConnectionError, suggest
from tremula.base.processes import SharedThreads
from tremula.base.tracing import POPLAR, span
from tremula.base.types import as_type
from tremula.compiler.executable.records import BufferRecord, HostRecords, StreamRecord, View

Named = TypeVar("Named")


@runtime_checkable
class StreamCallback(Protocol):
    """Host code behind a stream. Only `fetch` is required.

    `fetch(buffer)` fills the buffer (or, for a stream to the host, receives it). `prefetch(buffer)`
    fills it ahead of time and returns whether it could. `complete()` says a chunk was used.
    `invalidate_prefetched()` says a prefetched chunk will not be used.
    """

    def fetch(self, buffer: np.ndarray) -> object:
        """Fill the buffer with the next chunk, or receive it."""
        ...


class RingPort:
    """A circular host buffer of successive chunks."""

    def __init__(self, stream: StreamRecord, data: object):
        dtype = as_type(stream.type_name).dtype
        if not isinstance(data, np.ndarray) or data.dtype != dtype or not data.flags.c_contiguous:
            got = f"{data.dtype}" if isinstance(data, np.ndarray) else type(data).__name__
            raise StreamConnectionError(
                f"stream {stream.handle!r} needs a contiguous NumPy array of {dtype}, got {got}.",
                hint="use np.ascontiguousarray(data, dtype)",
            )
        if data.size == 0 or data.size % stream.n_elements:
            raise StreamConnectionError(
                f"stream {stream.handle!r} moves {stream.n_elements} elements at a time; "
                f"{data.size} is not a multiple of that.",
                hint="give whole chunks",
            )
        if not stream.is_host_to_device and not data.flags.writeable:
            raise StreamConnectionError(
                f"stream {stream.handle!r} writes into its array, which is read-only.",
                hint="give a writeable array",
            )
        self.chunks = data.reshape(-1, stream.n_elements)
        self.next = 0

    def chunk(self) -> np.ndarray:
        """The next chunk, as a view of the user's array."""
        chunk = self.chunks[self.next]
        self.next = (self.next + 1) % len(self.chunks)
        return chunk

    def take(self) -> np.ndarray:
        return self.chunk()

    def give(self, values: np.ndarray) -> None:
        self.chunk()[:] = values

    def rewind(self) -> None:
        self.next = 0


class CallbackPort:
    """A callback; with `prefetch` the next chunk is fetched while the device works."""

    _worker = SharedThreads("tremula-prefetch", 1)

    def __init__(self, stream: StreamRecord, callback: object, use_prefetch: bool):
        self.stream = stream
        fetch = callback.fetch if isinstance(callback, StreamCallback) else callback
        if not callable(fetch):
            raise StreamConnectionError(
                f"stream {stream.handle!r} got {type(callback).__name__}, which cannot be called.",
                hint="give a function of one array, or an object with fetch(array)",
            )
        self.fetch = fetch
        self.prefetch = getattr(callback, "prefetch", None) if use_prefetch else None
        self.complete = getattr(callback, "complete", lambda: None)
        self.invalidate = getattr(callback, "invalidate_prefetched", lambda: None)
        self.pending: Future | None = None
        self._process = os.getpid()  # whose thread fetches what is pending

    def _buffer(self) -> np.ndarray:
        return np.zeros(self.stream.n_elements, as_type(self.stream.type_name).dtype)

    def take(self) -> np.ndarray:
        chunk = None
        if self.pending is not None and self._ends_here(self.pending):
            was_available, chunk = self.pending.result()
            chunk = chunk if was_available else None
        if chunk is None:
            chunk = self._buffer()
            with span(POPLAR, "StreamCallback.fetch", stream=self.stream.handle):
                self.fetch(chunk)
        self.complete()
        if self.prefetch is not None:
            self.pending = self._start_prefetch(self.prefetch)
        return chunk

    def _start_prefetch(self, prefetch: Callable[[np.ndarray], object]) -> Future:
        buffer = self._buffer()

        def ahead() -> tuple[bool, np.ndarray]:
            with span(POPLAR, "StreamCallback.prefetch", stream=self.stream.handle):
                return bool(prefetch(buffer)), buffer

        self._process = os.getpid()
        return self._worker.submit(ahead)

    def _ends_here(self, pending: Future) -> bool:
        """A forked process would wait for ever for what a thread of its parent had begun."""
        return self._process == os.getpid() or pending.done()

    def give(self, values: np.ndarray) -> None:
        with span(POPLAR, "StreamCallback.fetch", stream=self.stream.handle):
            self.fetch(values)
        self.complete()

    def rewind(self) -> None:
        if self.pending is not None:
            if self._ends_here(self.pending):
                self.pending.result()
            self.pending = None
            self.invalidate()


class HostConnections:
    """Everything the host can name, and what it has connected so far."""

    def __init__(self, records: HostRecords):
        self.records = records
        self.print_stream: IO[str] = sys.stderr
        self.functions: dict[str, Callable] = {}
        self._ports: dict[tuple[str, int], RingPort | CallbackPort] = {}

    def written(self, handle: str) -> View:
        return _named(self.records.writes, handle, "host write")

    def read(self, handle: str) -> View:
        return _named(self.records.reads, handle, "host read")

    def stream(self, handle: str) -> StreamRecord:
        return _named(self.records.streams, handle, "stream")

    def buffer(self, handle: str) -> BufferRecord:
        return _named(self.records.buffers, handle, "remote buffer")

    def connect(self, handle: str, port: RingPort | CallbackPort, replicas: Iterable[int]) -> None:
        """Let replicas share a port of a stream."""
        for replica in replicas:
            self._ports[handle, replica] = port

    def connect_function(self, handle: str, function: Callable) -> None:
        _named(self.records.functions, handle, "host function")
        self.functions[handle] = function

    def port(self, handle: str, replica: int) -> RingPort | CallbackPort:
        """What a stream is connected to."""
        result = self._ports.get((handle, replica))
        if result is None:
            raise StreamConnectionError(
                f"stream {handle!r} is used but not connected.",
                hint=f"call engine.connect_stream({handle!r}, array) before run()",
            )
        return result

    def rewind(self) -> None:
        """Restart all streams."""
        for port in self._ports.values():
            port.rewind()


def _named(table: Mapping[str, Named], handle: str, what: str) -> Named:
    if handle not in table:
        raise StreamConnectionError(f"no {what} {handle!r}.", hint=suggest(handle, table))
    return table[handle]
