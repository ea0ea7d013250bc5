"""Cuts clients that are slow on purpose: a request must arrive, and an answer be taken, in time.

Uvicorn limits how long an idle connection stays, not how long a request may take to arrive: a few
thousand clients that send one byte a minute would use up all connections.
"""

import asyncio
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

REQUEST_SECONDS = 10.0  # from its first byte, or the connection, to its last byte
ANSWER_SECONDS = 30.0  # for a client to take what it was sent


class ImpatientProtocol(H11Protocol):
    """HTTP as uvicorn has it, with a deadline for each request and each answer."""

    _deadline: asyncio.TimerHandle | None = None
    _write_deadline: asyncio.TimerHandle | None = None
    _last_cycle: object = None  # of the last request that arrived

    def connection_made(self, transport: Any) -> None:  # noqa: ANN401 - asyncio's transports
        super().connection_made(transport)
        self._start()

    def data_received(self, data: bytes) -> None:
        if self._deadline is None:
            self._start()
        super().data_received(data)
        has_arrived = self.cycle is not None and not self.cycle.more_body
        if has_arrived and self.cycle is not self._last_cycle:
            self._last_cycle = self.cycle
            self._stop()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop()
        self.resume_writing()
        super().connection_lost(exc)

    def send_400_response(self, msg: str) -> None:
        """Answer a request that broke off in its body; the application need not answer it, too."""
        super().send_400_response(msg)
        if self.cycle is not None and not self.cycle.response_complete:
            self.cycle.disconnected = True
            self.cycle.message_event.set()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._write_deadline = self.loop.call_later(ANSWER_SECONDS, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._write_deadline is not None:
            self._write_deadline.cancel()
            self._write_deadline = None

    def _start(self) -> None:
        self._deadline = self.loop.call_later(REQUEST_SECONDS, self.transport.abort)

    def _stop(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
