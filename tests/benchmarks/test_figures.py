"""Bars, figures, suites and the ways to measure."""

import json
import math
import time
from types import SimpleNamespace

import pytest

from benchmarks import (
    SUITES,
    Bar,
    Figure,
    Suite,
    load_suite,
    measure,
    peak_rss_of,
    print_figures,
    ratio,
    read_json,
    write_json,
    written,
)
from tremula.base.errors import InvalidOption, RuntimeFailure


@pytest.mark.parametrize(
    ("bar", "reached", "missed"),
    [
        ("<= 1.2", 1.2, 1.21),
        (">= 100000", 100000, 99999),
        ("< 3", 2.9, 3),
        ("> 3", 3.1, 3),
        ("== 3996", 3996, 3997),
        ("3717.6 ± 0.5 %", 3736.1, 3736.3),
        ("<= 5", -1e9, math.nan),
    ],
)
def test_bars(bar, reached, missed):
    """Each form of bar holds up to its end and not beyond, and never for NaN."""
    assert Bar.parse(bar).holds(reached)
    assert not Bar.parse(bar).holds(missed)


def test_a_bad_bar_is_refused():
    """A bar that cannot be read says how to write one."""
    with pytest.raises(InvalidOption, match="cannot read the bar 'about 3' of a figure"):
        Figure.of("x", 1.0, "s", "about 3")


def small_suite() -> Suite:
    suite = Suite("small")

    @suite.measurement("speed")
    def speed():
        yield Figure.of("ours ÷ reference", 1.25, "ratio", "<= 1.2")

    @suite.measurement("size")
    def size():
        yield Figure.of("vertices", 1000000, "vertices", ">= 100000")

    return suite


def test_a_suite_measures_in_order_and_tells_progress(capsys):
    """Figures come in the order declared; the table goes to stdout, progress to stderr."""
    measured = []
    print_figures(small_suite().measure(), measured)
    out, err = capsys.readouterr()
    assert [figure.holds for figure in measured] == [False, True]
    rows = out.splitlines()
    assert rows[1].split() == ["ours", "÷", "reference", "1.25", "ratio", "<=", "1.2", "NO"]
    assert rows[2].split() == ["vertices", "1000000", "vertices", ">=", "100000", "yes"]
    assert "1/2 speed …" in err
    assert "2/2 size …" in err


def test_only_some(capsys):
    """`only` picks measurements by name; an unknown one suggests the nearest at once."""
    assert [figure.name for figure in small_suite().measure(["size"])] == ["vertices"]
    with pytest.raises(InvalidOption, match=r"no measurement 'seize'.\n  try: did you mean 'size'"):
        small_suite().measure(["seize"])


def suite_with_cases() -> Suite:
    suite = Suite("cases")

    @suite.measurement_of("speed", ("small", "endless"))
    def speed(case):
        yield Figure.of(f"speed-{case}", 2, "s", "<= 5", note=f"{case} ran")
        while case == "endless":
            time.sleep(0.01)

    @suite.measurement("size")
    def size():
        yield Figure.of("size", 1, "bytes", "<= 5")

    return suite


def test_cases_are_measured_in_the_order_that_is_chosen(capsys):
    """A case is NAME:CASE; without one all cases are measured. Notes follow the verdict."""
    names = ["size", "speed:small"]
    print_figures(suite_with_cases().measure(names), measured := [])
    assert [figure.name for figure in measured] == ["size", "speed-small"]
    assert capsys.readouterr().out.splitlines()[2].endswith("yes (small ran)")
    assert measured[1].record()["note"] == "small ran"
    with pytest.raises(InvalidOption, match="did you mean 'speed:small'"):
        suite_with_cases().measure(["speed:smal"])


def test_a_case_that_takes_too_long_is_left(capsys):
    """Figures before the limit count, a line says what was left, and the next one is measured."""
    figures = suite_with_cases().measure(["speed", "size"], limit_s=0.2)
    assert [figure.name for figure in figures] == ["speed-small", "speed-endless", "size"]
    assert "speed:endless: not measured, it takes more than 0.2 s" in capsys.readouterr().err


