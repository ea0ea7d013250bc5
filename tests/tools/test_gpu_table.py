"""The table of GPU figures: cases as processes, turns, limits, what is written as it goes."""

import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from benchmarks import Figure
from benchmarks.gpu_turns import wait_until_short
from tests.variables import ROOT
from tools.gpu_table.cases import Case, Section, chosen_cases
from tools.gpu_table.record import (
    MEASURED,
    WAITING,
    Record,
    Row,
    merged,
    page,
    read_record,
)
from tools.gpu_table.run import Limits, Run
from tremula.base.errors import InvalidOption

# What a case imports, and how it writes a figure.
PRELUDE = """
import os, subprocess, sys, time
from pathlib import Path
from benchmarks import Figure, write_json
from benchmarks.gpu_turns import alone
result, folder = map(Path, sys.argv[1:])
def report(*values):
    figures = [Figure.of(f"figure-{i}", v, "s", ">= 0") for i, v in enumerate(values)]
    write_json(figures, result)
"""


def case(name: str, limit_s: float = 30, gib: float = 1) -> Case:
    return Case(Section("Section", "suite", "measurement", gib, limit_s), name)


def run_of(folder: Path, programs: dict[Case, str], seconds: float = 60, n_jobs: int = 8) -> Record:
    """The record of a run whose cases are programs."""
    record = Record("machine", "command", [Row("Section", case.name) for case in programs])

    def command(case: Case, result: Path) -> list[str]:
        return [sys.executable, "-c", PRELUDE + programs[case], str(result), str(folder)]

    Run(list(programs), record, Limits(n_jobs, 10, seconds), folder).run(command)
    return record


