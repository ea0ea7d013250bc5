"""What chips of a pipeline wait for: the chip that comes last, and what it does meanwhile."""

import numpy as np
import pytest

import tremula as tr
from tests.vision.programs import RowSum
from tremula.compiler.report.phases import step_phases
from tremula.vision.analysis.stages import stage_facts
from tremula.vision.report.reader import open_report
from tremula.vision.report.timeline import timeline, visits
from tremula.vision.report.timeline.script import routes_of
from tremula.vision.report.timeline.timeline import end_of
from tremula.vision.report.write import report_of_engine, report_of_forecast

N_TILES, SHORTER = 2, 40


def random_pipeline(random, n_chips, is_training, n_batches, n_updates=1):
    """Stages over chips, there and back if it trains; work of each stage at random."""
    chip_of = [*range(n_chips), *(range(n_chips - 2, -1, -1) if is_training else ())]
    device = tr.IPUModel("bow", n_ipus=n_chips, tiles_per_ipu=N_TILES).create_device()
    graph, n_stages = tr.Graph(device), len(chip_of)
    # One chip has clearly the most work, as pipelines that need advice do.
    work = random.integers(400, 1600, n_stages)
    slow = random.integers(n_stages)
    work[slow] *= 3
    results = [on_chip(graph, f"stage{s}/result", chip_of[s], 4) for s in range(n_stages)]
    inputs = [on_chip(graph, f"stage{s}/input", chip_of[s], 4) for s in range(n_stages)]
    stages = [
        graph.add_function(
            tr.Sequence(
                [sums(graph, f"stage{s}", chip_of[s], work[s], results[s])], name=f"stage{s}"
            )
        )
        for s in range(n_stages)
    ]
    pipeline = tr.Sequence(name="pipeline")
    for t in range(n_batches + n_stages - 1):
        active = range(max(0, t - n_batches + 1), min(t, n_stages - 1) + 1)
        pipeline.add(*(tr.Call(stages[s]) for s in reversed(active)))
        moving = [s for s in active if s + 1 < n_stages]
        if moving:
            taken = tr.concat([results[s] for s in moving])
            pipeline.add(tr.Copy(taken, tr.concat([inputs[s + 1] for s in moving]), name="shift"))
    total = on_chip(graph, "total", 0, 4)
    update = sums(graph, "update", 0, int(random.integers(100, 900)), total)
    body = tr.Sequence([pipeline, update], name="main")
    program = tr.Repeat(n_updates, body) if n_updates > 1 else body
    return tr.Engine(graph, [program], {"tremula.threads": 1})


def on_chip(graph, name, chip, n):
    result = graph.add_variable(tr.FLOAT, [n], name)
    for i in range(n):
        graph.set_tile_mapping(result[i], chip * N_TILES + i % N_TILES)
    return result


def sums(graph, name, chip, n_columns, totals):
    rows = graph.add_variable(tr.FLOAT, [4, int(n_columns)], f"{name}/rows")
    tiles = chip * N_TILES + np.arange(4) % N_TILES
    for row, tile in enumerate(tiles.tolist()):
        graph.set_tile_mapping(rows[row], tile)
    compute_set = graph.add_compute_set(f"{name}/sums")
    graph.add_vertices(compute_set, RowSum, {"row": rows, "total": totals}, tiles=tiles)
    return tr.Execute(compute_set)


def recosted_total(reader, stage, cycles):
    """The total if every step of a stage computed this many cycles less."""
    executable = reader.executable()
    costs, steps = executable.analysis.costs, reader.table("steps")
    phases = step_phases(costs, reader.by_ipu("compute"))
    compute = phases[..., 0]
    mine = (steps["stage"] == stage)[:, None] & (compute > 0)
    assert compute[mine].min() > cycles
    compute[mine] -= cycles
    routes = routes_of(executable)[0]
    script = routes.script(phases, costs.joins, costs.takes_part, np.zeros(reader.n_steps, bool))
    return end_of(script, reader.timeline.runs, reader.timeline.events)


