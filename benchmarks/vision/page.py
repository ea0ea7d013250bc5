"""Figures of the analyser page in headless Chromium: first paint, frames, bytes, weight."""

import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.figures import Figure
from tests.vision.browser import Browser

VIEWS = (
    "summary", "memory", "liveness", "tree", "operations", "execution", "chip", "host", "whatif",
)  # fmt: skip
HEAT = ".heat canvas[tabindex]"
_N_ZOOMS = 12


def page_figures(n_steps: int, n_tiles: int) -> Iterator[Figure]:
    """All of them, on a report of n_steps × n_tiles cells."""
    from tremula.vision.serve.page_files import page_files

    weight = sum(map(len, page_files().values())) / 1e3
    yield Figure.of("page-weight", weight, "KB", "<= 600")
    with (
        tempfile.TemporaryDirectory() as folder,
        _served(_written(folder, n_steps, n_tiles)) as url,
        Browser() as browser,
    ):
        browser.open(url=url)
        slowest = 0.0
        for view, seconds in _first_paints(browser, url):
            slowest = max(slowest, seconds)
            yield Figure.of(f"first-paint-{view}", seconds, "s", "<= 1")
        yield Figure.of("first-paint-slowest", slowest, "s", "<= 1")
        yield from _panning(browser, url)


def slowest_paint(path: Path) -> float:
    """Seconds until the slowest view of a report is painted."""
    with _served(path) as url, Browser() as browser:
        browser.open(url=url)
        return max(seconds for _, seconds in _first_paints(browser, url))


def _written(folder: str, n_steps: int, n_tiles: int) -> Path:
    from tests.vision.sample_reports import long_executable
    from tremula.runtime.forecast import forecast
    from tremula.vision.report.write import write_report

    executable = long_executable(n_steps, n_tiles)
    return write_report(folder, executable, forecast(executable), keeps_executable=False)


@contextmanager
def _served(path: Path) -> Iterator[str]:
    from tremula.vision.page_data.fetch import PageData
    from tremula.vision.report.reader import open_report
    from tremula.vision.serve.server import PageServer

    with open_report(path) as reader, PageServer(PageData([reader])) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield server.url
        finally:
            server.shutdown()
            thread.join()


def _first_paints(browser: Browser, url: str) -> Iterator[tuple[str, float]]:
    """Views, and seconds from a fresh page's navigation to each of them painted.

    Each is opened twice and the better time taken: the first opening also makes the report's packs
    and fills the disk cache for all later views of the same server.
    """
    for view in VIEWS:
        yield view, min(browser.paint(url=url, hash=f"/{view}") for _ in range(2)) / 1e3


def _panning(browser: Browser, url: str) -> Iterator[Figure]:
    """Frames while the heat map is zoomed and panned, and bytes of each screen on the way in."""
    browser.open(url=url)
    browser.show(hash="#/execution")
    most = 0
    for i in range(_N_ZOOMS):
        browser.fetched(reset=True)
        browser.focus(selector=HEAT)
        for _ in range(2):
            browser.press(key="+" if i % 4 < 3 else "ArrowRight")
        browser.wait(ms=250)
        browser.settle()
        most = max(most, browser.fetched(reset=False))
    yield Figure.of("heat-map-bytes-per-screen", most / 1e3, "KB", "<= 300")
    browser.press(key="0")
    browser.settle()
    frames = browser.frames(selector=HEAT, seconds=4)
    yield Figure.of("heat-map-frames", 1e3 * frames["n"] / frames["ms"], "frames/s", ">= 30")
