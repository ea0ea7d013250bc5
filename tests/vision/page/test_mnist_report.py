"""A fresh report of the MNIST example in a real browser: every view says what pva says."""

import re

import pytest

import pva
from tests.vision.page.checks import CHECKS, first_row, whole
from tests.vision.page.mnist_run import EXAMPLE, N_TEST_CALLS, N_TRAINING_CALLS
from tests.vision.serving import serving
from tremula.vision.analysis.compare import compare
from tremula.vision.report.reader import open_report

pytestmark = pytest.mark.slow
SMALLEST_PICTURE = 20_000  # bytes: an empty page has fewer


@pytest.fixture(scope="module")
def opened(mnist_folder):
    return pva.openReport(mnist_folder / "training")


@pytest.fixture(scope="module")
def server(mnist_folder):
    with serving(mnist_folder / "training") as served:
        yield served


@pytest.fixture
def page(browser, server, tmp_path, request):
    """The page; when a test is over, its last view is in a picture and nothing went wrong."""
    browser.open(url=server.url)
    yield browser
    picture = tmp_path / f"{request.node.name}.png"
    browser.screenshot(path=str(picture))
    assert picture.stat().st_size > SMALLEST_PICTURE
    assert browser.count(selector=".failure") == 0
    assert browser.problems() == []


@pytest.mark.parametrize("view", CHECKS)
def test_view(page, opened, view):
    """What the view says of the MNIST example is what pva says."""
    CHECKS[view](page, opened)


def test_clicking_through(page, opened):
    """From the summary by clicks alone: views, the most expensive operation, its source line."""
    for view in ("memory", "liveness", "tree", "execution", "host", "operations"):
        page.click(selector=f".rail a[href*='#/{view}']")
        page.settle()
        assert page.hash().startswith(f"#/{view}")
    page.fill(selector=".search", text="convolution")
    page.settle()
    name, cycles, *_ = first_row(page)
    assert name.startswith("model.blocks.1.layers.0/convolution")
    assert whole(cycles) > opened.execution.totalCycles / 50
    page.click(selector=".rows .row")
    page.settle()
    assert "op=" in page.hash()


def test_sources_are_lines_of_the_example(page, opened):
    """Every step comes from a line of the user's file; the page shows the file's name."""
    files = {source.rpartition(":")[0] for source in opened.reader.table("steps")["source"]}
    assert files == {str(EXAMPLE)}
    lines = EXAMPLE.read_text(encoding="utf-8").splitlines()
    used = {int(s.rpartition(":")[2]) for s in opened.reader.table("steps")["source"]}
    assert any("self.layers(x)" in lines[number - 1] for number in used)
    page.show(hash="#/operations?layer=line")
    names = page.texts(selector=".rows .row .cell:nth-child(1)")
    shown = {int(match[1]) for n in names if (match := re.search(r"mnist_poptorch\.py:(\d+)", n))}
    assert shown == used


def test_host(page, mnist_folder):
    """Events, the loss of each call and the device's runs, counted as in the trace."""
    page.show(hash="#/host")
    assert page.count(selector=".lanes canvas") == 1
    rows = [row.split("\n") for row in page.texts(selector=".rows .row")]
    times = {(event, channel): int(n) for event, channel, n, *_ in rows}
    assert times["call", "poptorch.trainingModel"] == N_TRAINING_CALLS
    assert times["run", "poptorch.inferenceModel"] == N_TEST_CALLS
    (path,) = mnist_folder.glob("*.pvti")
    with pva.openTrace(path) as trace:
        assert f"{len(trace.events.pid)} events, 1 trace" in page.texts(selector=".status")
        losses = next(series for series in trace.series if series["graph"] == "loss")
        assert len(losses["value"]) == N_TRAINING_CALLS
        assert losses["value"][-1] < losses["value"][0]


def test_host_and_device_share_a_clock(mnist_folder):
    """Each call of a model is a run of its report's program, at the time of the call."""
    from tremula.vision.trace.beside_report import host_columns

    for model, n_calls in (("training", N_TRAINING_CALLS), ("inference", N_TEST_CALLS)):
        with open_report(mnist_folder / model) as reader:
            facts, columns = host_columns(reader)
            assert len(facts["runs"]) == n_calls
            assert {run["cycles_to"] for run in facts["runs"]} == {reader.info["total_cycles"]}
        runs = facts["labels"].index("run")
        starts = columns["start_us"][columns["label"] == runs].tolist()
        assert {run["from"] for run in facts["runs"]} <= set(starts)


def test_compare(browser, mnist_folder, tmp_path):
    """Training beside inference: totals and causes are those of `tremula compare`."""
    folders = [mnist_folder / "training", mnist_folder / "inference"]
    with open_report(folders[0]) as before, open_report(folders[1]) as after:
        wanted = compare(before, after)
    with serving(*folders) as served:
        browser.open(url=served.url)
        browser.show(hash="#/compare")
        total = wanted["totals"]["total_cycles"]
        notes = browser.texts(selector=".figure span")
        assert notes[0] == f"{total['before']:,} → {total['after']:,}"
        assert len(browser.texts(selector=".causes li")) == len(wanted["causes"])
        for view in (*CHECKS, "host"):
            for mode, n_views in (("beside", 2), ("difference", 1)):
                browser.show(hash=f"#/{view}?mode={mode}")
                assert browser.count(selector=".view") == n_views
                assert browser.count(selector=".failure") == 0
                browser.screenshot(path=str(tmp_path / f"{view}-{mode}.png"))
        assert browser.problems() == []
