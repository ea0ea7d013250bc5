"""`tremula export` writes what ran for Perfetto, Chrome and tables."""

import json

import pytest

from tests.vision.programs import summing_engine
from tremula.vision.report.reader import open_report
from tremula.vision.report.write import write_report
from tremula.vision.trace import recorder as trace


def test_formats(tremula, files, tmp_path):
    """The end of the name chooses the format; Chrome's slices add up to the chip's busy time."""
    path = tmp_path / "out.json"
    done = tremula(["export", "report", "-o", str(path)])
    assert done.code == 0
    assert "ui.perfetto.dev" in done.out
    events = json.loads(path.read_text())["traceEvents"]
    slices = [event for event in events if event["ph"] == "X"]
    with open_report(files / "report") as reader:
        cycles = sum(e["dur"] for e in slices) * reader.target["clock_hz"] / 1e6
        assert round(cycles) == reader.info["total_cycles"]
        assert len(slices) == reader.n_entries
    done = tremula(["export", "report", "--format", "chrome", "-o", str(tmp_path / "odd")])
    assert json.loads((tmp_path / "odd").read_text())["traceEvents"]
    assert tremula(["export", "report", "-o", str(tmp_path / "out.pftrace")]).code == 0
    content = (tmp_path / "out.pftrace").read_bytes()
    assert content[0] == 0x0A  # field 1 of a trace: a packet
    assert b"main/layer1/sums/rows" in content
    assert tremula("export report").code == 0
    assert (files / "report.pftrace").read_bytes() == content


def test_host_events(tremula, tmp_path):
    """A trace beside the report, or a trace alone, gives host events; --no-host leaves them out."""
    folder = tmp_path / "run"
    trace.start(folder)
    engine = summing_engine(options={"autoReport.all": "true", "autoReport.directory": str(folder)})
    engine.load().run()
    recorded = trace.stop()
    del engine
    out = tmp_path / "a.json"

    def names(*arguments):
        done = tremula(["export", *arguments, "-o", str(out)])
        assert done.code == 0, done.err
        return {event["name"] for event in json.loads(out.read_text())["traceEvents"]}

    assert {"Engine.run", "main/layer1/gather"} <= names(str(folder))
    assert "Engine.run" not in names(str(folder), "--no-host")
    assert "Engine.run" in names(str(recorded))
    assert tremula(["export", str(folder), "-o", str(tmp_path / "a.csv")]).code == 0
    assert "Engine.run" in (tmp_path / "a.csv").read_text()


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("export report -o out.txt", "does not say a format"),
        ("export report -o out.csv", "no system trace"),
        ("export report --format chrom", "chrome"),
        ("export none", "none"),
        ("export text -o out.json", "text"),
        ("export idle.pop -o out.json", "has not run"),
        ("export report --trace text -o out.json", "text"),
    ],
)
def test_what_goes_wrong(tremula, files, line, reason):
    """Wrong names, formats and files are errors, and no file is left."""
    write_report(files / "idle.pop", summing_engine().executable)
    done = tremula(line)
    assert done.code in (1, 2)
    assert reason in done.err
    assert "Traceback" not in done.err
    assert not (files / "out.json").exists()
