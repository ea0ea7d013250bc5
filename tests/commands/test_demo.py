"""`tremula demo` trains MNIST and says what a machine would take."""

import re
from pathlib import Path

import pytest

import pva
from tremula.commands import main
from tremula.frontends.poptorch.logging import LOGGER
from tremula.vision.trace.beside_report import host_columns


@pytest.mark.slow
def test_the_demo_tells_accuracy_and_cycles(tmp_path, capsys):
    """On 2,400 digits: accuracy above 80 %, modelled images per second, and a report.

    What it sets for itself, the level of the log, is as it was afterwards."""
    level_before = LOGGER.level
    assert main(["demo", "--subset", "--images", "2400", "--report", str(tmp_path)]) == 0
    printed = capsys.readouterr().out
    accuracy = float(re.search(r"Accuracy on 1,000 test images: ([\d.]+)%", printed)[1])
    assert accuracy > 80
    assert re.search(r"[\d,]+ images per second in training on a bow", printed)
    report = tmp_path / "profile.pop"
    assert f"The report is in {report}" in printed
    opened = pva.openReport(str(report))
    assert opened.execution.totalCycles > 0
    sources = {source.rpartition(":")[0] for source in opened.reader.table("steps")["source"]}
    assert {Path(source).name for source in sources} == {"classifiers.py", "demo.py"}
    facts, _ = host_columns(opened.reader)
    assert len(facts["runs"]) == 3  # calls of 50 batches of 16
    assert LOGGER.level == level_before


def test_the_tile_demo_needs_no_data(capsys, tmp_path):
    """`tremula demo --tiles` runs a tile program and prints its profile."""
    sizes = ["--chip", "gc2", "--size", "128", "--steps", "3"]
    assert main(["demo", "--tiles", *sizes, "--report", str(tmp_path)]) == 0
    printed = capsys.readouterr().out
    assert "Heat equation on 128 x 128 points, 1216 tiles of a gc2." in printed
    assert "3 steps on a GC2, modelled:" in printed
