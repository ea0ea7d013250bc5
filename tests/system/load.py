"""Controllers in separate processes, and many clients of them at once, on one event loop."""

import asyncio
import json
import os
import signal
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tremula.hardware import single
from tremula.system.control.access import Caller
from tremula.system.control.controller import Controller
from tremula.system.web.server import LOOP_BACK, listening_socket, open_controller, serve

ADMIN = Caller("admin", "admin")


class Connection:
    """HTTP without ceremony: requests one after the other over one connection."""

    def __init__(self, port: int, key: str):
        self._port, self._key = port, key
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None

    async def ask(self, method: str, path: str, body: object = None) -> tuple[int, bytes]:
        if self._writer is None or self._reader is None:
            self._reader, self._writer = await asyncio.open_connection(LOOP_BACK, self._port)
        data = b"" if body is None else json.dumps(body).encode()
        head = (
            f"{method} /api/v1/{path} HTTP/1.1\r\nHost: {LOOP_BACK}\r\n"
            f"Authorization: Bearer {self._key}\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(data)}\r\n\r\n"
        )
        self._writer.write(head.encode() + data)
        answer = await self._reader.readuntil(b"\r\n\r\n")
        lines = answer.lower().split(b"\r\n")
        length = next(int(line[15:]) for line in lines if line.startswith(b"content-length:"))
        return int(answer[9:12]), await self._reader.readexactly(length)

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()


@contextmanager
def forked_server(folder: Path, n_ipus: int) -> Iterator[tuple[int, str, Callable[[], None]]]:
    """A controller in a child of this process: its port, the administrator's key, and its killer.

    A fork saves the seconds that a new interpreter takes to import the server.
    """
    key = prepare(folder, n_ipus)
    with listening_socket(LOOP_BACK, 0) as listening:
        sys.stdout.flush()
        with warnings.catch_warnings():
            # NumPy's threads, of which Python 3.12 warns, wait for products that never come.
            warnings.simplefilter("ignore", DeprecationWarning)
            pid = os.fork()
        if pid == 0:
            try:
                serve(open_controller(folder, "cl0", single("bow", n_ipus)), listening)
            finally:
                os._exit(0)
        port = listening.getsockname()[1]
    is_alive = [True]

    def kill() -> None:
        if is_alive[0]:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            is_alive[0] = False

    try:
        yield port, key, kill
    finally:
        kill()


def prepare(folder: Path, n_ipus: int) -> str:
    """Make the state once; its administrator's key is kept beside it."""
    kept = folder / "key"
    if not kept.exists():
        controller = open_controller(folder, "cl0", single("bow", n_ipus))
        kept.write_text(controller.admin_key or "", encoding="utf-8")
        controller.close()
    return kept.read_text(encoding="utf-8")


async def churn(port: int, key: str, client: int, until: float, done: list[float]) -> None:
    """Make and remove partitions, one after the other; `done` gets the seconds of each request."""
    connection, number = Connection(port, key), 0
    while time.perf_counter() < until:
        name = f"c{client}-{number}"
        for request in (
            ("POST", "partitions", {"name": name, "size": 1 << client % 3}),
            ("DELETE", f"partitions/{name}", None),
        ):
            began = time.perf_counter()
            status, answer = await connection.ask(*request)
            assert status == 200, answer
            done.append(time.perf_counter() - began)
        number += 1
    connection.close()


def inconsistencies(controller: Controller) -> list[str]:
    """What must never be: damage, chips that are lost or doubled, changes without a log line."""
    store, result = controller.store, []
    if store.value("PRAGMA integrity_check") != "ok":
        result.append("the file is damaged")
    if store.rows("PRAGMA foreign_key_check"):
        result.append("rows refer to nothing")
    for row in store.rows("SELECT * FROM partitions"):
        sql = "SELECT ipu FROM partition_ipus WHERE partition = ? ORDER BY ipu"
        ipus = [r["ipu"] for r in store.rows(sql, row["id"])]
        if ipus != list(range(row["first"], row["first"] + row["size"])):
            result.append(f"partition {row['name']} has {ipus}")
    n_made, n_gone = (
        store.value("SELECT count(*) FROM audit WHERE outcome = 'done' AND action = ?", action)
        for action in ("create partition", "remove partition")
    )
    n_there = store.value("SELECT count(*) FROM partitions")
    if n_made - n_gone != n_there:
        result.append(f"{n_made} made, {n_gone} removed, {n_there} there")
    return result
