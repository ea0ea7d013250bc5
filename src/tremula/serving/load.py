"""A load test: many connections that ask as fast as they can, or at a given rate."""

import asyncio
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import cast
from urllib.parse import urlsplit

import httptools
import numpy as np

from tremula.base.errors import InvalidOption, RuntimeFailure
from tremula.serving.client import infer_body

_CONNECT_SECONDS = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadResult:
    """What a load test saw."""

    seconds: float
    latencies_s: np.ndarray  # of answers with status 200, sorted
    by_status: Mapping[int, int]
    n_broken: int  # connections that ended without an answer

    @property
    def n_good(self) -> int:
        return self.by_status.get(200, 0)

    @property
    def rate(self) -> float:
        """Good answers per second."""
        return self.n_good / self.seconds

    def percentile_s(self, percent: float) -> float:
        return float(np.percentile(self.latencies_s, percent)) if self.n_good else float("nan")


def infer_request(
    host: str, model: str, inputs: Mapping[str, np.ndarray], *, is_binary: bool = True
) -> bytes:
    """A whole request of HTTP for one inference."""
    body, headers = infer_body(inputs, is_binary=is_binary)
    lines = [
        f"POST /v2/models/{model}/infer HTTP/1.1",
        f"Host: {host}",
        f"Content-Length: {len(body)}",
        *(f"{name}: {value}" for name, value in headers.items()),
    ]
    return "\r\n".join((*lines, "", "")).encode() + body


@dataclass(slots=True)
class _Tally:
    ends_at: float
    latencies_s: list[float] = field(default_factory=list)
    by_status: Counter[int] = field(default_factory=Counter)
    n_broken: int = 0


class _Client(asyncio.Protocol):
    """A connection that sends the same request again and again."""

    def __init__(self, request: bytes, tally: _Tally, interval_s: float):
        self._request, self._tally, self._interval_s = request, tally, interval_s
        self._parser = httptools.HttpResponseParser(self)
        self._transport: asyncio.Transport | None = None
        self._sent = self._due = 0.0
        self._is_waiting = False
        self.gone: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def start(self, delay_s: float) -> None:
        self._due = time.perf_counter() + delay_s
        asyncio.get_running_loop().call_later(delay_s, self._send)

    def _send(self) -> None:
        if self._transport is None:
            return
        now = time.perf_counter()
        if now >= self._tally.ends_at:
            self._transport.close()
            return
        # At a given rate, time counts from when the request was due: a slow server is no excuse.
        self._sent = self._due if self._interval_s else now
        self._is_waiting = True
        self._transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_message_complete(self) -> None:
        now = time.perf_counter()
        status = self._parser.get_status_code()
        self._is_waiting = False
        self._tally.by_status[status] += 1
        if status == 200:
            self._tally.latencies_s.append(now - self._sent)
        self._due += self._interval_s
        if self._due > now:
            asyncio.get_running_loop().call_later(self._due - now, self._send)
        else:
            self._send()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        self._tally.n_broken += self._is_waiting
        self._transport = None
        if not self.gone.done():
            self.gone.set_result(None)


async def load_test(
    url: str,
    model: str,
    inputs: Mapping[str, np.ndarray],
    *,
    seconds: float,
    n_connections: int,
    rate: float | None = None,
    is_binary: bool = True,
) -> LoadResult:
    """Send requests for some seconds, at `rate` requests per second over all connections."""
    parts = urlsplit(url)
    if parts.scheme != "http" or not parts.hostname:
        raise InvalidOption(
            f"{url!r} is not the address of a server.", hint="http://127.0.0.1:8000"
        )
    request = infer_request(parts.netloc, model, inputs, is_binary=is_binary)
    interval = 0.0 if rate is None else n_connections / rate
    loop = asyncio.get_running_loop()
    tally = _Tally(0.0)
    clients = []
    try:
        async with asyncio.timeout(_CONNECT_SECONDS):
            for _ in range(n_connections):
                _, client = await loop.create_connection(
                    lambda: _Client(request, tally, interval), parts.hostname, parts.port or 80
                )
                clients.append(client)
    except (OSError, TimeoutError) as error:
        raise RuntimeFailure(f"no server answers at {url}: {error}") from None
    began = time.perf_counter()
    tally.ends_at = began + seconds
    for i, client in enumerate(clients):
        client.start(interval * i / n_connections)
    await asyncio.wait([client.gone for client in clients])
    return LoadResult(
        seconds=time.perf_counter() - began,
        latencies_s=np.sort(tally.latencies_s),
        by_status=dict(tally.by_status),
        n_broken=tally.n_broken,
    )
