"""Runs a server: opens its port, and stops without losing a request."""

import asyncio
import signal
import socket
import threading
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from tremula.serving.batching import Batcher
from tremula.serving.http import Connection, Limits, Shared
from tremula.serving.metrics import Metrics
from tremula.serving.program import ServedProgram
from tremula.serving.service import Service

LOOP_BACK = "127.0.0.1"
_BACKLOG = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeSettings:
    """How requests become batches, and how the server stops."""

    max_delay_s: float = 0.002  # how long a row waits for others before a batch starts with gaps
    max_queue_batches: int = 8  # more is rejected; each adds the time of a batch to the wait
    drain_seconds: float = 30.0  # for requests that are on their way when it stops
    limits: Limits = field(default_factory=Limits)


def listening_socket(host: str, port: int) -> socket.socket:
    """A socket to serve on; port 0 is any free one."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    made = socket.socket(family, socket.SOCK_STREAM)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    made.bind((host, port))
    made.setblocking(False)
    return made


async def serve(
    program: ServedProgram,
    listening: socket.socket,
    stop: asyncio.Event,
    settings: ServeSettings | None = None,
    ready: Callable[[], None] = lambda: None,
) -> Metrics:
    """Answer requests until `stop` is set; then finish those that began, and return.

    `ready` is called once the port is open.
    """
    settings = settings or ServeSettings()
    metrics = Metrics(program.name, program.batch_size)
    batcher = Batcher(
        program,
        metrics,
        max_delay_s=settings.max_delay_s,
        max_queue_rows=settings.max_queue_batches * program.batch_size,
    )
    service = Service(program, batcher, metrics)
    shared = Shared(service, settings.limits)
    loop = asyncio.get_running_loop()
    try:
        # The first run of a compiled program loads it: not while a client waits.
        await loop.run_in_executor(None, program.checked_run, program.zeros())
        server = await loop.create_server(
            lambda: Connection(shared), sock=listening, backlog=_BACKLOG
        )
        ready()
        await stop.wait()
        service.is_ready = False
        server.close()
        await _drain(shared, settings.drain_seconds)
    finally:
        listening.close()
        for connection in tuple(shared.connections):
            connection.hang_up()
        service.close()
    return metrics


async def _drain(shared: Shared, seconds: float) -> None:
    """Wait for requests that began; connections without one are closed at once."""
    shared.is_draining = True
    for connection in tuple(shared.connections):
        connection.drain()
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            while shared.connections:
                await asyncio.sleep(0.01)


def run_server(
    program: ServedProgram,
    listening: socket.socket,
    settings: ServeSettings | None = None,
    ready: Callable[[], None] = lambda: None,
) -> Metrics:
    """Serve until SIGINT or SIGTERM; a second one does not wait for requests."""

    async def main() -> Metrics:
        loop, stop = asyncio.get_running_loop(), asyncio.Event()
        serving = asyncio.ensure_future(serve(program, listening, stop, settings, ready))

        def ask_to_stop() -> None:
            if stop.is_set():
                serving.cancel()
            stop.set()

        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, ask_to_stop)
        return await serving

    return run_loop(main)


@contextmanager
def serving(program: ServedProgram, settings: ServeSettings | None = None) -> Iterator[int]:
    """Serve in a thread, on any free port of the loop-back address, which is given."""
    listening = listening_socket(LOOP_BACK, 0)
    port = listening.getsockname()[1]
    started: Future[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = Future()

    async def main() -> Metrics:
        loop, stop = asyncio.get_running_loop(), asyncio.Event()
        return await serve(
            program, listening, stop, settings, ready=lambda: started.set_result((loop, stop))
        )

    def run() -> None:
        try:
            run_loop(main)
        except BaseException as error:
            if started.done():
                raise
            started.set_exception(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    loop, stop = started.result()
    try:
        yield port
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join()


def run_loop(main: Callable[[], Coroutine[Any, Any, Metrics]]) -> Metrics:
    """asyncio.run, on the faster loop where it is installed."""
    try:
        import uvloop
    except ImportError:
        return asyncio.run(main())
    return uvloop.run(main())
