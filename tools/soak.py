"""`make soak`: servers under mixed good and hostile load; memory, handles and answers are watched.

`tremula serve`, the controller of `vipu-server` and the analyser page run one after another (or
together), each in a separate process, for SECONDS. A table says how far memory grew after a
warm-up, whether open files are as many as before, and how many good requests were answered; the
exit code is 1 if one of them is out of bounds.
"""

import argparse
import http.client
import json
import multiprocessing as mp
import os
import random
import socket
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path

MOST_GROWTH = 0.05
WARM_UP = 0.2  # share of the time after which memory is first read
N_THREADS = 4


@dataclass
class Soaked:
    """What a server came to."""

    name: str
    n_good: int = 0
    n_lost: int = 0  # good requests without a good answer
    n_hostile: int = 0
    bytes_before: int = 0
    bytes_after: int = 0
    files_before: int = 0
    files_after: int = 0
    is_alive: bool = True
    new_files: dict[str, int] = field(default_factory=dict)  # open at the end, not before

    @property
    def growth(self) -> float:
        return self.bytes_after / max(self.bytes_before, 1) - 1

    @property
    def holds(self) -> bool:
        return (
            self.is_alive
            and self.n_good > 0
            and self.n_lost == 0
            and self.growth <= MOST_GROWTH
            and self.files_after <= self.files_before
        )


# -- servers, each in a process --------------------------------------------------------------------


@dataclass(frozen=True)
class Started:
    """Where a server listens, and what good requests have to send along."""

    port: int
    headers: dict[str, str] = field(default_factory=dict)


def _serve_model(pipe: Connection) -> None:
    from tools.fuzz.files.formats import _served
    from tremula.serving.server import serving

    with serving(_served()) as port:
        pipe.send(Started(port))
        pipe.recv()


def _serve_controller(pipe: Connection) -> None:
    from tremula.hardware import system
    from tremula.system.web.server import open_controller, serving

    with tempfile.TemporaryDirectory() as folder:
        controller = open_controller(Path(folder), "c0", system("M2000"))
        with serving(controller) as port:
            pipe.send(Started(port, {"Authorization": f"Bearer {controller.admin_key}"}))
            pipe.recv()


def _serve_page(pipe: Connection) -> None:
    from tests.vision.serving import serving
    from tools.fuzz.files.formats import good_file

    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "profile.pop").write_bytes(good_file("report"))
        with serving(Path(folder)) as server:
            pipe.send(Started(server.server_address[1], {"X-Tremula-Token": server.token}))
            pipe.recv()


class Client:
    """A connection that stays open, and the headers of good requests."""

    def __init__(self, started: Started, seed: int):
        self.chance = random.Random(seed)
        self._headers = started.headers
        self._connection = http.client.HTTPConnection("127.0.0.1", started.port, timeout=60)
        self._name = f"soak{seed}"

    def answer(self, method: str, path: str, body: bytes | None = None) -> tuple[int, bytes]:
        """Status and body of an answer."""
        headers = dict(self._headers)
        if body is not None:
            headers["Content-Type"] = "application/json"
        self._connection.request(method, path, body, headers)
        response = self._connection.getresponse()
        return response.status, response.read()

    def gets(self, paths: tuple[str, ...]) -> bool:
        """Whether one of these pages is answered."""
        status, _ = self.answer("GET", self.chance.choice(paths))
        return status == 200

    def close(self) -> None:
        self._connection.close()

    def infers(self) -> bool:
        """Two rows through the model, or what a monitoring system reads."""
        from tools.fuzz.files.formats import _request

        if self.chance.random() < 0.2:
            return self.gets(("/v2", "/v2/health/ready", "/v2/models/rows", "/metrics"))
        status, text = self.answer("POST", "/v2/models/rows/infer", _request())
        return status == 200 and b"sum" in text

    def controls(self) -> bool:
        """Views of the fleet; now and then a partition comes and goes."""
        if self.chance.random() < 0.8:
            pages = ("", "docs", "metrics", "api/v1/state", "api/v1/monitor", "api/v1/audit")
            return self.gets(tuple(f"/{page}" for page in pages))
        request = json.dumps({"name": self._name, "size": 1}).encode()
        made, _ = self.answer("POST", "/api/v1/partitions", request)
        is_there = self.gets((f"/api/v1/partitions/{self._name}",))
        removed, _ = self.answer("DELETE", f"/api/v1/partitions/{self._name}")
        return made < 300 and is_there and removed < 300

    def views(self) -> bool:
        """The page, its parts, and packs of the report."""
        return self.gets(("/", "/page/main.js", "/news", "/data/index", *PACKS))


PACKS = tuple(f"/data/0/{name}" for name in ("summary", "tiles", "variables", "trace-file/chrome"))
SERVERS: dict[str, tuple[Callable[[Connection], None], Callable[[Client], bool]]] = {
    "serve": (_serve_model, Client.infers),
    "vipu-server": (_serve_controller, Client.controls),
    "page": (_serve_page, Client.views),
}


# -- load ------------------------------------------------------------------------------------------