def test_two_measurements_of_one_name_are_refused():
    """A suite refuses a second measurement of the same name."""
    with pytest.raises(InvalidOption, match="suite 'small' has two measurements named 'size'"):
        small_suite().measurement("size")(list)


def test_unknown_suites_suggest_the_nearest():
    """A misspelt suite is answered with the nearest."""
    with pytest.raises(InvalidOption, match=r"no bench suite 'cor'.\n  try: did you mean 'core'"):
        load_suite("cor")


@pytest.mark.parametrize("name", SUITES)
def test_every_suite_loads(name):
    """Each row of the table of suites names a module with a suite of that name."""
    assert load_suite(name).name == name


def test_json_has_one_record_per_figure(tmp_path):
    """The JSON file holds name, value, unit, bar and holds of each figure."""
    figure = Figure.of("10⁶ slices", 0.5, "s", "<= 5")
    write_json([figure, figure], tmp_path / "figures.json")
    records = json.loads((tmp_path / "figures.json").read_text(encoding="utf-8"))
    expected = {"name": "10⁶ slices", "value": 0.5, "unit": "s", "bar": "<= 5", "holds": True}
    assert records == [expected, expected]
    write_json([], tmp_path / "empty.json")
    assert json.loads((tmp_path / "empty.json").read_text(encoding="utf-8")) == []


def test_figures_are_written_as_they_come(tmp_path):
    """When a figure is there, the file has it: a run that is killed afterwards loses none."""
    path = tmp_path / "figures.json"
    figures = [Figure.of(name, 1, "s", "<= 5") for name in ("first", "second")]
    for number, figure in enumerate(written(figures, path), 1):
        assert figure is figures[number - 1]
        assert read_json(path) == figures[:number]


@pytest.mark.parametrize("of", ["median", "minima"])
def test_ratio_compares_times(of, monkeypatch):
    """By a clock that the work itself advances, three times the work has the ratio three."""
    clock = SimpleNamespace(now=0.0)
    monkeypatch.setattr(measure, "time", SimpleNamespace(perf_counter=lambda: clock.now))

    def work(seconds):
        clock.now += seconds

    measured = ratio(lambda: work(0.75), lambda: work(0.25), rounds=5, of=of)
    assert (measured.value, measured.ours_s, measured.reference_s) == (3, 0.75, 0.25)


def test_a_median_outlives_a_hiccup(monkeypatch):
    """One slow round moves neither the median nor the best times."""
    clock = SimpleNamespace(now=0.0)
    monkeypatch.setattr(measure, "time", SimpleNamespace(perf_counter=lambda: clock.now))
    delays = iter([1.0, 1.0, 1.0, 50.0] + [1.0] * 20)

    def ours():
        clock.now += next(delays)

    def reference():
        clock.now += 1.0

    assert ratio(ours, reference, rounds=5).value == 1


def test_peak_memory_of_a_process():
    """Memory and output are those of the code, not those of the process that asks."""
    ballast = bytearray(120_000_000)
    small = peak_rss_of("print('small')")
    large = peak_rss_of("x = bytearray(50_000_000)\nfor i in range(0, len(x), 4096): x[i] = 1")
    assert small.output == "small\n"
    assert small.peak_bytes < len(ballast) // 2
    assert 40e6 < large.peak_bytes - small.peak_bytes < 80e6
    assert small.time_s > 0


def test_failing_code_is_an_error():
    """Code that fails in its process raises here, with its traceback."""
    with pytest.raises(RuntimeFailure, match=r"(?s)failed with exit code 1.*ZeroDivisionError"):
        peak_rss_of("1 / 0")


def test_the_geometric_suite_has_its_measurements():
    """`tremula bench geometric` measures what it says."""
    suite = load_suite("geometric")
    assert {"feeding", "packing", "tile-compile", "host", "gpu", "layers"} <= set(
        suite.measurements
    )
