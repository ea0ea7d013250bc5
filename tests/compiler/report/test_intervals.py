"""Intervals of predicted times: the rule, the families of a program, and where they are shown."""

import numpy as np
import pytest

import tremula as tr
from tremula.compiler.report.intervals import (
    EXCHANGE,
    LINKS,
    OTHER,
    WHOLE,
    LogResidual,
    Residuals,
    cycle_interval,
    family_of_codelet,
    shipped_residuals,
)
from tremula.poplibs import poplin, popops
from tremula.validate.calibration import calibrated, coverage, n_covered
from tremula.vision.analysis.summary import execution_totals
from tremula.vision.analysis.text_views import text_of_view
from tremula.vision.report.write import write_report


def residuals(**spreads):
    """Two hundred rows of each family, of two sources, with these standard deviations."""
    random = np.random.default_rng(1)
    rows = [
        LogResidual(family.replace("_", " "), f"source {i % 2}", f"{family}-{i}", float(value))
        for family, spread in spreads.items()
        for i, value in enumerate(random.normal(0, spread, 200))
    ]
    return Residuals(tuple(rows), 1.0)


def test_the_interval_of_a_family_is_that_of_its_residuals():
    """Nine in ten of new rows of each family are within, however wide it is."""
    table, random = residuals(reduce=0.3, gather=0.05), np.random.default_rng(2)
    for family, spread in (("reduce", 0.3), ("gather", 0.05)):
        low, high = table.of_family(family)
        ratios = np.exp(random.normal(0, spread, 2000))
        assert np.mean((ratios >= low) & (ratios <= high)) == pytest.approx(0.9, abs=0.07)


def test_independent_families_partly_cancel():
    """Two equal families are more certain than one of both, steps of one family are not."""
    table = residuals(reduce=0.2, gather=0.2, whole_models=1e-3)
    alone, both = table.factors({"reduce": 100}), table.factors({"reduce": 50, "gather": 50})
    assert both.high - 1 == pytest.approx((alone.high - 1) / np.sqrt(2), rel=0.15)
    assert table.factors({"reduce": 1000}) == alone


def test_mixtures_are_as_uncertain_as_whole_models():
    """A program of many families has at least their share of the whole models' interval."""
    table = residuals(reduce=0.01, gather=0.01, whole_models=0.4)
    whole, both = table.of_family(WHOLE), table.factors({"reduce": 50, "gather": 50})
    assert both.high - 1 == pytest.approx(0.5 * (whole.high - 1), rel=0.05)
    assert both.low < 1 < both.high


def test_calibration_leaves_each_source_out():
    """The scale is the smallest at which intervals hold 90 % of rows of other sources."""
    rows = residuals(reduce=0.1).rows
    shifted = [r if r.source == "source 0" else LogResidual(*r_values(r, 3)) for r in rows]
    fitted = calibrated(shifted)
    assert coverage(fitted) >= 0.9
    assert fitted.scale > 1.5  # the other source is three times as wide
    assert coverage(Residuals(fitted.rows, fitted.scale / 1.06)) < 0.9


def r_values(row, factor):
    return row.family, row.source, row.row, row.log_ratio * factor


def test_shipped_intervals_hold_85_to_95_percent_of_rows():
    """Of all rows of the shipped validation, each source left out in turn."""
    shipped = shipped_residuals()
    assert len(shipped.rows) > 200
    assert 0.85 <= n_covered(shipped.rows, shipped) / len(shipped.rows) <= 0.95


def test_codelets_belong_to_the_family_they_were_compared_with():
    """By name, and those that no row is about to none of them."""
    assert family_of_codelet("poplin::ConvPartialAmp<half,float>") == "dense mat-mul"
    assert family_of_codelet("popsparse::StaticSparseDenseElementWise<half>").startswith("static")
    assert family_of_codelet("popops::MultiSlice<unsigned int>") == "gather"
    assert family_of_codelet("popops::Op1D<cos(_1),float,V>") == OTHER


def product_report():
    graph = tr.Graph(tr.IPUModel("bow", tiles_per_ipu=8).create_device())
    program = tr.Sequence()
    left = graph.add_variable(tr.FLOAT, [32, 64], "left", mapping="linear")
    right = graph.add_variable(tr.FLOAT, [64, 32], "right", mapping="linear")
    result = poplin.mat_mul(graph, left, right, program)
    popops.exp_in_place(graph, result, program)
    engine = tr.Engine(graph, program)
    engine.load(tr.IPUModel("bow", tiles_per_ipu=8).create_device())
    engine.run()
    return engine.report()


def test_a_report_has_the_interval_of_its_families(tmp_path):
    """Families add up to the total of one chip; file, text and pva show the same interval."""
    report = product_report()
    families = report.cycles_by_family
    assert sum(families.values()) == report.total_cycles
    assert {"dense mat-mul", EXCHANGE, OTHER} <= set(families)
    assert LINKS not in families
    low, high = report.cycle_interval
    assert low <= report.total_cycles <= high
    assert (low, high) == cycle_interval(report.total_cycles, families)
    shown = report.pva().execution.cycleInterval
    assert (shown.min, shown.max) == (low, high)
    from tremula.vision.analysis.summary import summary
    from tremula.vision.report.reader import open_report

    write_report(tmp_path / "profile.pop", *report._origin)
    with open_report(tmp_path) as reader:
        assert execution_totals(reader)["cycle_interval"] == (low, high)
        text = text_of_view("summary", summary(reader), 10)
    assert f"nine times in ten: {low:,} to {high:,} cycles" in text


def test_energy_has_an_interval_of_its_rows():
    """Joules and seconds say nothing of each other; energy is uncertain both ways."""
    report = product_report()
    low, high = report.energy.interval
    assert low < report.energy.total < high
    assert low * high == pytest.approx(report.energy.total**2)
    only_times = Residuals(tuple(r for r in shipped_residuals().rows if r.family != "energy"), 1.0)
    assert only_times.of_family("reduce") == Residuals(shipped_residuals().rows, 1.0).of_family(
        "reduce"
    )
