"""HTTP/1.1 on asyncio: one connection. Slow, silent and malformed clients cost no others.

A connection handles one request after another. What arrives while one is handled is kept as it is,
and then nothing more is read, so that a client can make the server hold one body and one answer.
"""

import asyncio
from collections import deque
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import cast

import httptools

from tremula.serving.batching import Ticket
from tremula.serving.errors import RequestError
from tremula.serving.messages import JSON_LENGTH
from tremula.serving.service import Answer, InferenceRequest, Service, error_answer

_KEPT_HEADERS = {JSON_LENGTH, "content-encoding", "transfer-encoding"}
_MOST_HEAD_BYTES = 16 << 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What a client may take; defaults suit models with inputs of some megabytes."""

    max_body_bytes: int = 64 << 20
    max_held_bytes: int = 512 << 20  # bodies of all connections
    max_connections: int = 1000
    request_seconds: float = 30.0  # from a request's first byte to its last
    idle_seconds: float = 75.0  # between requests
    write_seconds: float = 30.0  # a client that does not read its answer


@dataclass(slots=True)
class Shared:
    """What all connections of a server know."""

    service: Service
    limits: Limits
    connections: "set[Connection]" = field(default_factory=set)
    n_held_bytes: int = 0
    is_draining: bool = False


class _Reading:
    """A request that is being received."""

    __slots__ = (
        "body", "early", "has_begun_late", "headers", "n_bytes", "n_head_bytes", "path", "waits",
    )  # fmt: skip

    def __init__(self, *, has_begun_late: bool):
        self.path = b""
        self.headers: dict[str, str] = {}
        self.body: list[bytes] = []
        self.n_bytes = self.n_head_bytes = 0
        self.early: Answer | None = None  # decided before the body was read
        self.has_begun_late = has_begun_late
        self.waits = False  # with its body, until it may continue


class Connection(asyncio.Protocol):
    """One client, until it goes or is sent away."""

    def __init__(self, shared: Shared):
        self._shared, self._service = shared, shared.service
        self._parser = httptools.HttpRequestParser(self)
        self._reading: _Reading | None = None
        self._complete: deque[tuple[InferenceRequest, Answer | None, bool]] = deque()
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._ticket: Ticket | None = None
        self._unread: list[bytes] = []  # came while a request was handled
        self._is_busy = False
        self._is_writing_paused = False
        self._closes = False  # after the next answer

    # -- asyncio's calls ---------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        shared = self._shared
        if len(shared.connections) >= shared.limits.max_connections:
            reason = f"{shared.limits.max_connections} connections are open; try again later"
            self._reject_and_close(HTTPStatus.SERVICE_UNAVAILABLE, reason)
            return
        shared.connections.add(self)
        self._service.metrics.n_connections += 1
        self._wait(shared.limits.idle_seconds)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        self._stop_waiting()
        if self in self._shared.connections:
            self._shared.connections.discard(self)
            self._service.metrics.n_connections -= 1
        if self._reading is not None:
            self._release(self._reading.n_bytes)
        for request, _, _ in self._complete:
            self._release(len(request.body))
        if self._ticket is not None:
            self._service.batcher.give_up(self._ticket)
        self._transport = self._reading = self._ticket = None
        self._complete.clear()

    def data_received(self, data: bytes) -> None:
        # Reading continues until something comes: only so is it seen that a client has left.
        if self._is_held:
            self._unread.append(data)
            if self._transport is not None:
                self._transport.pause_reading()
        else:
            self._feed(data)

    @property
    def _is_held(self) -> bool:
        """Whether the next request must wait."""
        return self._is_busy or self._is_writing_paused

    def _feed(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self._reject_and_close(HTTPStatus.BAD_REQUEST, "this server speaks HTTP/1.1 only")
        except httptools.HttpParserCallbackError as error:
            context = {"message": "a request failed", "exception": error.__context__ or error}
            asyncio.get_running_loop().call_exception_handler(context)
        except httptools.HttpParserError as error:
            if not self._closes:
                self._reject_and_close(HTTPStatus.BAD_REQUEST, f"the request is not HTTP: {error}")

    def pause_writing(self) -> None:
        self._is_writing_paused = True
        self._wait(self._shared.limits.write_seconds)

    def resume_writing(self) -> None:
        self._is_writing_paused = False
        self._go_on()

    # -- httptools' calls --------------------------------------------------------------------------

    def on_message_begin(self) -> None:
        if self._closes:
            return
        self._reading = _Reading(has_begun_late=self._shared.is_draining)
        if not self._is_held:
            self._wait(self._shared.limits.request_seconds)

    def on_url(self, url: bytes) -> None:
        if self._reading is not None:
            self._reading.path += url
            self._count_head(len(url))

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._reading is None:
            return
        self._count_head(len(name) + len(value))
        low = name.decode("latin-1").lower()
        if low in _KEPT_HEADERS:
            self._reading.headers[low] = value.decode("latin-1").strip()
        elif low == "expect":
            self._reading.waits = value.lower() == b"100-continue"
        elif low == "content-length":
            self._check_length(value)

    def on_headers_complete(self) -> None:
        reading = self._reading
        if reading is None:
            return
        if reading.headers.get("content-encoding", "identity") != "identity":
            self._reject_and_close(
                HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "send the body without a content encoding"
            )
            return
        method = self._parser.get_method().decode("latin-1")
        reading.early = self._service.reject_early(method, _path_of(reading.path))
        if reading.waits and reading.early is not None:
            self._answer_and_close(reading.early)  # its body may never come
        elif reading.waits and self._transport is not None:
            self._transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def on_body(self, data: bytes) -> None:
        reading = self._reading
        if reading is None or reading.early is not None:
            return  # its end is waited for, its bytes are dropped
        reading.n_bytes += len(data)
        self._shared.n_held_bytes += len(data)
        reading.body.append(data)
        limits = self._shared.limits
        if reading.n_bytes > limits.max_body_bytes:
            self._reject_size()
        elif self._shared.n_held_bytes > limits.max_held_bytes:
            reason = "the bodies of all requests together are too large; try again later"
            self._reject_and_close(HTTPStatus.SERVICE_UNAVAILABLE, reason)

    def on_message_complete(self) -> None:
        reading, self._reading = self._reading, None
        if reading is None:
            return
        method = self._parser.get_method().decode("latin-1")
        request = InferenceRequest(
            method, _path_of(reading.path), reading.headers, b"".join(reading.body)
        )
        early = reading.early
        if reading.has_begun_late:
            reason = "the server is about to stop"
            early = error_answer(RequestError(HTTPStatus.SERVICE_UNAVAILABLE, reason))
        self._complete.append((request, early, self._parser.should_keep_alive()))
        self._go_on()

    # -- requests ----------------------------------------------------------------------------------

    def _go_on(self) -> None:
        """Handle the next request; with none left, read again."""
        if self._is_held or self._transport is None:
            return
        if self._complete:
            self._handle_next()
        elif self._unread:
            self._feed(self._unread.pop(0))
        else:
            if self._shared.is_draining and self._reading is None:
                self._transport.close()
                return
            seconds = "idle_seconds" if self._reading is None else "request_seconds"
            self._wait(getattr(self._shared.limits, seconds))
            self._transport.resume_reading()

    def _handle_next(self) -> None:
        self._stop_waiting()
        self._is_busy = True
        request, early, keeps_alive = self._complete.popleft()
        self._closes = not keeps_alive
        has_answered = False

        def reply(answer: Answer) -> None:
            nonlocal has_answered
            has_answered = True
            self._ticket = None
            self._release(len(request.body))
            self._write(answer)

        if early is not None:
            reply(early)
            return
        try:
            ticket = self._service.handle(request, reply)
        except Exception:  # a mistake of ours: this client gets an error, others continue
            reply(error_answer(RequestError(HTTPStatus.INTERNAL_SERVER_ERROR, "the server failed")))
            raise
        self._ticket = None if has_answered else ticket

    def _write(self, answer: Answer) -> None:
        self._service.metrics.by_status[answer.status] += 1
        self._is_busy = False
        if self._transport is None or self._transport.is_closing():
            return
        closes = self._closes or self._shared.is_draining
        self._transport.write(_head(answer, closes=closes) + answer.body)
        if closes:
            self._transport.close()
            self._wait(self._shared.limits.write_seconds)
        elif self._complete or self._unread:
            # Not from here: a thousand small requests at once would be a thousand calls deep.
            asyncio.get_running_loop().call_soon(self._go_on)
        else:
            self._go_on()

    def _count_head(self, n_bytes: int) -> None:
        assert self._reading is not None
        self._reading.n_head_bytes += n_bytes
        if self._reading.n_head_bytes > _MOST_HEAD_BYTES:
            self._reject_and_close(
                HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE,
                f"path and headers together may have {_MOST_HEAD_BYTES:,} bytes",
            )

    def _check_length(self, value: bytes) -> None:
        if value.isdigit() and int(value) > self._shared.limits.max_body_bytes:
            self._reject_size()

    def _reject_size(self) -> None:
        most = self._shared.limits.max_body_bytes
        self._reject_and_close(
            HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"a body may have {most:,} bytes"
        )

    def _reject_and_close(self, status: HTTPStatus, reason: str) -> None:
        """Answer what cannot be read to its end, and hang up."""
        self._answer_and_close(error_answer(RequestError(status, reason)))

    def _answer_and_close(self, answer: Answer) -> None:
        if self._reading is not None:
            self._release(self._reading.n_bytes)
            self._reading = None
        self._closes = True
        if not self._is_busy:
            self._write(answer)

    def _release(self, n_bytes: int) -> None:
        self._shared.n_held_bytes -= n_bytes

    # -- time --------------------------------------------------------------------------------------

    def _wait(self, seconds: float) -> None:
        self._stop_waiting()
        self._timer = asyncio.get_running_loop().call_later(seconds, self._too_slow)

    def _stop_waiting(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _too_slow(self) -> None:
        self._timer = None
        if self._transport is None:
            return
        if self._reading is not None and not self._closes and not self._is_writing_paused:
            self._reject_and_close(
                HTTPStatus.REQUEST_TIMEOUT,
                f"the request did not arrive in {self._shared.limits.request_seconds:g} s",
            )
        else:
            self._transport.abort()

    def drain(self) -> None:
        """Hang up unless a request is being received or handled."""
        if not self._is_busy and self._reading is None and self._transport is not None:
            self._transport.close()

    def hang_up(self) -> None:
        """Whatever it does."""
        if self._transport is not None:
            self._transport.abort()


def _path_of(url: bytes) -> str:
    return url.partition(b"?")[0].decode("latin-1")


def _head(answer: Answer, *, closes: bool) -> bytes:
    lines = [
        f"HTTP/1.1 {answer.status.value} {answer.status.phrase}",
        f"Content-Type: {answer.content_type}",
        f"Content-Length: {len(answer.body)}",
        *(f"{name}: {value}" for name, value in answer.headers),
    ]
    if closes:
        lines.append("Connection: close")
    return "\r\n".join((*lines, "", "")).encode("latin-1")