def hostile(port: int, chance: random.Random) -> None:
    """Something no client should send: noise, half a request, a huge header, damaged JSON."""
    noise = chance.randbytes(chance.choice((1, 40, 3000)))
    messages = (
        noise,
        b"GET / HTTP/1.1\r\nHost: x\r\n",
        b"POST /v2/models/rows/infer HTTP/1.1\r\nHost: x\r\nContent-Length: 9999999\r\n\r\n{",
        b"GET /" + b"a" * 70_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n",
        b'POST /v2/models/rows/infer HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n{"id": [[',
        b"GET /../../etc/passwd HTTP/1.1\r\nHost: x\r\n\r\n",
        b"DELETE /v2 HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    )
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=5) as client:
            client.sendall(chance.choice(messages))
            if chance.random() < 0.5:
                client.settimeout(0.2)
                client.recv(1000)
    except OSError:
        return


def _load(
    client: Client, port: int, good: Callable[[Client], bool], result: Soaked,
    stop: threading.Event, pause: float,
) -> None:  # fmt: skip
    while not stop.wait(pause):
        if client.chance.random() < 0.3:
            hostile(port, client.chance)
            result.n_hostile += 1
            continue
        is_right = _is_answered(client, good)
        result.n_good += is_right
        result.n_lost += not is_right
    client.close()


def _is_answered(client: Client, good: Callable[[Client], bool]) -> bool:
    try:
        return good(client)
    except (OSError, http.client.HTTPException):
        client.close()
        return False


def resident_bytes(pid: int) -> int:
    """Memory of a process, as Linux counts it."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def open_files(pid: int) -> Counter[str]:
    """What a process has open: files by name, sockets and the like by kind."""
    result: Counter[str] = Counter()
    for link in Path(f"/proc/{pid}/fd").iterdir():
        try:
            target = os.readlink(link)
        except OSError:  # closed meanwhile
            continue
        result[target.partition(":[")[0] if ":[" in target else target] += 1
    return result


def soak(name: str, seconds: float, pause: float = 0.0) -> Soaked:
    """One server under load."""
    serve, good = SERVERS[name]
    ours, theirs = mp.get_context("spawn").Pipe()
    process = mp.get_context("spawn").Process(target=serve, args=(theirs,), daemon=True)
    process.start()
    started, result, stop = ours.recv(), Soaked(name), threading.Event()
    pid = process.pid or 0
    files = _files_after_first_answers(started, good, pid)
    result.files_before = files.total()
    threads = [
        threading.Thread(
            target=_load, args=(Client(started, seed), started.port, good, result, stop, pause)
        )
        for seed in range(N_THREADS)
    ]
    for thread in threads:
        thread.start()
    time.sleep(seconds * WARM_UP)
    result.bytes_before = resident_bytes(pid)
    time.sleep(seconds * (1 - WARM_UP))
    result.bytes_after = resident_bytes(pid)
    stop.set()
    for thread in threads:
        thread.join()
    files_after = _settled_files(pid, result.files_before)
    result.files_after, result.is_alive = files_after.total(), process.is_alive()
    result.new_files = dict(files_after - files)
    ours.send("stop")
    process.join(10)
    process.kill()
    return result


def _files_after_first_answers(
    started: Started, good: Callable[[Client], bool], pid: int
) -> Counter[str]:
    """Open files of a server that has answered: event loops and databases open theirs lately."""
    client = Client(started, N_THREADS)
    for _ in range(20):
        _is_answered(client, good)
    client.close()
    time.sleep(1)
    return open_files(pid)


def _settled_files(pid: int, n_before: int) -> Counter[str]:
    """Open files once the server has noticed that its clients are gone (or 90 s later)."""
    deadline = time.monotonic() + 90
    while (files := open_files(pid)).total() > n_before and time.monotonic() < deadline:
        time.sleep(0.5)
    return files


def table(results: list[Soaked], seconds: float) -> str:
    """The results as Markdown."""
    columns = ("good answers", "lost", "hostile", "MB after warm-up", "MB at the end", "growth",
               "files before", "files after")  # fmt: skip
    head = f"| server ({seconds:.0f} s each) | {' | '.join(columns)} |"
    rows = (
        f"| {r.name} | {r.n_good:,} | {r.n_lost} | {r.n_hostile:,} | {r.bytes_before / 1e6:.1f} | "
        f"{r.bytes_after / 1e6:.1f} | {r.growth:+.1%} | {r.files_before} | {r.files_after} |"
        for r in results
    )
    return "\n".join([head, "|---" * (len(columns) + 1) + "|", *rows])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=3600, help="for each server (3600)")
    parser.add_argument("--server", action="append", choices=list(SERVERS), help="only this one")
    pause = "seconds that each client waits between requests (0)"
    parser.add_argument("--pause", type=float, default=0.0, help=pause)
    parser.add_argument("--together", action="store_true", help="all servers at the same time")
    args = parser.parse_args()
    names = args.server or list(SERVERS)
    with ThreadPoolExecutor(len(names) if args.together else 1) as pool:
        results = list(pool.map(lambda name: soak(name, args.seconds, args.pause), names))
    print(table(results, args.seconds))
    for result in results:
        if result.new_files:
            print(f"{result.name} has open now: {result.new_files}")
    return 0 if all(result.holds for result in results) else 1


if __name__ == "__main__":
    sys.exit(main())
