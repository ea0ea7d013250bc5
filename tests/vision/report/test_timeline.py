"""Time as it ran: any range of a run, its pipelines and its critical path."""

import numpy as np
import pytest

import tremula as tr
from tests.vision.programs import CountedSum, RowSum, summing_engine
from tremula.runtime import history, machine
from tremula.vision.analysis.insights import insights
from tremula.vision.analysis.stages import stage_facts
from tremula.vision.analysis.summary import summary
from tremula.vision.analysis.text_views import text_of_view
from tremula.vision.page_data.pack import unpack_pack
from tremula.vision.page_data.time import stages_pack, trace_pack
from tremula.vision.report.reader import open_report
from tremula.vision.report.time_totals import apportioned, machine_split, mean_split
from tremula.vision.report.timeline import tiers, timeline, visits
from tremula.vision.report.write import report_of_engine, report_of_forecast

N_STAGES, N_MICRO_BATCHES = 3, 5
ROWS_OF_STAGE = (2, 8, 3)  # the second stage is the slowest


def pipelined_engine(n_updates: int = 1) -> tr.Engine:
    """Three stages on three chips; an iteration ends with a copy that joins all chips."""
    graph = tr.Graph(tr.IPUModel("bow", n_ipus=N_STAGES, tiles_per_ipu=2).create_device())
    functions, values = [], []
    for stage, n_rows in enumerate(ROWS_OF_STAGE):
        rows = graph.add_variable(tr.FLOAT, [n_rows, 200], f"rows{stage}", mapping=2 * stage)
        totals = graph.add_variable(tr.FLOAT, [n_rows], f"totals{stage}", mapping=2 * stage)
        graph.set_initial_value(rows, 1.0)
        sums = graph.add_compute_set(f"layer{stage}/sums")
        tiles = np.full(n_rows, 2 * stage)
        graph.add_vertices(sums, RowSum, {"row": rows, "total": totals}, tiles=tiles)
        body = tr.Sequence([tr.Execute(sums)], name=f"stage{stage}")
        functions.append(graph.add_function(body))
        values.append(totals)
    register = graph.add_variable(tr.FLOAT, [2], "register", mapping=2)
    shift = tr.Copy(values[0], register, name="shift")
    update = tr.Execute(sums_of_update(graph, values[2]))
    pipeline = tr.Sequence(name="pipeline")
    for time in range(N_MICRO_BATCHES + N_STAGES - 1):
        active = [s for s in range(N_STAGES) if 0 <= time - s < N_MICRO_BATCHES]
        pipeline.add(*(tr.Call(functions[s]) for s in reversed(active)), shift)
    whole = tr.Repeat(n_updates, tr.Sequence(pipeline, update))
    return tr.Engine(graph, [whole], {"tremula.threads": 1}).load()


def sums_of_update(graph, row):
    total = graph.add_variable(tr.FLOAT, [1], "update/total", mapping=4)
    update = graph.add_compute_set("update/sum")
    graph.add_vertex(update, RowSum, {"row": row, "total": total[0]}, tile=4)
    return update


@pytest.fixture(scope="module")
def pipelined(tmp_path_factory):
    """A report of two updates."""
    engine = pipelined_engine(2)
    engine.run()
    with open_report(report_of_engine(engine, tmp_path_factory.mktemp("pipeline"))) as reader:
        yield reader


def test_entries_carry_stage_and_micro_batch(pipelined):
    """Each stage visits each micro-batch once in an update, in order, on its own chip."""
    ran = pipelined.trace
    for stage in range(N_STAGES):
        mine = ran.stage == stage
        assert ran.micro_batch[mine].tolist() == [*range(N_MICRO_BATCHES)] * 2
        busy = (ran.end - ran.start)[mine].sum(axis=0) > 0
        assert busy.tolist() == [chip == stage for chip in range(N_STAGES)]
    assert (ran.micro_batch[ran.stage < 0] == -1).all()
    _, columns = unpack_pack(trace_pack(pipelined, 0))
    assert columns["stage"].tolist() == ran.stage.tolist()
    assert columns["micro_batch"].tolist() == ran.micro_batch.tolist()


