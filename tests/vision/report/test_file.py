"""Report files: whole or absent, old ones readable, foreign ones refused with a reason."""

import json
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from tests.vision.programs import summing_engine
from tremula.base.errors import FileLoadError, GraphMemoryAllocationError, MissingProfileData
from tremula.vision.report.file import ReportFile
from tremula.vision.report.reader import open_report
from tremula.vision.report.seal import seal
from tremula.vision.report.write import write_report

OLD_REPORTS = Path(__file__).parent / "data"


def write_half(path):
    with ReportFile(path) as file:
        file.facts("info", {"application": "half"})
        raise KeyboardInterrupt


def test_an_interrupted_writer_leaves_nothing(tmp_path, engine):
    """An error while writing keeps the old report and leaves no other file."""
    path = write_report(tmp_path, engine.executable)
    before = path.read_bytes()
    with pytest.raises(KeyboardInterrupt):
        write_half(path)
    assert [p.name for p in tmp_path.iterdir()] == ["profile.pop"]
    assert path.read_bytes() == before


def test_a_folder_that_cannot_be_written(tmp_path, engine):
    """A path below a file is a readable error."""
    (tmp_path / "file").write_text("")
    with pytest.raises(FileLoadError, match="cannot write a report"):
        write_report(tmp_path / "file" / "below", engine.executable)


def refusal(path):
    with pytest.raises(FileLoadError) as caught:
        open_report(path)
    return str(caught.value)


def test_files_that_are_no_reports(tmp_path):
    """Missing, empty, foreign and other databases are told apart."""
    assert "cannot read the report" in refusal(tmp_path / "none.pop")
    assert "cannot read the report" in refusal(tmp_path)
    (tmp_path / "empty.pop").write_bytes(b"")
    assert "is empty" in refusal(tmp_path / "empty.pop")
    (tmp_path / "text.pop").write_text("a text that is no database")
    assert "does not start like one" in refusal(tmp_path / "text.pop")
    other = sqlite3.connect(tmp_path / "other.pop")
    other.execute("CREATE TABLE steps (id)")
    other.commit()
    other.close()
    assert "not a report of Tremula's" in refusal(tmp_path / "other.pop")


def test_a_view_in_place_of_a_table(report_file, tmp_path):
    """A view could compute for ever: a file with one in place of a table is not a report."""
    endless = (
        "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT x AS id FROM n"
    )
    path = altered(report_file, tmp_path, ("DROP TABLE runs",), (f"CREATE VIEW runs AS {endless}",))
    assert "not a report of Tremula's" in refusal(path)


def test_threads_share_a_reader(report):
    """Several threads read the same matrix, table and column at once."""
    from concurrent.futures import ThreadPoolExecutor

    def read(i):
        total = int(report.matrix("compute").rows(0, 2).sum())
        return total, len(report.table("steps")["id"]), len(report.column("timeline.code"))

    with ThreadPoolExecutor(8) as pool:
        assert len(set(pool.map(read, range(64)))) == 1


def altered(report_file, tmp_path, *statements):
    """A report with other content, sealed again: made so on purpose."""
    path = tmp_path / "altered.pop"
    path.write_bytes(report_file.read_bytes())
    database = sqlite3.connect(path)
    for statement in statements:
        database.execute(*statement)
    database.commit()
    database.close()
    seal(path)
    return path


def set_fact(table, key, value):
    return f"UPDATE {table} SET value = ? WHERE key = ?", (json.dumps(value), key)


def test_newer_and_broken_facts(report_file, tmp_path):
    """A newer major schema has a hint; a newer minor one is read; impossible sizes are damage."""
    newer = altered(report_file, tmp_path, set_fact("info", "schema_version", [3, 0]))
    assert "has schema version 3.0" in refusal(newer)
    assert "update Tremula" in refusal(newer)
    with open_report(altered(report_file, tmp_path, set_fact("info", "schema_version", [2, 9]))):
        pass
    for fact in (
        ("info", "schema_version", "one"),
        ("target", "n_tiles", 7),
        ("target", "n_ipus", "many"),
        ("info", "n_steps", -1),
    ):
        assert "damaged" in refusal(altered(report_file, tmp_path, set_fact(*fact))), fact