@pytest.fixture(autouse=True)
def imports(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cases import as the run does."""
    monkeypatch.setenv("PYTHONPATH", f"{ROOT / 'src'}:{ROOT}")


TICKING = """
def tick(name):
    with (folder / name).open("a") as file:
        while not (folder / "done").exists():
            print(time.monotonic(), file=file, flush=True)
            time.sleep(0.005)
if not os.fork():
    os.setsid()  # as processes of compilers are
    tick("child")
    os._exit(0)
tick("itself")
os.wait()
"""
MEASURING = """
while not ((folder / "itself").exists() and (folder / "child").exists()):
    time.sleep(0.01)
time.sleep(0.1)
with alone(), alone():
    began = time.monotonic()
    time.sleep(1.5)
    ended = time.monotonic()
deadline = time.monotonic() + 20  # until both go on, however busy this computer is
while time.monotonic() < deadline and not all(
    float((folder / name).read_text().split("\\n")[-2]) > ended for name in ("itself", "child")
):
    time.sleep(0.01)
(folder / "done").touch()
report(began, ended)
"""


def test_others_are_stopped_while_one_measures(tmp_path: Path):
    """Neither a case nor a process that it has started runs in a turn; its clock stops, too."""
    record = run_of(tmp_path, {case("ticks"): TICKING, case("measures"): MEASURING})
    ticks, measures = record.rows
    assert (ticks.status, measures.status) == (MEASURED, MEASURED)
    began, ended = (figure.value for figure in measures.figures)
    for name in ("itself", "child"):
        times = [float(line) for line in (tmp_path / name).read_text().split()]
        assert any(time < began for time in times), name
        assert any(time > ended for time in times), name
        assert not [time for time in times if began <= time <= ended], name
    assert ticks.seconds < measures.seconds - 0.7


def test_a_case_loses_only_what_it_has_not_measured(tmp_path: Path):
    """Figures of a case that fails, hangs, or ends in its turn stay; others are measured."""
    programs = {
        case("fails"): "report(1); raise SystemExit('reason')",
        case("hangs", limit_s=2): "report(2)\nwith alone(): time.sleep(60)",
        case("dies"): "report(3)\nwith alone(): os.kill(os.getpid(), 9)",
        case("fine"): "with alone(): report(4, 5)",
    }
    record = run_of(tmp_path, programs)
    status = {row.name: row.status for row in record.rows}
    assert status == {
        "fails": "failed with exit code 1",
        "hangs": "stopped after 2 s",
        "dies": "ended by signal 9",
        "fine": MEASURED,
    }
    values = {row.name: [figure.value for figure in row.figures] for row in record.rows}
    assert values == {"fails": [1], "hangs": [2], "dies": [3], "fine": [4, 5]}
    assert "reason" in (tmp_path / "log.txt").read_text()
    assert read_record(tmp_path / "table.json") == record


def test_a_run_ends_in_time_with_what_it_has(tmp_path: Path):
    """Cases that run are ended, others not started; figures are in the record before the end."""
    programs = {case("long"): "report(1)\ntime.sleep(60)", case("later"): "report(2)"}
    record = run_of(tmp_path, programs, seconds=1.5, n_jobs=1)
    first, second = record.rows
    assert (first.status, len(first.figures)) == ("stopped at the end of the run's time", 1)
    assert (second.status, second.figures) == (WAITING, [])


def test_cases_wait_for_memory(tmp_path: Path):
    """A case that needs more than is left runs later; one that needs more than all, alone."""
    text = "report(time.monotonic())\ntime.sleep(0.5)\nreport(time.monotonic(), time.monotonic())"
    cases = [case("six", gib=6), case("five", gib=5), case("two", gib=2), case("vast", gib=99)]
    record = run_of(tmp_path, dict.fromkeys(cases, text))
    spans = {row.name: [figure.value for figure in row.figures] for row in record.rows}
    assert max(spans["six"][0], spans["two"][0]) < min(spans["six"][-1], spans["two"][-1])
    assert spans["five"][0] > spans["six"][-1]
    assert spans["vast"][0] > max(spans[name][-1] for name in ("six", "five", "two"))


def figure(name: str, value: float, note: str = "") -> Figure:
    return Figure.of(name, value, "× compile", ">= 2", note)


def test_the_page_shows_the_best_mode_and_what_is_missing():
    """Of several modes the least figure counts; a case that is not complete says why."""
    rows = [
        Row(
            "Forces", "a", MEASURED, 1, [figure("x:default", 2.5, "n"), figure("x:best", 1.5, "m")]
        ),
        Row(
            "Forces", "b", "stopped after 9 s", 9, [figure("y", 3)], ["torch.compile cannot train"]
        ),
    ]
    lines = list(page(Record("On a GPU", "command", rows)))
    assert "| x | 1.5 | × compile | >= 2 | **no** | default 2.5, best 1.5; m |" in lines
    assert "| y | 3 | × compile | >= 2 | yes |  |" in lines
    assert "b: stopped after 9 s; torch.compile cannot train." in lines


def test_a_later_run_adds_what_an_earlier_one_lacks():
    """Measured rows stay; others are those of the later run; new ones come last."""

    def record(**status: str) -> Record:
        return Record("machine", "command", [Row("S", n, s) for n, s in status.items()])

    both = merged(record(a=MEASURED, b="failed"), record(b=MEASURED, a="failed", c=MEASURED))
    assert [(row.name, row.status) for row in both.rows] == [
        ("a", MEASURED),
        ("b", MEASURED),
        ("c", MEASURED),
    ]


@pytest.mark.parametrize(
    ("only", "holds"),
    [
        ([], lambda names: "gpu-epoch" in names and "gpu-forces:egnn-32" in names),
        (["gpu-large"], lambda names: set(names) >= {"gpu-large:vit-b", "gpu-large:resnet50"}),
        (["gpu:gin-128"], lambda names: names == ["gpu:gin-128"]),
    ],
)
def test_cases_are_those_of_the_suites(only: list[str], holds: Callable[[list[str]], bool]):
    """All, those of a measurement, or one; each is declared once."""
    names = [case.name for case in chosen_cases(only)]
    assert len(set(names)) == len(names)
    assert holds(names)


def test_an_unknown_case_is_an_error():
    """The nearest name is suggested."""
    with pytest.raises(InvalidOption, match="gpu-large:vit-b"):
        chosen_cases(["gpu-large:vit"])


def test_a_turn_begins_when_the_gpu_is_free():
    """Kernels that other processes have launched delay each probe: it waits until none is late."""
    delays = [*[2e-3] * 3, 0.0, 2e-3]

    def probe() -> None:
        time.sleep(delays.pop(0) if delays else 0)

    assert wait_until_short(probe) > 5e-3
    assert not delays