def test_stages_overlap_and_passes_fill_and_flush(pipelined):
    """Stages work at the same time; a pass fills until the last begins, flushes after the first."""
    facts, columns = unpack_pack(stages_pack(pipelined))
    assert [stage["ipu"] for stage in facts["stages"]] == [0, 1, 2]
    assert len(facts["passes"]) == 2
    visits = {n[6:]: c for n, c in columns.items() if n.startswith("visit_")}
    for number, one in enumerate(facts["passes"]):
        mine = visits["pass"] == number
        assert one["n_micro_batches"] == N_MICRO_BATCHES
        first, last = (mine & (visits["stage"] == s) for s in (0, N_STAGES - 1))
        assert one["fill_end"] == visits["begin"][last].min()
        assert one["flush_begin"] == visits["end"][first].max()
        assert one["begin"] < one["fill_end"] < one["flush_begin"] < one["end"]
    same = visits["micro_batch"][visits["stage"] == 0][1]
    begins = [
        int(visits["begin"][(visits["stage"] == s) & (visits["micro_batch"] == same - s)][0])
        for s in (0, 1)
    ]
    assert begins[0] == begins[1]  # stage 0 works on the second while stage 1 works on the first


def test_chips_wait_for_the_slowest_stage(pipelined):
    """Waits name the chip and the stage that came last; advice names it, with the user's line."""
    columns = unpack_pack(stages_pack(pipelined))[1]
    is_main = (columns["wait_for_stage"] == 1) & (columns["wait_ipu"] != 1)
    lengths = columns["wait_end"] - columns["wait_begin"]
    assert lengths[is_main].sum() > lengths.sum() / 2
    assert (columns["wait_for_ipu"][columns["wait_for_stage"] >= 0]
            == columns["wait_for_stage"][columns["wait_for_stage"] >= 0]).all()  # fmt: skip
    facts = stage_facts(pipelined)["stages"]
    assert max(facts, key=lambda stage: stage["awaited_cycles"])["stage"] == 1
    advice = {item["rule"]: item for item in insights(pipelined)}
    assert advice["uneven_stages"]["evidence"]["stage"] == 1
    assert "test_timeline.py" in advice["uneven_stages"]["text"]
    total = pipelined.info["total_cycles"]
    assert all(0 <= item["saves_cycles"] <= total for item in advice.values())


@pytest.mark.parametrize("n_updates", [1, 2, 9])
def test_folded_loops_have_the_same_clock(n_updates, tmp_path, monkeypatch):
    """Folded or not, a run ends at the same cycle, and its phases are the same on every chip."""
    executable = pipelined_engine(n_updates).executable
    with open_report(report_of_forecast(executable, tmp_path / "unfolded")) as unfolded:
        monkeypatch.setattr(timeline, "MOST_UNFOLDED", 1)
        with open_report(report_of_forecast(executable, tmp_path / "folded")) as folded:
            assert folded.info["is_folded"]
            assert folded.trace.times.sum() == unfolded.n_entries
            assert folded.trace.end[-1].tolist() == unfolded.trace.end[-1].tolist()
            for name in ("steps", "ipus", "programs"):
                for column, values in unfolded.table(name).items():
                    assert np.array_equal(values, folded.table(name)[column]), (name, column)


def test_a_range_is_walked_from_its_checkpoint(tmp_path, monkeypatch):
    """Entries of any range are those of the whole, although only checkpoints are stored."""
    monkeypatch.setattr(timeline, "ENTRIES_PER_PART", 64)
    engine = summing_engine(n_times=100).load()
    engine.run()
    with open_report(report_of_engine(engine, tmp_path)) as reader:
        whole = reader.entries(0, reader.n_entries)
        for first, last in ((0, 1), (63, 65), (130, 131), (199, 200), (64, 128)):
            part = reader.entries(first, last)
            assert part.step.tolist() == whole.step[first:last].tolist()
            assert part.start.tolist() == whole.start[first:last].tolist()