def read_everything(path):
    with open_report(path) as reader:
        for name in ("compute", "exchange", "live", "always_live"):
            reader.matrix(name).rows(0, 10**6)
        for name in ("steps", "variables", "tiles", "runs", "vertices", "steps_by_ipu"):
            reader.table(name)
        for name in (
            "timeline.code",
            "overview.phases",
            "live.first",
            "variable.tile",
            "vertices.count",
        ):
            reader.column(name)
        reader.executable()


def test_truncated_anywhere(report_file, tmp_path):
    """A file truncated anywhere raises our error, when it is opened or when it is read."""
    content = report_file.read_bytes()
    path = tmp_path / "cut.pop"
    for n_bytes in range(1, len(content), len(content) // 40):
        path.write_bytes(content[:n_bytes])
        with pytest.raises(FileLoadError):
            read_everything(path)


def test_damaged_parts(report_file, tmp_path):
    """Missing blocks, wrong types and foreign shapes are named."""
    cases = {
        "lacks block 0": ("DELETE FROM blocks WHERE matrix = 'compute'",),
        "has no matrix": ("DELETE FROM matrices",),
        "cannot be unpacked": ("UPDATE blocks SET data = x'ffff'",),
        "of sizes": ("UPDATE matrices SET n_rows = 'x'",),
    }
    readings = [
        (words, statement, lambda r: r.matrix("compute").rows(0, 1))
        for words, statement in cases.items()
    ]
    readings += [
        (
            r"wrong type in steps\.sync",
            ("UPDATE steps SET sync = 'x'",),
            lambda r: r.table("steps"),
        ),
        ("expected", ("UPDATE columns SET shape = '[9]'",), lambda r: r.column("timeline.code")),
        ("does not hold its tile program", ("DELETE FROM executable",), lambda r: r.executable()),
    ]
    for words, statement, read in readings:
        with open_report(altered(report_file, tmp_path, statement)) as reader:
            refused = pytest.raises((FileLoadError, MissingProfileData), match=words)
            with refused:
                read(reader)


def test_old_reports_say_what_to_do():
    """A report of an older schema is refused with its version and a way out."""
    refused = refusal(OLD_REPORTS / "report-1.1.pop")
    assert "has schema version 1.1, of an older Tremula; this one reads 2.x" in refused
    assert "write the report again" in refused


@pytest.mark.slow
def test_queries_only_read(report):
    """A user's SQL can only read, and only for a limited time."""
    names, rows = report.query("SELECT id, name FROM steps ORDER BY id")
    assert names == ["id", "name"]
    assert len(rows) == report.n_steps
    for sql in (
        "DELETE FROM steps",
        "ATTACH DATABASE ':memory:' AS other",
        "SELECT 1; SELECT 2",
        "no sql",
        "SELECT nothing FROM steps",
        "PRAGMA query_only = OFF",
        "SELECT * FROM pragma_table_info('steps')",
        "CREATE TEMP TABLE t (x)",
        "SELECT load_extension('x')",
        "BEGIN",
        "VACUUM INTO 'copy'",
        "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT max(x) FROM n",
    ):
        with pytest.raises(MissingProfileData, match="the query failed"):
            report.query(sql)
    endless = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT x FROM n"
    assert len(report.query(endless)[1]) == 10_000
    assert report.execute("PRAGMA query_only") == [(1,)]


def test_what_does_not_exist_is_named(report):
    """Steps, tiles, tables and windows that do not exist."""
    with pytest.raises(MissingProfileData, match="step 9 does not exist"):
        report.step_cycles(9)
    with pytest.raises(MissingProfileData, match="tile 99 does not exist"):
        report.live_at_peak(99)
    with pytest.raises(MissingProfileData, match="did you mean 'steps'"):
        report.table("step")
    with pytest.raises(MissingProfileData, match="no window of 'sync'"):
        report.window("sync", 0, 1, 1)
    assert report.window("live", 5, 2, 10).cells.shape == (0, report.n_tiles)


def test_a_closed_report_says_so(report_file):
    """Reading after close is a readable error."""
    reader = open_report(report_file)
    reader.close()
    with pytest.raises(FileLoadError, match="is closed"):
        reader.table("steps")


def test_names_are_text(report_file, tmp_path):
    """HTML and control characters in names of an untrusted report do nothing."""
    evil = "<script>alert(1)</script>\x1b[31m"
    path = altered(report_file, tmp_path, ("UPDATE steps SET path = ?, name = ?", (evil, evil)),
                   set_fact("target", "chip", evil))  # fmt: skip
    with open_report(path) as reader:
        assert "<script>" not in reader._repr_html_()
        from tremula.vision.analysis.summary import steps
        from tremula.vision.analysis.text_views import text_of_view

        assert "\x1b" not in text_of_view("steps", steps(reader), 0)


def test_options_make_an_engine_leave_a_report(tmp_path):
    """autoReport.all: a report after the first run, renewed at the end; one for each engine."""
    options = {"autoReport.all": "true", "autoReport.directory": str(tmp_path / "r")}
    engine = summing_engine(options=options).load()
    assert not (tmp_path / "r").exists()
    engine.run()
    with open_report(tmp_path / "r") as reader:
        assert reader.info["extra"] == {"n_runs": 1}
    for _ in range(3):
        engine.run()
    total = engine.report().total_cycles
    engine.close()
    with open_report(tmp_path / "r") as reader:
        assert reader.info["total_cycles"] == total
        runs = reader.table("runs")
        assert runs["times"].tolist() == [1, 1, 2]  # the last two are alike, so they share a row
        assert runs["n_entries"].tolist() == [6, 6, 12]
        took = (runs["cycles_to"] - runs["cycles_from"]).tolist()
        assert took == [total // 4, total // 4, total // 2]
        assert (runs["host_end_us"] >= runs["host_start_us"]).all()
        assert reader.options["autoReport.all"] == "true"
    second = summing_engine(options=options).load()
    second.run()
    assert (tmp_path / "r" / "2" / "profile.pop").exists()


def test_an_engine_that_goes_writes_its_report(tmp_path):
    """The last report is written when the engine is collected."""
    engine = summing_engine(
        options={"autoReport.all": True, "autoReport.directory": tmp_path}
    ).load()
    engine.run()
    engine.run()
    del engine
    with open_report(tmp_path) as reader:
        assert reader.info["extra"]["n_runs"] == 2


@pytest.mark.slow
def test_the_end_of_a_process_writes_its_reports(tmp_path, repository):
    """An engine that lives to the end of its process leaves a report of all its runs."""
    script = (
        "from tests.vision.programs import summing_engine\n"
        f"options = {{'autoReport.all': True, 'autoReport.directory': {str(tmp_path)!r}}}\n"
        "engine = summing_engine(options=options).load()\n"
        "for _ in range(3): engine.run()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=repository, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    with open_report(tmp_path) as reader:
        assert reader.info["extra"]["n_runs"] == 3


def test_what_does_not_fit_leaves_a_report(tmp_path):
    """A program out of memory raises, and leaves the report that says why."""
    with pytest.raises(GraphMemoryAllocationError):
        summing_engine(
            n_tiles=1, n_columns=20_000,
            options={"autoReport.all": True, "autoReport.directory": tmp_path},
        )  # fmt: skip
    with open_report(tmp_path) as reader:
        assert not reader.has_run
        assert reader.table("tiles")["overflowed"].max() > 0
        from tremula.vision.analysis.insights import insights

        assert insights(reader)[0]["rule"] == "out_of_memory"
