"""`make soak`: servers under mixed good and hostile load; memory, handles and answers are watched.

`tremula serve`, the controller of `vipu-server` and the analyser page run one after another,
each in a separate process, for SECONDS. A table says how far memory grew after a warm-up, whether
open files are as many as before, and how many good requests were answered; the exit code is 1 if
one of them is out of bounds.
"""

import argparse
import http.client
import multiprocessing as mp
import os
import random
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
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


def _serve_model(pipe: Connection) -> None:
    from tools.fuzz.files.formats import _served
    from tremula.serving.server import serving

    with serving(_served()) as port:
        pipe.send(port)
        pipe.recv()


def _serve_controller(pipe: Connection) -> None:
    from tremula.hardware import system
    from tremula.system.web.server import open_controller, serving

    with tempfile.TemporaryDirectory() as folder:
        controller = open_controller(Path(folder), "c0", system("M2000"))
        with serving(controller) as port:
            pipe.send(port)
            pipe.recv()


def _serve_page(pipe: Connection) -> None:
    from tests.vision.serving import serving
    from tools.fuzz.files.formats import good_file

    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "profile.pop").write_bytes(good_file("report"))
        with serving(Path(folder)) as server:
            _, _, path = server.url.partition(f":{server.server_address[1]}")
            pipe.send((server.server_address[1], path))
            pipe.recv()


def _model_request(connection: http.client.HTTPConnection) -> bool:
    from tools.fuzz.files.formats import _request

    connection.request("POST", "/v2/models/rows/infer", _request())
    answer = connection.getresponse()
    return answer.status == 200 and b"sum" in answer.read()


def _get(path: str) -> Callable[[http.client.HTTPConnection], bool]:
    def ask(connection: http.client.HTTPConnection) -> bool:
        connection.request("GET", path)
        answer = connection.getresponse()
        answer.read()
        return answer.status == 200

    return ask


def _get_with_cookie(path: str) -> Callable[[http.client.HTTPConnection], bool]:
    """The page: its address with the secret sets a cookie, with which the plain one is read."""

    def ask(connection: http.client.HTTPConnection) -> bool:
        connection.request("GET", path)
        first = connection.getresponse()
        first.read()
        cookie = (first.getheader("Set-Cookie") or "").partition(";")[0]
        connection.request("GET", "/", headers={"Cookie": cookie})
        answer = connection.getresponse()
        answer.read()
        return answer.status == 200

    return ask


SERVERS = {
    "serve": (_serve_model, _model_request),
    "vipu-server": (_serve_controller, _get("/metrics")),
    "page": (_serve_page, _get("/")),
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
    port: int, good: Callable[[http.client.HTTPConnection], bool], result: Soaked,
    stop: threading.Event, seed: int,
) -> None:  # fmt: skip
    chance = random.Random(seed)
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    while not stop.is_set():
        if chance.random() < 0.3:
            hostile(port, chance)
            result.n_hostile += 1
            continue
        try:
            is_right = good(connection)
        except (OSError, http.client.HTTPException):
            connection.close()
            is_right = False
        result.n_good += is_right
        result.n_lost += not is_right
    connection.close()


def resident_bytes(pid: int) -> int:
    """Memory of a process, as Linux counts it."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def n_open_files(pid: int) -> int:
    return len(os.listdir(f"/proc/{pid}/fd"))


def soak(name: str, seconds: float) -> Soaked:
    """One server under load."""
    serve, good = SERVERS[name]
    ours, theirs = mp.get_context("spawn").Pipe()
    process = mp.get_context("spawn").Process(target=serve, args=(theirs,), daemon=True)
    process.start()
    started, result, stop = ours.recv(), Soaked(name), threading.Event()
    port = started if isinstance(started, int) else started[0]
    if not isinstance(started, int):  # the page has a secret in its address
        good = _get_with_cookie(started[1])
    pid = process.pid or 0
    result.files_before = n_open_files(pid)
    threads = [
        threading.Thread(target=_load, args=(port, good, result, stop, seed))
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
    deadline = time.monotonic() + 30  # until the server has noticed that clients are gone
    while n_open_files(pid) > result.files_before and time.monotonic() < deadline:
        time.sleep(0.5)
    result.files_after, result.is_alive = n_open_files(pid), process.is_alive()
    ours.send("stop")
    process.join(10)
    process.kill()
    return result


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
    args = parser.parse_args()
    results = [soak(name, args.seconds) for name in args.server or SERVERS]
    print(table(results, args.seconds))
    return 0 if all(result.holds for result in results) else 1


if __name__ == "__main__":
    sys.exit(main())
