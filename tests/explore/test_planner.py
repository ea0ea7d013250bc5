"""The planner: what it tries, chooses, keeps, says and writes."""

import runpy
from dataclasses import replace
from xml.etree import ElementTree as ET

import pytest

import poptorch
from tremula.base.errors import FileLoadError, InvalidOption
from tremula.commands import main
from tremula.explore import planner
from tremula.explore.candidates import MERGES, Candidate
from tremula.explore.explain import explain, plan_table, stage_table
from tremula.explore.picture import plan_svg
from tremula.explore.planner import TrialRunner, plan
from tremula.explore.script import task_of_script
from tremula.explore.trial import TrialOutcome, try_candidate
from tremula.explore.workers import Stopped, WorkerKilled
from tremula.hardware import single, system


def in_this_process(try_candidate, **named) -> TrialRunner:
    """Trials one after another, without workers."""
    return TrialRunner(
        try_candidate=try_candidate,
        results_of=lambda run, jobs, *_: ((job, run(job)) for job in jobs),
        **named,
    )


@pytest.mark.slow
def test_the_fastest_that_fits_is_chosen(small_plan):
    """Every number of stages is tried; the best has the most samples a second of what fits."""
    result, _, told = small_plan
    counts = {outcome.candidate.n_stages for outcome in result.outcomes}
    assert counts == {1, 2}
    fitting = [outcome for outcome in result.outcomes if outcome.fits]
    assert result.best.samples_per_s == max(o.samples_per_s for o in fitting)
    assert all(o.candidate.n_chips == 2 for o in result.outcomes)
    assert told[-1] == 1


