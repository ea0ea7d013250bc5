"""`tremula fit`: constants found again, what rows cannot tell, outliers, and the template."""

import csv
import json
import runpy
import sys
import tomllib
from dataclasses import replace

import numpy as np
import pytest

from tremula.base.errors import PoplarError
from tremula.commands import main
from tremula.hardware import chip, load_chip
from tremula.validate.fit import fit, fit_text, read_measurements, write_template
from tremula.validate.fit.measurements import Measurement
from tremula.validate.fit.prediction import FITTABLE
from tremula.validate.fit.recosting import RecostableLowering
from tremula.validate.fit.template import rows_text
from tremula.validate.timing import lowered_program, timed_by
from tremula.validate.workloads.fit_programs import (
    PROGRAMS,
    measured_row,
    modelled_value,
    run_program,
    template_rows,
)
from tremula.validate.workloads.table import find_workload

BOW = chip("bow")
CHANGED = {
    "sync_cycles": 150, "exchange_latency_cycles_per_column": 9, "one_word_copy_cycles": 25,
    "exchange_latency_cycles_per_row": 2, "on_tile_copy_setup_cycles": 200, "clock_hz": 2e9,
    "exchange_bytes_per_cycle": 5.0, "ipu_link_gbytes_per_s": 12.0, "n_sends_in_flight": 70,
    "exchange_latency_cycles_across": 30, "exchange_latency_cycles": 31, "host_latency_s": 5e-6,
    "exchange_fragment_cycles": 2, "external_sync_cycles": 500, "compute_set_start_cycles": 40,
}  # fmt: skip
ONE_CHIP = [row for row in template_rows(BOW) if row.n_ipus <= 2]


def rows_on(true, rows=ONE_CHIP, noise=0.0, outliers=()):
    """Rows as a chip would give them, with noise; those named are three times too slow."""
    random, result = np.random.default_rng(5), []
    for row in rows:
        value = modelled_value(row, true) * float(np.exp(noise * random.standard_normal()))
        measured = measured_row(row, BOW, value * (3 if row.id in outliers else 1))
        result.append(Measurement(measured, find_workload(measured), "", 0.0))
    return result


@pytest.mark.parametrize("row", template_rows(BOW), ids=lambda row: row.id)
def test_a_compiled_program_is_costed_again_exactly(row):
    """The time on another chip equals that of a program built for it, all constants changed."""
    other, programs = BOW.replace(**CHANGED), []

    def timer(of, n_ipus, build):
        programs.append(RecostableLowering(lowered_program(of, n_ipus, build)))
        return programs[-1].timing_on(of)

    with timed_by(timer):
        run_program(measured_row(row, BOW), BOW)
    assert (
        programs[0].timing_on(other).cycles == run_program(measured_row(row, other), other).cycles
    )


def test_constants_are_found_again_and_others_said_to_be_unknown():
    """With 2 % noise, told constants are within 5 %, and what rows do not show stays."""
    changes = {"clock_hz": 1.4e9, "sync_cycles": 156, "exchange_bytes_per_cycle": 5.2}
    changes |= {"on_tile_copy_setup_cycles": 202, "host_latency_s": 6e-6}
    true = BOW.replace(**changes)
    result = fit(rows_on(true, noise=0.02), BOW)
    for name in changes:
        one = result.of(name)
        assert one.status == "fitted"
        assert one.value == pytest.approx(getattr(true, name), rel=0.05)
        assert one.half_width < 0.1
    for name in ("ipu_link_gbytes_per_s", "n_sends_in_flight"):  # no row has a link
        assert result.of(name).status == "left"
        assert getattr(result.chip, name) == getattr(BOW, name)
    assert result.median("held_out") < 0.1 < result.median("before")
    assert {one.name for one in result.estimates} == set(FITTABLE)


def test_a_confounded_pair_is_said_to_be_one():
    """A link's rate and its efficiency are only known as a product: one is fitted, both named."""
    rows = [row for row in template_rows(BOW) if row.n_ipus <= 4]
    result = fit(rows_on(BOW.replace(ipu_link_gbytes_per_s=11.0), rows, 0.005), BOW)
    rate = result.of("ipu_link_gbytes_per_s")
    assert (rate.status, rate.partners) == ("combined", ("ipu_link_efficiency",))
    assert rate.value == pytest.approx(11, rel=0.03)
    assert result.of("ipu_link_efficiency").status == "left"
    assert result.chip.ipu_link_efficiency == BOW.ipu_link_efficiency


def test_single_wrong_rows_do_not_decide():
    """Two rows that are three times too slow are named, and constants are right all the same."""
    wrong = ("word-near", "message-4k")
    result = fit(rows_on(BOW.replace(sync_cycles=90), noise=0.01, outliers=wrong), BOW)
    assert result.chip.sync_cycles == pytest.approx(90, rel=0.05)
    assert {row.measurement.row.id for row in result.rows if row.is_outlier} == set(wrong)
    assert "outlier: word-near" in fit_text(result)


