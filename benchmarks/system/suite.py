"""`tremula bench system`."""

import asyncio
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.figures import Figure, Suite

SUITE = Suite("system")
N_CLIENTS, SECONDS = 100, 8.0
N_KILLS = 1000
N_LAUNCHED, N_LAUNCHES = 8, 5


@SUITE.measurement("partitions")
def partitions() -> Iterator[Figure]:
    """Partitions made and removed by a hundred clients at once."""
    from tests.system.load import churn, forked_server, inconsistencies
    from tremula.system.control.controller import Controller
    from tremula.system.web.server import STATE_FILE

    async def all_clients(port: int, key: str) -> list[float]:
        done: list[float] = []
        until = time.perf_counter() + SECONDS
        await asyncio.gather(*(churn(port, key, i, until, done) for i in range(N_CLIENTS)))
        return done

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with forked_server(folder, 1024) as (port, key, _kill):
            began = time.perf_counter()
            done = asyncio.run(all_clients(port, key))
            seconds = time.perf_counter() - began
        controller = Controller(folder / STATE_FILE)
        wrong = inconsistencies(controller)
        n_left = controller.store.value("SELECT count(*) FROM partitions")
        controller.close()
    yield Figure.of("partitions-per-second", len(done) / 2 / seconds, "1/s", ">= 200")
    yield Figure.of("partitions-lost-or-doubled", len(wrong) + n_left, "", "== 0")


@SUITE.measurement("devices")
def devices() -> Iterator[Figure]:
    """Listing and allocating with 10,000 devices, of which half are in partitions."""
    from tests.system.load import Connection, forked_server

    async def times(port: int, key: str) -> tuple[list[float], list[float]]:
        connection = Connection(port, key)
        for i in range(625):
            await connection.ask("POST", "partitions", {"name": f"p{i}", "size": 8})
        listing, allocating = [], []
        for i in range(200):
            wish = {"name": f"q{i}", "size": 1 << i % 6}
            for taken, method, path, body in (
                (listing, "GET", "devices", None),
                (allocating, "POST", "partitions", wish),
                (allocating, "DELETE", f"partitions/q{i}", None),
            ):
                began = time.perf_counter()
                status, answer = await connection.ask(method, path, body)
                assert status == 200, answer
                taken.append(time.perf_counter() - began)
        connection.close()
        return listing, allocating

    with (
        tempfile.TemporaryDirectory() as name,
        forked_server(Path(name), 10_000) as (port, key, _kill),
    ):
        listing, allocating = asyncio.run(times(port, key))
    yield Figure.of("list-10000-devices-p99", _p99_ms(listing), "ms", "<= 50")
    yield Figure.of("allocate-of-10000-devices-p99", _p99_ms(allocating), "ms", "<= 50")


def _p99_ms(seconds: list[float]) -> float:
    return 1e3 * statistics.quantiles(seconds, n=100)[98]


@SUITE.measurement("kills")
def kills() -> Iterator[Figure]:
    """A thousand kills under load, after each of which all is as clients were told."""
    from tests.system.kills import killed_often

    with tempfile.TemporaryDirectory() as name:
        wrong = list(killed_often(Path(name), N_KILLS))
    for problems in wrong:
        for problem in problems:
            print(problem, file=sys.stderr)
    yield Figure.of("kills-survived", sum(not problems for problems in wrong), "", f"== {N_KILLS}")


@SUITE.measurement("scrape")
def scrape() -> Iterator[Figure]:
    """Metrics of a Pod256."""
    from tests.system.load import ADMIN
    from tremula.hardware import system
    from tremula.system.control.controller import Controller
    from tremula.system.control.partitions import PartitionRequest
    from tremula.system.web.exporter import scrape

    controller = Controller(":memory:")
    controller.add_cluster(ADMIN, "cl0", system("pod256"))
    for i in range(16):
        controller.add_partition(ADMIN, PartitionRequest(f"p{i}", 16))
    scrape(controller)
    taken = []
    for _ in range(20):
        began = time.perf_counter()
        scrape(controller)
        taken.append(time.perf_counter() - began)
    controller.close()
    yield Figure.of("scrape-256-devices", 1e3 * statistics.median(taken), "ms", "<= 50")


@SUITE.measurement("launch")
def launch() -> Iterator[Figure]:
    """From the command to the first line of the last of eight processes, to torchrun's time."""
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder, "hello.py")
        script.write_text("import os\nprint(os.environ['RANK'], flush=True)\n", encoding="utf-8")
        n = str(N_LAUNCHED)
        ours = ["-m", "tremula.commands", "poprun", "--num-instances", n, "--num-replicas", n]
        theirs = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", n]
        ratios = []
        for _ in range(N_LAUNCHES):
            reference = _seconds_to_lines([*theirs, str(script)])
            ratios.append(_seconds_to_lines([*ours, sys.executable, str(script)]) / reference)
    yield Figure.of("launch-8-processes", statistics.median(ratios), "× torchrun", "<= 1.1")


def _seconds_to_lines(command: list[str]) -> float:
    """Until every process has printed its line."""
    began = time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, *command],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert process.stdout is not None, "it was opened with a pipe"
    n_left = N_LAUNCHED
    while n_left and process.stdout.readline():
        n_left -= 1
    taken = time.perf_counter() - began
    process.communicate()
    assert not n_left, "some processes printed nothing"
    return taken
