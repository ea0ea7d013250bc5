"""Every view of a report adds up to what the engine says."""

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tests.runtime.random_graphs import make_world, program
from tests.vision.programs import CountedSum, summing_engine
from tests.vision.report.sums import assert_sums
from tremula import Engine, Sequence
from tremula.vision.report.reader import open_report
from tremula.vision.report.time_totals import (
    PHASES,
)
from tremula.vision.report.timeline import timeline
from tremula.vision.report.write import report_of_engine, report_of_forecast

LARGE = settings(
    max_examples=12,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=[
        HealthCheck.too_slow,
        HealthCheck.data_too_large,
        HealthCheck.large_base_example,
    ],
)


@pytest.mark.slow
@settings(LARGE)
@given(data=st.data())
def test_any_program(data, tmp_path_factory):
    """Loops, branches and calls on chips that wait for each other: all views have one total."""
    n_ipus, n_replicas = (data.draw(st.sampled_from(n)) for n in ((1, 2, 4), (1, 2)))
    world = make_world(data.draw, n_replicas, n_ipus)
    steps = [program(world, 2) for _ in range(data.draw(st.integers(2, 4)))]
    engine = Engine(world.graph, [Sequence(steps)], {"tremula.threads": 1}).load()
    for _ in range(data.draw(st.integers(1, 4))):
        engine.run()
    if not engine.report().has_run:
        return
    path = report_of_engine(engine, tmp_path_factory.mktemp("report"))
    with open_report(path) as reader:
        assert_sums(reader, engine)
        live = reader.matrix("live").rows(0, reader.n_steps)
        # A call counts all memory of its function at once, so a peak may be at no step.
        assert (live.max(axis=0, initial=0) <= reader.table("tiles")["temporary"]).all()


@pytest.mark.parametrize("n_times", [0, 1, 3, 20_000])
def test_long_loops_are_folded(n_times, tmp_path, monkeypatch):
    """A loop too long to unroll has a first, a last and one other iteration; nothing is lost."""
    monkeypatch.setattr(timeline, "MOST_UNFOLDED", 10_000)
    engine = summing_engine(n_times=n_times).load()
    engine.run()
    with open_report(report_of_engine(engine, tmp_path)) as reader:
        assert reader.n_entries == (6 if n_times > 5_000 else 2 * n_times)
        assert reader.info["is_folded"] == (n_times > 5_000)
        assert reader.has_run == (n_times > 0)
        if n_times:
            assert_sums(reader, engine)
            assert reader.trace.end[-1].tolist() == engine.report().cycles_of_chip.tolist()


def test_the_peak_of_a_tile_is_a_step(report):
    """Without functions, the fullest moment of a tile is the largest of its steps."""
    live = report.matrix("live").rows(0, report.n_steps)
    assert np.array_equal(live.max(axis=0), report.table("tiles")["temporary"])
    assert report.table("steps")["temporary_bytes"].tolist() == live.sum(axis=1).tolist()


@pytest.mark.slow
def test_counted_vertices(tmp_path):
    """Steps whose cycles are counted while they run have the counted cycles on each tile."""
    engine = summing_engine(vertex=CountedSum).load()
    engine.run()
    assert engine.clock.execution().counted
    with open_report(report_of_engine(engine, tmp_path)) as reader:
        assert_sums(reader, engine)


def test_several_chips(tmp_path):
    """Chips that wait for each other: the time of each is what it did and what it waited."""
    engine = summing_engine(n_ipus=2, n_tiles=4).load()
    engine.run()
    with open_report(report_of_engine(engine, tmp_path)) as reader:
        assert reader.n_ipus == 2
        assert_sums(reader, engine)
        assert reader.trace.end[-1].tolist() == engine.report().cycles_of_chip.tolist()


def test_a_forecast_gives_the_same_report(engine, report, tmp_path):
    """A report without a run has the cycles a run has."""
    with open_report(report_of_forecast(engine.executable, tmp_path)) as foretold:
        for name in ("steps", "tiles", "ipus", "variables"):
            for column, values in report.table(name).items():
                assert np.array_equal(values, foretold.table(name)[column]), (name, column)


def test_windows_pool_many_steps(tmp_path):
    """Levels of a long trace hold the same sums as its rows, at any zoom."""
    from tremula.vision.report.file import ReportFile, blocks_of
    from tremula.vision.report.reader import NEEDED_FACTS, NEEDED_SIZES
    from tremula.vision.report.schema import pool_of_level

    rows = np.random.default_rng(0).integers(0, 70_000, (5_000, 8))
    path = tmp_path / "profile.pop"
    with ReportFile(path) as file:
        for name, pooling in (("sums", "sum"), ("largest", "max")):
            blocks = blocks_of(lambda first, last: rows[first:last], len(rows))
            file.matrix(name, blocks, 8, "cycles", pooling=pooling, by_rows=pooling == "max")
        own = {"application": "tremula report", "schema_version": [2, 0], "n_steps": 5_000}
        file.facts("info", {**dict.fromkeys(NEEDED_FACTS, 0), **own})
        sizes = {"tiles_per_ipu": 8, "n_tiles": 8}
        file.facts("target", {**dict.fromkeys(NEEDED_SIZES, 1), **sizes})
    with open_report(path) as reader:
        assert reader.matrix("sums").levels == (5_000, 625, 157)
        for name, reduce in (("sums", np.add), ("largest", np.maximum)):
            for level, n in enumerate(reader.matrix(name).levels):
                pool = pool_of_level(level)
                wanted = reduce.reduceat(rows, np.arange(0, len(rows), pool), axis=0)
                assert np.array_equal(reader.matrix(name).rows(0, n, level), wanted)
        assert np.array_equal(
            reader.matrix("sums").take(np.array([4_999, 0, 70])), rows[[4_999, 0, 70]]
        )


@pytest.fixture(scope="module")
def long_report(tmp_path_factory):
    """900 steps on 8 tiles, all of them different: a report with three levels."""
    from tests.vision.sample_reports import long_executable

    path = report_of_forecast(long_executable(900, 8), tmp_path_factory.mktemp("long"))
    with open_report(path) as reader:
        yield reader


@pytest.mark.slow
@given(first=st.integers(-5, 905), n=st.integers(0, 905), max_rows=st.integers(1, 1000))
def test_any_window(long_report, first, n, max_rows):
    """At any zoom, rows cover what was asked for, are few enough, and are exact sums or maxima."""
    for name, reduce in (("compute", np.add), ("exchange", np.add), ("live", np.maximum)):
        window = long_report.window(name, first, first + n, max_rows)
        assert len(window.cells) <= max_rows
        assert len(window.edges) == len(window.cells) + 1
        if not len(window.cells):
            assert min(900, first + n) <= max(0, first)
            continue
        assert window.edges[0] <= max(0, first)
        assert window.edges[-1] >= min(900, first + n)
        rows = long_report.matrix(name).rows(0, 900)[window.edges[0] : window.edges[-1]]
        wanted = reduce.reduceat(rows, window.edges[:-1] - window.edges[0], axis=0)
        assert np.array_equal(window.cells, wanted)


def test_a_long_report_adds_up(long_report):
    """Phases over all entries are the chip's time on every tile, and levels are used."""
    assert long_report.stored_pool == 8
    assert long_report.matrix("trace_compute").levels == (113,)
    for max_rows in (1, 10, 100, 1000):
        result = long_report.phases(0, 900, max_rows)
        together = sum(getattr(result, name) for name in (*PHASES, "idle")).sum(axis=0)
        assert (together == long_report.info["total_cycles"]).all()
