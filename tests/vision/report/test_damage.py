"""Damaged reports and traces are refused, with a reason, wherever the damage is."""

import shutil
import sqlite3
from contextlib import closing

import numpy as np
import pytest

from tests.vision.report.fuzz import fuzz, read_report, read_trace
from tremula.base.errors import FileLoadError
from tremula.vision.report.file import ReportFile
from tremula.vision.report.reader import open_report
from tremula.vision.report.references import wrong_in_column
from tremula.vision.report.schema import COLUMN_TABLES
from tremula.vision.report.seal import checksum_of, seal, seal_of


@pytest.fixture
def copied(small_report, tmp_path):
    """The folder of a report and its trace, to be damaged."""
    return shutil.copytree(small_report, tmp_path / "copy")


def test_whole_files_are_read(copied):
    """What the fuzz test reads is readable when nothing is damaged."""
    read_report(copied / "profile.pop")
    read_trace(next(copied.glob("*.pvti")))


@pytest.mark.slow
def test_any_damage_to_a_report_is_noticed(copied):
    """Of 200 reports with bytes changed, missing, added or misplaced, all are refused in words."""
    outcome = fuzz(copied / "profile.pop", 200, read_report)
    assert not outcome.escapes, outcome.escapes[0]
    assert (outcome.n_read, outcome.n_refused) == (0, 200)


@pytest.mark.slow
@pytest.mark.parametrize("n_reports", [30, pytest.param(60, marks=pytest.mark.wide)])
def test_a_hostile_report_is_read_or_refused(copied, n_reports):
    """Of many changed reports with new seals none raises anything but our errors."""
    outcome = fuzz(copied / "profile.pop", n_reports, read_report, is_sealed_again=True)
    assert not outcome.escapes, outcome.escapes[0]
    assert min(outcome.n_read, outcome.n_refused) > n_reports // 12


@pytest.mark.parametrize(
    ("sql", "words"),
    [
        ("UPDATE steps SET compute_set = 99 WHERE id = 0", "in steps.compute_set that do not"),
        ("UPDATE programs SET parent = -2 WHERE id = 0", "in programs.parent that do not"),
        ("DELETE FROM tiles WHERE tile = 0", "rows in tiles, expected"),
        ("ALTER TABLE ipus RENAME COLUMN sync TO snyc", "has no column ipus.sync"),
    ],
)  # fmt: skip
def test_numbers_that_lead_nowhere(copied, sql, words):
    """A report that was changed on purpose and sealed again is refused where it is read."""
    path = copied / "profile.pop"
    with closing(sqlite3.connect(path)) as database, database:
        database.execute(sql)
    seal(path)
    with open_report(path) as reader, pytest.raises(FileLoadError, match=words):
        list(map(reader.table, COLUMN_TABLES))


def test_columns_that_lead_nowhere():
    """Long columns must name what exists, and parts must follow each other."""
    sizes = {"tiles": 4, "variables": 2}
    assert not wrong_in_column("variable.tile", np.array([0, 3]), sizes)
    assert "names tiles" in wrong_in_column("variable.tile", np.array([0, 4]), sizes)
    assert not wrong_in_column("variable.tile_start", np.array([0, 1, 2]), sizes)
    for starts in ([0, 2, 1], [1, 2, 2], [0, 1]):
        assert "do not follow" in wrong_in_column("variable.tile_start", np.array(starts), sizes)


@pytest.mark.slow
def test_a_damaged_trace_is_read_or_refused(copied):
    """Of 100 damaged traces none raises anything but our errors, here and in the Host view."""
    outcome = fuzz(next(copied.glob("*.pvti")), 100, read_trace)
    assert not outcome.escapes, outcome.escapes[0]
    assert outcome.n_refused > 10


def test_a_seal_covers_every_byte(report_file, tmp_path):
    """A report carries the checksum of its bytes; changing one of them anywhere changes it."""
    content = report_file.read_bytes()
    assert seal_of(report_file) == checksum_of(report_file)
    path = tmp_path / "other.pop"
    for at in (0, 59, 64, 4095, 4096, len(content) // 2, len(content) - 1):
        path.write_bytes(content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :])
        assert checksum_of(path) != checksum_of(report_file), at
    path.write_bytes(content + b"\0")
    assert checksum_of(path) != checksum_of(report_file)


def test_a_changed_report_says_so(report_file, tmp_path):
    """SQL that alters a report breaks its seal, and taking the seal off does not help."""
    path = tmp_path / "changed.pop"
    path.write_bytes(report_file.read_bytes())
    for statement, words in (
        ("UPDATE steps SET name = 'mine'", "was changed or cut since it was written"),
        ("PRAGMA user_version = 0", "has lost its checksum"),
    ):
        with sqlite3.connect(path) as database:
            database.execute(statement)
        database.close()
        with pytest.raises(FileLoadError, match=words):
            open_report(path)


def test_a_full_disk(tmp_path):
    """A report that does not fit on the disk is an error in words, and leaves no file."""
    refused = pytest.raises(FileLoadError, match=r"cannot write a report to .*disk is full")
    with refused, ReportFile(tmp_path / "profile.pop") as file:
        file._database.execute("PRAGMA max_page_count = 1")
        file.executable(1 << 20, bytes(1 << 20))
    assert not list(tmp_path.iterdir())
