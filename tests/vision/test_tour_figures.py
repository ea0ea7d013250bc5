"""Sentences with figures in docs/vision-tour.md are true of the reports they talk of.

MNIST's are compared with the report that other tests of the page make from the same program; those
of other runs need these runs, so they are part of `make test-wide`.
"""

import os
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from tests.sources import ROOT
from tests.vision.page.conftest import mnist_folder
from tremula.vision.analysis.compare import compare
from tremula.vision.analysis.insights import insights
from tremula.vision.analysis.operations import operation_columns
from tremula.vision.analysis.summary import liveness
from tremula.vision.analysis.whatif import parse_sweep, whatif_report
from tremula.vision.report.reader import ReportReader, open_report
from tremula.vision.report.time_totals import total_cycles
from tremula.vision.report.timeline import timeline

__all__ = ["mnist_folder"]  # a fixture of the page's tests

TOUR = ROOT / "docs" / "vision-tour.md"
FENCED = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
# Names, links and keys, and figures of the page itself.
NAMES = re.compile(
    r"\]\([^)]*\)|\b(MNIST|GPT-\d|Alt|H200)|×998 folded|^\| `1`.*$|`0`", re.MULTILINE
)
EXAMPLES = ROOT / "examples"


def percent(share: float) -> str:
    return f"{100 * share:.0f}"


def advice(reader: ReportReader, rule: str) -> dict:
    return next(one for one in insights(reader) if one["rule"] == rule)


def lowering(reader: ReportReader) -> tuple[str, str]:
    """MiB of the largest variable at the peak, and by how much the peak falls without it."""
    rows = liveness(reader)["live_at_peak"]
    largest = max(rows, key=lambda row: row["n_bytes"])
    return tuple(f"{largest[name] / 2**20:.1f}" for name in ("n_bytes", "frees"))  # pyright: ignore[reportReturnType]


def convolve_tiles(reader: ReportReader) -> str:
    """Tiles of the second convolution, forward: what the picture selects."""
    steps = reader.table("steps")
    step = next(i for i, path in enumerate(steps["path"]) if path.endswith("_default_1/Convolve"))
    return f"{steps['n_active_tiles'][step]:,}"


def speed(reader: ReportReader) -> str:
    """How much faster with twice the clock."""
    now, twice = whatif_report(
        reader, None, parse_sweep([f"clock={2 * reader.target['clock_hz']:.0f}"])
    )
    return f"{now.microseconds / twice.microseconds:.1f}"


def share_of(reader: ReportReader, *names: str) -> str:
    """Percent of the cycles of operations whose names end so."""
    columns = operation_columns(reader)
    ends = [re.sub(r"(_default|_scalar|_tensor)?(_\d+)*$", "", name.rpartition("/")[2])
            for name in columns["name"]]  # fmt: skip
    mine = np.isin(ends, names)
    return percent(columns["path_cycles"][mine].sum() / total_cycles(reader))


def partials(reader: ReportReader) -> str:
    """Percent that the largest variable, partial sums of index_add, has of the fullest step."""
    facts = liveness(reader)
    largest = facts["live_at_peak"][0]
    assert "index_add" in largest["name"]
    return percent(largest["n_bytes"] / facts["peak_temporary_bytes"])


@dataclass(frozen=True)
class Claim:
    """A pattern of the tour with its numbers as groups, and what a report says they are."""

    pattern: str
    values: Callable[[ReportReader], tuple[str, ...]]