def test_accumulation_follows_the_batch(small_plan):
    """A batch of 24 is 3 updates' worth of 4 on two replicas, 6 on one, and fills any pipeline."""
    result, _, _ = small_plan
    for outcome in result.outcomes:
        candidate = outcome.candidate
        assert candidate.accumulation == max(24 // 4 // candidate.n_replicas, 1)
        assert outcome.n_samples == 24


def test_stages_are_cut_where_the_work_is(small_plan):
    """Of two stages the second begins with the wide layers, which have most of the flops."""
    result, _, _ = small_plan
    (by_time, *_) = [o for o in result.outcomes if o.candidate.n_stages == 2]
    assert by_time.candidate.cuts[0].startswith("wide.")
    assert len(by_time.n_bytes) == len(by_time.busy_share) == 2


def test_each_stage_has_a_chip_of_its_own(small_task):
    """What comes before the first cut is on chip 0: with even cuts both chips work."""
    outcome = try_candidate(small_task, Candidate(("layers.2",), 1, accumulation=6))
    assert min(outcome.n_bytes) > 0.3 * max(outcome.n_bytes)
    assert min(outcome.busy_share) > 0.3


def test_nothing_is_begun_that_would_end_too_late(small_task, tmp_path):
    """A search that may take a minute stops before a second trial of forty seconds."""

    now = [0.0]

    def slow(_, candidate):
        n = candidate.n_stages
        now[0] += 40
        return TrialOutcome(
            candidate, True, n * 1e-3, 4, 0.1, (9,) * n, 200, (1.0,) * n, (9,) * n, "", "", 40.0
        )

    runner = in_this_process(slow, clock=lambda: now[0])
    result = plan(small_task, folder=tmp_path, n_workers=1, max_minutes=1, runner=runner)
    assert len(result.outcomes) == 1


def test_recomputation_is_an_option_of_one_stage():
    """Without a pipeline values are kept unless asked for otherwise."""
    assert not Candidate().recomputes
    assert Candidate(("a",)).recomputes
    again = Candidate(recomputes=True)
    assert again.label == "1 stage, recomputed"
    assert planner.options_of(again).Popart.get("autoRecomputation") == 1
    assert '"autoRecomputation", 1' in planner.code_of(again)


def test_results_are_saved_as_they_come(small_task, small_plan):
    """A second search compiles nothing."""
    result, folder, _ = small_plan

    def fail(*_):
        raise AssertionError("a stored candidate was compiled again")

    again = plan(
        small_task, folder=folder, n_workers=1, batch=24, max_candidates=3,
        runner=in_this_process(fail),
    )  # fmt: skip
    assert again.outcomes == result.outcomes


def test_an_interrupt_keeps_what_is_done(small_task, tmp_path):
    """Outcomes that came before Ctrl-C are in the folder."""
    done = []

    def stops_at_second(run, jobs, n_workers, limits):
        for job in jobs:
            if done:
                raise KeyboardInterrupt
            done.append(job)
            yield job, TrialOutcome(job, error="not compiled")

    runner = TrialRunner(results_of=stops_at_second)
    with pytest.raises(KeyboardInterrupt):
        plan(small_task, folder=tmp_path, n_workers=1, runner=runner)
    assert len(list(tmp_path.glob("*.json"))) == 1


def test_a_killed_trial_is_tried_again_alone(small_task, tmp_path):
    """Where two processes were too many for the memory, the search goes on with one."""
    tried = []

    def killed_beside_another(run, jobs, n_workers, limits):
        tried.append(n_workers)
        if n_workers > 1:
            raise WorkerKilled("killed", hint="use fewer workers")
        for job in jobs:
            yield job, TrialOutcome(job, error="not compiled")

    runner = TrialRunner(results_of=killed_beside_another)
    result = plan(small_task, folder=tmp_path, n_workers=2, max_candidates=2, runner=runner)
    assert len(result.outcomes) == 2
    assert tried[:2] == [2, 1]
    assert set(tried[1:]) == {1}


def test_options_of_a_task_need_no_model(small_task, tmp_path):
    """Options that no model has used yet are planned with; others have other results."""

    def failing(_, candidate):
        return TrialOutcome(candidate, error="not compiled")

    runner = in_this_process(failing)
    for seed in (1, 2, 2):
        task = replace(small_task, options=poptorch.Options().randomSeed(seed))
        plan(task, folder=tmp_path, max_candidates=1, runner=runner)
    assert len(list(tmp_path.glob("*.json"))) == 2


def test_what_is_killed_alone_is_left_out(small_task, tmp_path):
    """The search goes on without it, says why, and keeps nothing of it."""

    def killed(run, jobs, n_workers, limits):
        for job in jobs:
            if not job.cuts:
                raise WorkerKilled("killed", hint="use fewer workers")
            yield job, TrialOutcome(job, error="not compiled")

    runner = TrialRunner(results_of=killed)
    result = plan(small_task, folder=tmp_path, n_workers=2, max_candidates=4, runner=runner)
    errors = {bool(o.candidate.cuts): o.error for o in result.outcomes}
    assert "more memory than is free" in errors[False]
    assert errors[True] == "not compiled"
    kept = [path.read_text(encoding="utf-8") for path in tmp_path.glob("*.json")]
    assert kept
    assert not any("memory than is free" in text for text in kept)


def test_what_is_stopped_rules_out_what_is_as_large(small_task, tmp_path):
    """After a trial for which memory did not suffice, none with as many stages is begun."""

    def stopped(run, jobs, n_workers, limits):
        assert limits.n_bytes > 0
        assert 0 < limits.seconds <= 300
        for job in jobs:
            yield job, TrialOutcome(job, error="no") if job.cuts else Stopped("stopped: too large")

    runner = TrialRunner(results_of=stopped)
    result = plan(small_task, folder=tmp_path, n_workers=2, max_candidates=4, runner=runner)
    one_stage = [o for o in result.outcomes if not o.candidate.cuts]
    assert [o.error for o in one_stage] == ["stopped: too large"]
    assert len(list(tmp_path.glob("*.json"))) == len(result.outcomes) - 1


def test_what_is_too_large_to_compile_here_is_not_begun(small_task, tmp_path):
    """With little memory free, optimiser states are not sharded over replicas."""
    candidates = []

    def tried(run, jobs, *_):
        for job in jobs:
            candidates.append(job)
            yield job, TrialOutcome(job, error="not compiled")

    for n_bytes in (2**30, 2**20):
        candidates.clear()
        runner = TrialRunner(results_of=tried, available_bytes=lambda n=n_bytes: n)
        folder = tmp_path / str(n_bytes)
        plan(small_task, folder=folder, n_workers=1, max_candidates=100, runner=runner)
        assert any(c.shards_states for c in candidates) == (n_bytes == 2**30)


def test_table_words_and_picture(small_plan):
    """The table has all candidates, the words name the choice, the picture is SVG."""
    result, _, _ = small_plan
    assert len(plan_table(result).splitlines()) == len(result.outcomes) + 1
    assert "chip" in stage_table(result)
    text = explain(result)
    assert "samples a second" in text
    assert "stage" in text
    assert ET.fromstring(plan_svg(result)).tag.endswith("svg")


def test_the_settings_are_code(small_plan, tmp_path):
    """The written module gives the options of the plan, and places the stages."""
    result, _, _ = small_plan
    cut = next(o for o in result.outcomes if o.candidate.n_stages == 2)
    path = tmp_path / "settings.py"
    path.write_text(planner.code_of(cut.candidate, "why\nso"), encoding="utf-8")
    module = runpy.run_path(str(path))
    options = module["options"]()
    assert options.Training.gradient_accumulation == cut.candidate.accumulation
    assert options.replication_factor == cut.candidate.n_replicas
    assert module["STAGES_BEGIN_AT"] == list(cut.candidate.cuts)


def test_states_leave_where_nothing_fits(small_task, tmp_path):
    """What nearly fits is tried with less memory, sharded states, and states off the chip."""

    def full(_, candidate):
        size = 250 - 60 * candidate.shards_states - 60 * candidate.states_off_chip
        n = candidate.n_stages
        return TrialOutcome(
            candidate, size <= 200, n * 1e-3, 4, 0.1, (size,) * n, 200, (1.0,) * n, (9,) * n
        )

    runner = in_this_process(full)
    result = plan(small_task, folder=tmp_path, max_candidates=40, runner=runner)
    one_stage = [o.candidate for o in result.outcomes if not o.candidate.cuts]
    assert {c.memory_proportion for c in one_stage} == {None, 0.3, 0.15}
    assert {(c.shards_states, c.states_off_chip) for c in one_stage} >= {
        (False, False), (True, False), (True, True),
    }  # fmt: skip
    assert result.best.fits
    assert result.best.candidate.shards_states
    text = planner.code_of(result.best.candidate)
    assert "where.useReplicatedTensorSharding(True)" in text
    options = planner.options_of(result.best.candidate)
    assert options.TensorLocations.location_optimizer["useReplicatedTensorSharding"] == 1


def test_sums_of_the_fastest_are_merged(small_task, tmp_path):
    """Replicas whose gradients are summed in one go are tried last, and chosen if faster."""

    def timed(_, candidate):
        seconds = candidate.n_stages * 1e-3 - 1e-4 * candidate.merges_sums
        n = candidate.n_stages
        return TrialOutcome(candidate, True, seconds, 4, 0.1, (9,) * n, 200, (1.0,) * n, (9,) * n)

    runner = in_this_process(timed)
    result = plan(small_task, folder=tmp_path, max_candidates=40, runner=runner)
    assert result.best.candidate.merges_sums
    assert result.best.candidate.n_replicas == 2
    assert "sums merged" in result.best.candidate.label
    assert "mergeAllReduceCollectives', True" in planner.code_of(result.best.candidate)
    assert result.options.Popart.get(MERGES[0]) is True


def test_what_does_not_fit_is_said():
    """Without a candidate that fits, the nearest is named, with what would help."""
    near = TrialOutcome(Candidate(), n_bytes=(300,), available_bytes=200, seconds=1.0, n_samples=1)
    result = planner.Plan((near,), None, single("bow"))
    assert "needs 150% of its memory" in explain(result)


def test_more_chips_than_there_are(small_task):
    """A plan for more chips than the system has is refused."""
    with pytest.raises(InvalidOption, match="3 chips on 2 x Small Bow, which has 2"):
        plan(small_task, n_chips=3)


SCRIPT = """
import poptorch, torch
options = poptorch.Options().deviceIterations(2)
options.Training.gradientAccumulation(3)
model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 2))
class WithLoss(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = model
    def forward(self, x):
        return (y := self.inner(x)), y.sum()
training = poptorch.trainingModel(WithLoss(), options)
training(torch.ones(30, 4))
raise SystemExit("the planner should have stopped here")
"""


def test_a_script_is_planned_up_to_its_first_call(tmp_path, capsys):
    """`tremula plan` takes the model, options and micro-batch of a script's first call."""
    script = tmp_path / "train.py"
    script.write_text(SCRIPT, encoding="utf-8")
    task = task_of_script(script, [], single("bow", 2))
    assert (task.n_samples, task.is_training) == (5, True)
    assert task.options.device_iterations == 2
    tried = TrialOutcome(Candidate(), True, 1e-3, 60, 0.5, (100,), 200, (0.9,), (10,), "a link")
    runner = in_this_process(lambda _, c: replace(tried, candidate=c, fits=not c.cuts))
    plan(replace(task, system=system("pod4")), n_chips=2, folder=tmp_path / "stored", runner=runner)
    written = [str(tmp_path / name) for name in ("settings.py", "plan.svg")]
    arguments = ["plan", str(script), "--system", "pod4", "--chips", "2", "--explain"]
    arguments += ["--folder", str(tmp_path / "stored"), "--output", written[0], "--svg", written[1]]
    assert main(arguments) == 0
    said = capsys.readouterr().out
    assert "60,000" in said
    assert "On Bow Pod4: the whole model on one chip, 2 times side by side." in said
    assert "def place(model)" in (tmp_path / "settings.py").read_text()
    assert main([*arguments[:2], "--system", "pod5"]) != 0


def test_a_script_without_a_model(tmp_path):
    """A script that calls no PopTorch model cannot be planned."""
    script = tmp_path / "nothing.py"
    script.write_text("print('nothing')", encoding="utf-8")
    with pytest.raises(FileLoadError, match="ended without calling a PopTorch model"):
        task_of_script(script, [], single("bow"))
    with pytest.raises(FileLoadError, match="there is no"):
        task_of_script(tmp_path / "missing.py", [], single("bow"))