def test_functions_stand_under_each_call(pipelined):
    """A call's node has what that call took, and the program's root has the total."""
    nodes = pipelined.table("programs")
    is_call = np.array([kind == "Call" for kind in nodes["kind"]])
    children = np.flatnonzero(np.isin(nodes["parent"], np.flatnonzero(is_call)))
    assert len(children) == is_call.sum() == N_STAGES * N_MICRO_BATCHES
    assert nodes["total_cycles"][children].tolist() == nodes["total_cycles"][is_call].tolist()
    assert nodes["total_cycles"][nodes["parent"] < 0].sum() == pipelined.info["total_cycles"]


def test_where_time_goes_is_a_mean_that_adds_up():
    """Means over chips are whole numbers, as near as can be, and add up to the total."""
    chips = np.array([[5, 0, 0, 0, 1, 4], [0, 3, 1, 1, 1, 4], [2, 2, 2, 2, 2, 0]])
    result = mean_split(chips)
    assert sum(result.values()) == 10
    assert (np.abs(np.array(list(result.values())) - chips.mean(axis=0)) < 1).all()
    assert apportioned(7, np.array([1, 0, 1, 1])).tolist() in ([3, 0, 2, 2], [2, 0, 3, 2])
    assert apportioned(0, np.array([1, 2])).tolist() == [0, 0]
    assert apportioned(5, np.zeros(3)).tolist() == [0, 0, 0]


def test_runs_without_record_are_estimated(tmp_path):
    """What was not recorded has a total, too; it is divided as busy cycles are, and says so."""
    engine = summing_engine(n_times=3).load()
    engine.run()
    engine.clock.recorder.miss()
    engine.clock.recorder.runs.clear()
    with open_report(report_of_engine(engine, tmp_path)) as reader:
        total = engine.report().total_cycles
        assert reader.info["estimated_cycles"] == total == sum(machine_split(reader).values())
        assert reader.table("steps")["total_cycles"].sum() == total


@pytest.mark.parametrize("most_events", [20, 10_000])
def test_long_records_come_in_parts_and_end(tmp_path, monkeypatch, most_events):
    """The interpreter hands its record over whenever it is full; beyond the limit, totals stand."""
    monkeypatch.setattr(machine, "EVENTS_PER_RETURN", 8)
    monkeypatch.setattr(history, "MOST_EVENTS", most_events)
    engine = summing_engine(n_times=50, vertex=CountedSum).load()
    engine.run()
    total = engine.report().total_cycles
    with open_report(report_of_engine(engine, tmp_path)) as reader:
        assert (reader.info["estimated_cycles"] > 0) == (most_events == 20)
        assert reader.table("steps")["total_cycles"].sum() == total
        assert sum(machine_split(reader).values()) == total
        assert (reader.n_entries < 100) == (most_events == 20)
        said = "Not recorded in order" in text_of_view("summary", summary(reader), 0)
        assert said == (most_events == 20)


@pytest.mark.parametrize("n_few", [0, 7])
def test_python_and_native_walks_agree(n_few, tmp_path, monkeypatch):
    """A run walked as native code, or begun in Python, leaves the report of Python alone."""
    for twin in (tiers.WALK, tiers.WALK_BACK, visits.NOTE):
        monkeypatch.setattr(twin, "_compiled", None)
    executable = pipelined_engine(9).executable
    with open_report(report_of_forecast(executable, tmp_path / "python")) as expected:
        assert tiers.WALK._compiled is None
        waits = stages_pack(expected)
        monkeypatch.setattr(tiers, "FEW_ENTRIES", n_few)
        with open_report(report_of_forecast(executable, tmp_path / "native")) as native:
            assert tiers.WALK._compiled is not None
            assert stages_pack(native) == waits
            assert native.trace.end.tolist() == expected.trace.end.tolist()
            for name in ("steps", "ipus", "programs"):
                for column, values in expected.table(name).items():
                    assert np.array_equal(values, native.table(name)[column]), (name, column)
