"""`tremula bench garden`."""

import statistics
import tempfile
from collections.abc import Iterator
from pathlib import Path

from benchmarks.figures import Figure, Suite
from benchmarks.garden import science

SUITE = Suite("garden")
MOST_MINUTES = 15

for _name, _measurement in science.MEASUREMENTS.items():
    SUITE.measurement(_name)(_measurement)


@SUITE.measurement("serving")
def serving() -> Iterator[Figure]:
    """A served ResNet-18 against the same program called in a loop with full batches."""
    from benchmarks.garden.served import measure_serving

    result = measure_serving()
    yield Figure.of(
        "serving: requests/s ÷ rows/s of a loop, full batches", result.throughput, "×", ">= 0.9"
    )
    yield Figure.of("serving: p99 at half load ÷ a batch's time", result.p99, "×", "<= 5")
    yield Figure.of("serving: requests lost at 10 × its capacity", result.n_lost, "", "== 0")
    yield Figure.of(
        "serving: good answers/s at 10 × its capacity ÷ a loop's", result.overload, "×", ">= 0.5"
    )


@SUITE.measurement("page")
def page() -> Iterator[Figure]:
    """The page of all applications: its weight, and the median of some first paints."""
    from tests.vision.browser import Browser
    from tremula.garden.catalogue.catalogue import all_applications
    from tremula.garden.catalogue.page_file import write_page

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "garden.html"
        n_bytes = write_page(all_applications(), path)
        yield Figure.of("garden page: weight", n_bytes / 1000, "KB", "<= 600")
        paints = []
        with Browser() as browser:
            for _ in range(5):
                browser.open(url=path.as_uri(), offline=True, fresh=True)
                first = "performance.getEntriesByName('first-contentful-paint')[0].startTime"
                browser.until(code="performance.getEntriesByType('paint').length > 1")
                paints.append(browser.evaluate(code=first))
        yield Figure.of("garden page: first paint", statistics.median(paints) / 1000, "s", "<= 1")


@SUITE.measurement("applications")
def applications() -> Iterator[Figure]:
    """Every application in its tiny form, one after another, each on one thread."""
    from tremula.garden.catalogue.catalogue import all_applications
    from tremula.garden.catalogue.run_all import run_all

    outcomes = list(run_all(all_applications()))
    n_wrong = sum(not outcome.is_right for outcome in outcomes)
    minutes = sum(outcome.cpu_seconds for outcome in outcomes) / 60
    yield Figure.of("applications that run in tiny form", len(outcomes) - n_wrong, "", ">= 30")
    yield Figure.of("applications that fail", n_wrong, "", "== 0")
    yield Figure.of("all applications: CPU time", minutes, "min", f"<= {MOST_MINUTES}")