def waiting_by_overlap(reader):
    """int64[n_stages + 2]: the slow way. Each wait, entry by entry of the chip that comes last."""
    ran, n_stages = reader.trace, int(reader.info["timeline"]["n_stages"])
    inside = np.array(["pipeline" in path.split("/") for path in reader.table("steps")["path"]])
    kind = np.where(ran.stage >= 0, ran.stage, np.where(inside[ran.step], -1, -2))
    blame, ends = np.zeros(n_stages + 2, np.int64), np.zeros(reader.n_ipus, np.int64)

    def meet(at):
        last = int(ends.argmax())
        for begin in ends.tolist():
            start, end = ran.start[:at, last], ran.end[:at, last]
            overlap = np.minimum(end, ends[last]) - np.maximum(start, begin)
            np.add.at(blame, kind[:at], np.maximum(overlap, 0))

    for i in range(reader.n_entries):
        if ran.last[i] >= 0 or (ran.start[i] > ends).any():
            meet(i)
        ends = ran.end[i].copy()
    meet(reader.n_entries)
    return blame


def slowest_chip(facts):
    per_chip = {}
    for stage in facts["stages"]:
        per_chip[stage["ipu"]] = per_chip.get(stage["ipu"], 0) + stage["cycles_per_visit"]
    return max(per_chip, key=per_chip.get)


@pytest.mark.parametrize("seed", range(6))
def test_waits_are_blamed_on_what_the_awaited_chip_does(seed, tmp_path):
    """Over random pipelines blame is all waiting; less work in the most blamed stage helps most.

    Stages that share the slowest chip delay every micro-batch alike, and differ only while the
    pipeline fills and flushes; so in training the most blamed one may be behind by those turns.
    """
    random = np.random.default_rng(seed)
    n_chips, is_training = int(random.integers(2, 5)), bool(seed % 2)
    n_stages = 2 * n_chips - 1 if is_training else n_chips
    engine = random_pipeline(random, n_chips, is_training, 3 * n_stages)
    path = report_of_forecast(engine.executable, tmp_path)
    with open_report(path) as reader:
        facts, blame = stage_facts(reader), reader.column("stages.blame")
        assert blame.sum(axis=0).tolist() == reader.table("ipus")["waiting"].tolist()
        assert blame.sum(axis=1).tolist() == waiting_by_overlap(reader).tolist()
        awaited = [stage["awaited_cycles"] for stage in facts["stages"]]
        rest = facts["awaited_between_stages"] + facts["awaited_outside"]
        assert sum(awaited) + rest == facts["waiting"] == reader.table("ipus")["waiting"].sum()
        saved = [
            reader.info["total_cycles"] - recosted_total(reader, stage, SHORTER)
            for stage in range(n_stages)
        ]
        slack = (n_stages - 1) * SHORTER if is_training else 0
        assert saved[int(np.argmax(awaited))] >= max(saved) - slack > 0
        assert facts["stages"][int(np.argmax(awaited))]["ipu"] == slowest_chip(facts)


def test_blame_of_repeated_updates_and_runs(tmp_path, monkeypatch):
    """Folded loops and equal runs are blamed as if every turn were walked; room is made."""
    monkeypatch.setattr(visits, "_FIRST_PIECES", 1)
    executable = random_pipeline(np.random.default_rng(1), 3, True, 5, n_updates=9).executable
    with open_report(report_of_forecast(executable, tmp_path / "unfolded")) as reader:
        wanted = reader.column("stages.blame")
        assert wanted.sum(axis=0).tolist() == reader.table("ipus")["waiting"].tolist()
    monkeypatch.setattr(timeline, "MOST_UNFOLDED", 1)
    with open_report(report_of_forecast(executable, tmp_path / "folded")) as reader:
        assert reader.info["is_folded"]
        assert reader.column("stages.blame").tolist() == wanted.tolist()
    engine = random_pipeline(np.random.default_rng(2), 2, False, 4).load()
    for _ in range(3):
        engine.run()
    for most in (1, 1 << 20):
        monkeypatch.setattr(timeline, "MOST_UNFOLDED", most)
        with open_report(report_of_engine(engine, tmp_path / str(most))) as reader:
            blame = reader.column("stages.blame")
            assert blame.sum(axis=0).tolist() == reader.table("ipus")["waiting"].tolist()