MNIST = (
    Claim(
        r"(\d+) % of the\s+time goes into transfers with the host",
        lambda r: (percent(advice(r, "host_bound")["evidence"]["share"]),),
    ),
    Claim(
        r"(\d+) steps compute on\s+less than half of the tiles",
        lambda r: (re.match(r"\d+", advice(r, "idle_tiles")["title"])[0],),
    ),
    Claim(r"has ([\d.]+) MiB, but\s+without it the peak would fall by ([\d.]+) MiB", lowering),
    Claim(r"runs on ([\d,]+) of the tiles", lambda r: (convolve_tiles(r),)),
    Claim(r"Here twice the clock is only ([\d.]+) times as fast", lambda r: (speed(r),)),
    Claim(r"on one Bow with ([\d,]+) tiles", lambda r: (f"{r.n_tiles:,}",)),
)
GIN = (
    Claim(
        r"([\d,]+) cycles, ([\d.]+) ms on a Bow",
        lambda r: (
            f"{round(total_cycles(r), -3):,}",
            f"{1e3 * total_cycles(r) / r.target['clock_hz']:.1f}",
        ),
    ),
    Claim(r"together (\d+) % of the time", lambda r: (share_of(r, "index_select", "gather"),)),
    Claim(r"neighbours, takes (\d+) %", lambda r: (share_of(r, "scatter_add"),)),
    Claim(r"(\d+) % of the temporary bytes at the fullest step", lambda r: (partials(r),)),
)
COMPARED = (
    r"take (\d+) % fewer cycles for the same (\d+) images.*?they need (\d+) % more memory on the"
    r"\s+fullest tile"
)
# Limits that the source states.
LIMITS = (
    (r"A run of more than ([\d,]+) entries", f"{timeline.MOST_ENTRIES:,}"),
    (r"fluent for ([\d,]+ steps on [\d,]+ tiles)", "100,000 steps on 1,472 tiles"),
    (r"batches of (\d+),", "16"),
    (r"batches of (32 in place of four of 16)", "32 in place of four of 16"),
)


def tour() -> str:
    return FENCED.sub("", TOUR.read_text(encoding="utf-8"))


def check(claims: tuple[Claim, ...], reader: ReportReader) -> None:
    wrong = {}
    for claim in claims:
        match = re.search(claim.pattern, tour())
        assert match, claim.pattern
        values = claim.values(reader)
        if match.groups() != values:
            wrong[claim.pattern] = values
    assert not wrong, "the tour's figures are these in the report"


@pytest.mark.slow
def test_figures_of_mnist(mnist_folder):
    """What the tour says of its first report."""
    with open_report(mnist_folder / "training") as reader:
        check(MNIST, reader)


def test_limits_are_those_of_the_source():
    """Limits and settings that the tour states."""
    for pattern, value in LIMITS:
        assert re.search(pattern, tour())[1] == value


def test_no_other_figure():
    """Every number in the tour's prose is compared here, or is part of a name or a key."""
    text = tour()
    patterns = [claim.pattern for claim in (*MNIST, *GIN)] + [COMPARED, *(p for p, _ in LIMITS)]
    for pattern in patterns:
        assert re.search(pattern, text, re.DOTALL), pattern
        text = re.sub(pattern, "", text, flags=re.DOTALL)
    assert re.findall(r".*\d.*", NAMES.sub("", text)) == []


def run_example(folder: Path, *words: str) -> Path:
    """The report that a command of the tour leaves, with fewer images for what repeats."""
    command = [sys.executable, "-m", "tremula.commands", "run", "--report", str(folder), *words]
    subprocess.run(command, check=True, capture_output=True, env=os.environ, timeout=600)
    return folder / "training"


@pytest.mark.wide
@pytest.mark.slow
def test_figures_of_other_runs(tmp_path):
    """The graph network's figures, and those of the comparison of two batch sizes."""
    molecules = ("--molecules", "600", "--epochs", "1")
    with open_report(
        run_example(tmp_path / "gin", str(EXAMPLES / "geometric/gin_qm9.py"), *molecules)
    ) as reader:
        check(GIN, reader)
    few = ("--subset", "--images", "64", "--test-images", "50", "--test-batch-size", "50")
    program = str(EXAMPLES / "poptorch/mnist_poptorch.py")
    paths = [
        run_example(
            tmp_path / str(n), program, *few, "--batch-size", str(n),
            "--device-iterations", str(64 // n),
        )
        for n in (16, 32)
    ]  # fmt: skip
    with open_report(paths[0]) as before, open_report(paths[1]) as after:
        totals: dict = compare(before, after)["totals"]  # pyright: ignore[reportAssignmentType]
        values = tuple(
            percent(abs(totals[name]["difference"]) / totals[name]["before"])
            for name in ("total_cycles", "memory_largest")
        )
    fewer, images, more = re.search(COMPARED, tour(), re.DOTALL).groups()
    assert (fewer, more, images) == (*values, "64")