def test_the_same_chip_is_confirmed_and_stays():
    """Rows of the chip itself change none of its constants."""
    result = fit(rows_on(BOW, noise=0.01), BOW, name="again")
    assert replace(result.chip, name="Bow") == BOW
    assert result.of("sync_cycles").status == "confirmed"


def test_rows_that_are_mostly_noise_change_nothing():
    """Rows that are off by a factor tell no constant, which the report says."""
    result = fit(rows_on(BOW, noise=0.7), BOW)
    assert all(one.status == "left" and one.value == one.before for one in result.estimates)
    assert "these rows tell no constant well enough" in fit_text(result)


def test_the_command_writes_a_chip_file_with_provenance(tmp_path, capsys):
    """From a CSV file to a chip file: fitted constants say so, comments have the report."""
    values = tuple(modelled_value(row, BOW.replace(sync_cycles=90)) for row in ONE_CHIP)
    (tmp_path / "rows.csv").write_text(rows_text(ONE_CHIP, BOW, values))
    out = tmp_path / "mine.toml"
    assert main(["fit", str(tmp_path / "rows.csv"), "--from", "bow", "-o", str(out), "--json"]) == 0
    record = json.loads(capsys.readouterr().out)
    assert record["constants"]["sync_cycles"]["status"] == "fitted"
    assert record["constants"]["ipu_link_latency_s"]["status"] == "left"
    table = tomllib.loads(out.read_text())["sync_cycles"]
    assert (table["value"], table["provenance"]) == (90, "fitted")
    assert "±" in table["source"]
    assert "# not identifiable" in out.read_text()
    assert load_chip(out).facts["n_tiles"].provenance == "stated"


def test_the_template_runs(tmp_path, capsys, monkeypatch):
    """25 programs and a CSV file; a program prints the time that the fit predicts for it."""
    assert main(["fit", "--template", str(tmp_path / "all")]) == 0
    rows = list(csv.DictReader((tmp_path / "all" / "rows.csv").read_text().splitlines()))
    assert len(rows) == len({row["id"] for row in rows}) == 25
    assert {row["workload"] for row in rows} <= set(PROGRAMS)
    monkeypatch.syspath_prepend(tmp_path / "all")
    monkeypatch.setattr(sys, "argv", ["program"])
    wanted = {row.id: modelled_value(row, BOW) for row in template_rows(BOW)}
    capsys.readouterr()
    for name in ("word-near", "chase-16", "host-word", "chip-word"):
        runpy.run_path(str(tmp_path / "all" / f"{name}.py"), run_name="__main__")
        printed = capsys.readouterr().out.split(",")
        assert printed[0] == name
        assert float(printed[1]) == pytest.approx(wanted[name], rel=1e-6)
    with pytest.raises(PoplarError, match="exists already"):
        write_template(tmp_path / "all", BOW)


WRONG = {
    "workload": ("snyc", "did you mean 'sync'"),
    "unit": ("furlongs", "unknown unit 'furlongs'"),
    "value": ("-3", "the value is '-3', expected a number above 0"),
    "num_ipus": ("none", "num_ipus is 'none'"),
    "error": ("0", "the error is '0'"),
    "chip": ("GC2", "measured on 'GC2'"),
    "parameters": ("source=0", "has no parameter 'target'"),
}


@pytest.mark.parametrize("column", WRONG)
def test_wrong_rows(tmp_path, column):
    """Each says the line, what is wrong and what to do."""
    value, message = WRONG[column]
    rows = list(csv.reader(rows_text(ONE_CHIP, BOW, (1.0,) * len(ONE_CHIP)).splitlines()))
    line = 5 if column == "parameters" else 2  # of `send`, which has some
    rows[line - 1][rows[0].index(column)] = value
    with (tmp_path / "rows.csv").open("w", newline="") as file:
        csv.writer(file).writerows(rows)
    with pytest.raises(PoplarError) as error:
        read_measurements(tmp_path / "rows.csv", BOW)
    assert message in str(error.value)


def test_too_few_rows_and_missing_columns(tmp_path, capsys):
    """A template without values, a file without a column, and no file at all are errors."""
    path = tmp_path / "rows.csv"
    path.write_text(rows_text(ONE_CHIP, BOW))
    assert main(["fit", str(path)]) == 1
    assert "has 0 rows with a value, expected at least 5" in capsys.readouterr().err
    path.write_text("id,workload,value\nx,sync,1\n")
    assert main(["fit", str(path)]) == 1
    assert "lacks parameters, unit" in capsys.readouterr().err
    assert main(["fit"]) == 1
    assert "--template" in capsys.readouterr().err
    assert main(["fit", str(path), "--from", "bwo"]) == 1
    assert "did you mean 'bow'" in capsys.readouterr().err
