"""Errors, medians and ranks of predictions."""

from dataclasses import replace

import pytest

from tremula.compiler.report.intervals import shipped_residuals
from tremula.validate import (
    PUBLISHED,
    Checked,
    MeasuredRow,
    NoWorkload,
    SavedResults,
    Score,
    rank_correlation,
    read_rows,
    validate,
)
from tremula.validate.calibration import ShippedResults, coverage_text, residual_of
from tremula.validate.outcome import Outcome, predict
from tremula.validate.workloads.table import ModelledValue, find_workload


def row(name="a", value=1.0, unit="us", workload="local memory pointer chase", chip="GC2"):
    return MeasuredRow(name, chip, 1, workload, {}, "latency", unit, value)


def checked(pairs, unit="us"):
    return [Checked(row(str(i), m, unit), "f", p) for i, (p, m) in enumerate(pairs)]


def test_errors_are_relative_to_the_measurement():
    """Median and worst are of absolute errors; the worst row is named."""
    score = Score.of(checked([(1.1, 1.0), (0.5, 1.0), (2.0, 2.0)]))
    assert score.median == pytest.approx(0.1)
    assert (score.worst, score.worst_id, score.n_rows) == (0.5, "1", 3)


def test_ranks_within_units():
    """Order is compared among rows of one unit; equal values share a rank."""
    assert rank_correlation(checked([(1, 10), (2, 20), (3, 30)])) == pytest.approx(1)
    assert rank_correlation(checked([(1, 30), (2, 20), (3, 10)])) == pytest.approx(-1)
    mixed = checked([(1, 10), (2, 20)]) + checked([(5e9, 1), (6e9, 2)], "GB/s")
    assert rank_correlation(mixed) == pytest.approx(1)


def test_metrics_in_units():
    """A time, a rate, a share of the peak and a plain value, each in the row's unit."""
    model = ModelledValue(1000, 1e9, n_bytes=4000, n_flops=2e6, peak_bytes_per_s=8e9)
    units = ("cycles", "us", "GB/s", "TFLOP/s", "%")
    assert [model.in_unit(u) for u in units] == pytest.approx([1000, 1, 4, 2, 50])
    assert ModelledValue(0, 1, value=7.0).in_unit("elements") == 7
    with pytest.raises(NoWorkload, match="gives no figure in 'TFLOP/s'"):
        ModelledValue(1000, 1e9).in_unit("TFLOP/s")


def test_equal_rows_are_computed_once():
    """Rows of one kind share a prediction, whatever was measured."""
    told = []
    outcome = validate([row("a"), row("b", 2.0)], progress=lambda *step: told.append(step))
    assert len(told) == 1
    assert outcome.checked[0].predicted == outcome.checked[1].predicted


def test_results_are_kept_as_they_come(tmp_path):
    """A second run computes nothing that a file has, also if its last line was cut off."""
    told, path = [], tmp_path / "results.jsonl"

    def run():
        told.clear()
        progress = lambda _number, _total, row: told.append(row.id)  # noqa: E731
        result = validate([row()], progress=progress, saved=SavedResults(path))
        return [one.predicted for one in result.checked]

    first = run()
    assert told == ["a"]
    path.write_text(path.read_text(encoding="utf-8") + '["cut off', encoding="utf-8")
    assert run() == first
    assert told == []


def test_other_families_as_shipped(tmp_path):
    """Only rows of the families that are computed take time; all others have shipped residuals."""
    shipped = {residual.row: residual for residual in shipped_residuals().rows}
    computed = "memory and exchange"
    rows = [one for one in read_rows(PUBLISHED) if one.id in shipped]
    rows = [one for one in rows if shipped[one.id].family != computed][::9]
    outcome = validate(rows, saved=ShippedResults({computed}))
    assert {one.row.unit for one in outcome.checked} >= {"TFLOP/s", "us"}  # rates, and times
    assert [residual_of(one).log_ratio for one in outcome.checked] == pytest.approx(
        [shipped[one.id].log_ratio for one in rows], abs=1e-4
    )
    told, path = [], tmp_path / "results.jsonl"
    for _ in range(2):
        saved = ShippedResults({computed}, SavedResults(path))
        validate([row(), rows[0]], progress=lambda *step: told.append(step[2].id), saved=saved)
    assert told == ["a"]


@pytest.mark.parametrize(
    ("unknown", "reason"),
    [
        (row(workload="BERT training"), "it is a whole model"),
        (row(workload="knitting"), "no tile program was written"),
        (row(chip="IPU"), "chip 'IPU' does not name one generation"),
        (row(value=None), "its value is not one number"),
        (
            MeasuredRow("a", "GC2", 0, "x", {}, "m", "us", 1.0),
            "its number of chips is not a number",
        ),
    ],
)
def test_rows_without_a_workload_say_why(unknown, reason):
    """A row that cannot be predicted is named with its reason, not left out."""
    with pytest.raises(NoWorkload, match=reason):
        find_workload(unknown)
    assert reason in validate([unknown]).unchecked[0].reason


def test_a_row_that_cannot_be_built_is_named():
    """A parameter that is missing, or a size that is impossible, does not stop the others."""
    lacking = row("a", workload="gather one word from n tiles to one tile")
    outcome = validate([lacking, row("b")])
    assert [one.row.id for one in outcome.checked] == ["b"]
    assert "row 'a' has no parameter 'source_tiles'" in outcome.unchecked[0].reason


def test_large_models_are_asked_for(monkeypatch):
    """What takes minutes is left out, with a reason, unless it is requested."""
    large = row("gpt", 11.0, "s", "GPT 117M training", "GC200")
    one = replace(find_workload(large), predict=lambda *_: ModelledValue(2.0, 1.0))
    monkeypatch.setattr("tremula.validate.score.find_workload", lambda _: one)
    (left_out,) = validate([large]).unchecked
    assert "--large" in left_out.reason
    (result,) = validate([large], with_large=True).checked
    assert result.predicted == 2


def test_validate_says_how_many_rows_intervals_hold():
    """Of rows of each source, intervals from all other sources; rates count as times do."""
    rows = [row for row in read_rows(PUBLISHED) if row.value][:20]
    right = [Checked(row, "reduce", row.value) for row in rows]
    wrong = [Checked(row, "reduce", 10 * row.value) for row in rows]
    assert "hold 20 of 20 rows (100.0%" in coverage_text(right)
    assert "hold 0 of 20 rows (0.0%" in coverage_text(wrong)


def test_outcomes_say_what_they_took():
    """Time and memory of a prediction, and where an error came from, are saved with its result."""
    workload = find_workload(read_rows(PUBLISHED)[0])
    fitting = predict(workload, read_rows(PUBLISHED)[0])
    assert fitting.seconds > 0
    assert fitting.gbytes > 0
    assert Outcome.from_record(fitting.as_record()).gbytes == pytest.approx(
        fitting.gbytes, abs=0.01
    )

    def broken(*_):
        raise KeyError("height")

    failed = predict(replace(workload, predict=broken), read_rows(PUBLISHED)[0])
    assert "KeyError" in failed.reason
    assert "broken" in Outcome.from_record(failed.as_record()).trace
