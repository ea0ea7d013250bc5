"""A controller that is killed again and again under load: what it confirmed must be there."""

import asyncio
import random
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.system.load import Connection, forked_server, inconsistencies
from tremula.system.control.controller import Controller
from tremula.system.web.server import STATE_FILE

N_CLIENTS, N_IPUS = 8, 64


class _Books:
    """What clients were told: partitions that must be there, and those of unknown state."""

    def __init__(self) -> None:
        self.there: set[str] = set()
        self.unsure: set[str] = set()
        self.is_answered = asyncio.Event()  # since the last start


def killed_often(folder: Path, n_kills: int, seed: int = 0) -> Iterator[list[str]]:
    """Kill a controller n times at random moments; yields what is wrong after each."""
    draw, books = random.Random(seed), _Books()
    for turn in range(n_kills):
        with forked_server(folder, N_IPUS) as (port, key, kill):
            asyncio.run(_load_until(port, key, kill, draw.uniform(0.01, 0.12), books, turn))
        yield _compared(folder, books)


async def _load_until(
    port: int, key: str, kill: Callable[[], None], seconds: float, books: _Books, turn: int
) -> None:
    books.is_answered = asyncio.Event()
    clients = [
        asyncio.create_task(_client(Connection(port, key), books, f"t{turn}c{i}"))
        for i in range(N_CLIENTS)
    ]
    # Most kills fall into the load, after the first answer; every eighth into the start.
    if turn % 8:
        await books.is_answered.wait()
    await asyncio.sleep(seconds)
    kill()
    await asyncio.gather(*clients)


async def _client(connection: Connection, books: _Books, prefix: str) -> None:
    number = 0
    try:
        while True:
            name = f"{prefix}n{number}"
            number += 1
            await _asked(connection, books, name, is_new=True)
            if number % 4:  # some stay, to be there after the kill
                await _asked(connection, books, name, is_new=False)
    except (OSError, asyncio.IncompleteReadError):
        return
    finally:
        connection.close()


async def _asked(connection: Connection, books: _Books, name: str, *, is_new: bool) -> None:
    if not is_new and name not in books.there:
        return
    books.there.discard(name)
    books.unsure.add(name)  # until there is an answer
    if is_new:
        status, _ = await connection.ask("POST", "partitions", {"name": name, "size": 1})
    else:
        status, _ = await connection.ask("DELETE", f"partitions/{name}")
    books.unsure.discard(name)
    books.is_answered.set()
    if (status == 200) == is_new:
        books.there.add(name)


def _compared(folder: Path, books: _Books) -> list[str]:
    controller = Controller(folder / STATE_FILE)
    try:
        result = inconsistencies(controller)
        there = {row["name"] for row in controller.store.rows("SELECT name FROM partitions")}
        result += [f"{name} was confirmed and is gone" for name in sorted(books.there - there)]
        known = books.there | books.unsure
        result += [f"{name} was removed and is there" for name in sorted(there - known)]
        if len(there) > N_IPUS // 2:
            with controller.store.change():  # make room
                controller.store.run("DELETE FROM partitions")
                controller.store.run("DELETE FROM audit")
            there = set()
        books.there, books.unsure = there, set()
        return result
    finally:
        controller.close()
