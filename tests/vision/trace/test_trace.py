"""The system trace: nothing while it is off; spans, instants, numbers, exports while it is on."""

import csv
import json
import sqlite3
import threading

import pytest

import libpvti
import pva
from tests.vision.programs import summing_engine
from tremula.base.errors import FileLoadError, InvalidOption, MissingProfileData
from tremula.base.tracing import span
from tremula.vision.trace import recorder as trace
from tremula.vision.trace.export import export_chrome, export_csv, export_parquet, export_perfetto


@pytest.fixture(autouse=True)
def closed(monkeypatch):
    """No trace is open before or after a test."""
    monkeypatch.delenv("PVTI_OPTIONS", raising=False)
    trace.stop()
    yield
    trace.stop()


@pytest.fixture
def recorded(tmp_path):
    """A trace with a little of everything, opened."""
    trace.start(tmp_path)
    channel = trace.channel("mine")
    with channel.span("outer", batch=3):
        with channel.span("inner"):
            pass
        channel.instant("flag")
        with span("poplar", "Engine.run"):
            pass
    losses = trace.Graph("loss", "nats").series("train")
    losses.add(2)
    losses.add(1.5)
    trace.Heatmap("weights", [0, 1, 2], "2^x").add([0.5, 0.6, 1.5, 9])

    @channel.traced
    def work(x):
        return x + 1

    thread = threading.Thread(target=work, args=(1,), name="worker")
    thread.start()
    thread.join()
    with pva.openTrace(trace.stop()) as reader:
        yield reader


def test_nothing_happens_while_it_is_off(tmp_path):
    """Spans, instants and series do nothing, and leave nothing."""
    channel = trace.channel("off")
    with channel.span("a"), span("poplar", "b"):
        channel.instant("c")
        channel.begin("d")
        channel.end("d")
    trace.Graph("g").series("s").add(1)
    assert channel.span("a") is channel.span("b")
    assert trace.current_path() is None
    assert list(tmp_path.iterdir()) == []


def test_events_nest(recorded):
    """Processes, threads and events by pva's names; children are inside their parents."""
    (process,) = recorded.processes
    threads = {thread.name: thread for thread in process.threads}
    (outer,) = threads["MainThread"].events
    assert (outer.label, outer.channel) == ("outer", "mine")
    kinds = zip(
        (recorded, process, threads["worker"], outer),
        "Trace Process Thread Event".split(),
        strict=True,
    )
    assert all(isinstance(value, getattr(pva, kind)) for value, kind in kinds)
    assert json.loads(outer.metadata) == {"batch": 3}
    assert [c.label for c in outer.children()] == ["inner", "flag", "Engine.run"]
    assert all(outer.timestamp <= c.timestamp for c in outer.children())
    assert outer.duration >= sum(c.duration for c in outer.children())
    (work,) = threads["worker"].events
    assert work.label.endswith("work")
    with pytest.raises(MissingProfileData, match="has no thread 1"):
        process.thread(1)


def test_numbers(recorded):
    """Series and heat maps keep values, units and counts."""
    by_graph = {series["graph"]: series for series in recorded.series}
    losses = by_graph["loss"]
    assert losses["value"].tolist() == [2, 1.5]
    assert (losses["graph"], losses["name"], losses["unit"]) == ("loss", "train", "nats")
    assert by_graph["host memory"]["value"].min() > 1  # MiB of a Python process
    (weights,) = recorded.heatmaps
    assert weights["counts"].tolist() == [[2, 1]]
    with pytest.raises(InvalidOption, match="must ascend"):
        trace.Heatmap("h", [1, 0])


def test_exports(recorded, report, tmp_path):
    """Chrome JSON, Perfetto packets and CSV hold every event, and the chip's steps."""
    chrome = json.loads(export_chrome(tmp_path / "t.json", recorded, report).read_text())
    names = [e["name"] for e in chrome["traceEvents"]]
    assert {"outer", "inner", "flag", "loss", "main/layer1/gather"} <= set(names)
    steps = [e for e in chrome["traceEvents"] if e["name"] == "main/layer1/gather"]
    assert len(steps) == 3
    rows = list(csv.DictReader(export_csv(tmp_path / "t.csv", recorded).read_text().splitlines()))
    assert len(rows) == len(recorded.events.pid) == 5
    packets = packets_of(export_perfetto(tmp_path / "t.pftrace", recorded, report).read_bytes())
    kinds = [p[11][0][9][0] for p in packets if 11 in p]
    assert kinds.count(1) == kinds.count(2) == 4 + 6
    assert kinds.count(3) == 1
    assert kinds.count(4) == sum(len(series["value"]) for series in recorded.series)
    labels = {p[11][0][23][0] for p in packets if 11 in p and 23 in p[11][0]}
    assert {b"outer", b"inner", b"flag"} <= labels


def test_chrome_files_keep_the_rules(recorded, report, tmp_path):
    """Strict JSON; each phase has its keys; slices of a thread nest; times begin near zero."""
    trace.start(tmp_path / "other")
    trace.Graph("loss").series("training").add(float("nan"))
    with pva.openTrace(trace.stop()) as other:
        json.loads(
            export_chrome(tmp_path / "n.json", other).read_text(), parse_constant=pytest.fail
        )
    text = export_chrome(tmp_path / "t.json", recorded, report).read_text()
    events = json.loads(text, parse_constant=pytest.fail)["traceEvents"]
    needed = {"X": "ts dur pid tid", "i": "ts s pid tid", "C": "ts pid args", "M": "pid args"}
    lanes = {}
    for event in events:
        assert {"name", *needed[event["ph"]].split()} <= set(event)
        if event["ph"] == "X":
            assert 0 <= event["ts"] < 3600e6
            assert max(event["pid"], event["tid"]) < 2**31
            lanes.setdefault((event["pid"], event["tid"]), []).append(event)
        if event["ph"] == "C":
            assert all(isinstance(value, float) for value in event["args"].values())
    for slices in lanes.values():
        assert_nested(sorted((e["ts"], -e["dur"]) for e in slices))
    outer = next(event for event in events if event["name"] == "outer")
    assert outer["args"] == {"batch": 3}


def assert_nested(slices):
    """No slice reaches over the end of one that is open when it begins."""
    ends = []
    for start, negative_length in slices:
        while ends and ends[-1] <= start + 1e-9:  # start + duration of floats
            ends.pop()
        end = start - negative_length
        assert not ends or end <= ends[-1] + 1e-3
        ends.append(end)


def test_perfetto_tracks(recorded, report, tmp_path):
    """Slices of every track are closed in order, on tracks that were described before."""
    packets = packets_of(export_perfetto(tmp_path / "t.pftrace", recorded, report).read_bytes())
    described, last_ns, n_open = set(), {}, {}
    for packet in packets:
        if 60 in packet:
            described.add(fields(packet[60][0])[1][0])
        for event in packet.get(11, []):
            (track,), (kind,), (time_ns,) = event[11], event[9], packet[8]
            assert track in described
            assert time_ns >= last_ns.get(track, 0)
            last_ns[track] = time_ns
            n_open[track] = n_open.get(track, 0) + {1: 1, 2: -1}.get(kind, 0)
            assert n_open[track] >= 0
    assert set(n_open.values()) == {0}
    details = [fields(note) for p in packets if 11 in p for note in p[11][0].get(4, [])]
    assert [note for note in details if note[10] != [b"times"]] == [{10: [b"batch"], 6: [b"3"]}]
    assert len(details) == 1 + 6  # steps say how often they ran


def packets_of(data):
    """Packets of a Perfetto file as {field: values}; track events (11) are taken apart, too."""
    result = []
    for packet in fields(data)[1]:
        parts = fields(packet)
        result.append({k: [fields(v) for v in vs] if k == 11 else vs for k, vs in parts.items()})
    return result


def fields(data):
    result, at = {}, 0

    def varint():
        nonlocal at
        value, shift = 0, 0
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    while at < len(data):
        key = varint()
        if key & 7 == 2:
            n = varint()
            value, at = data[at : at + n], at + n
        elif key & 7 == 1:
            value, at = data[at : at + 8], at + 8
        else:
            value = varint()
        result.setdefault(key >> 3, []).append(value)
    return result


def test_parquet_needs_its_library(recorded, tmp_path, monkeypatch):
    """Without pyarrow the error names it."""
    import sys

    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(MissingProfileData, match="pyarrow is not installed"):
        export_parquet(tmp_path / "t.parquet", recorded)


def test_the_engine_records_itself(tmp_path):
    """Compile, load and run of an engine are events of the channel poplar."""
    path = trace.start(tmp_path)
    engine = summing_engine().load()
    engine.run()
    trace.stop()
    with pva.openTrace(path) as reader:
        events = [e for t in reader.processes[0].threads for e in t.events]
        assert [e.label for e in events] == ["Engine.compile", "Engine.load", "Engine.run"]
        assert {e.channel for e in events} == {"poplar"}


def test_channels_can_be_chosen(tmp_path):
    """Only chosen channels record; a duration ends the trace."""
    path = trace.start(tmp_path, only=["yes"])
    for name in ("yes", "no"):
        with trace.channel(name).span("event"):
            pass
    trace.stop()
    with pva.openTrace(path) as reader:
        assert reader.channels == ["yes"]
    trace.start(tmp_path, duration_s=1e-9)
    assert not trace.channel("yes").is_recording
    assert trace.current_path() is None


def test_the_environment_starts_a_trace(tmp_path, monkeypatch):
    """PVTI_OPTIONS: enabled, disabled, and unreadable, which means defaults."""
    monkeypatch.chdir(tmp_path)
    options = {"enable": "true", "directory": str(tmp_path / "t"), "channels": ["a"]}
    monkeypatch.setenv("PVTI_OPTIONS", json.dumps(options))
    path = trace.start_from_environment()
    assert path.parent == tmp_path / "t"
    assert path.suffix == ".pvti"
    trace.stop()
    monkeypatch.setenv("PVTI_OPTIONS", '{"enable": "false"}')
    assert trace.start_from_environment() is None
    monkeypatch.setenv("PVTI_OPTIONS", "no json")
    assert trace.start_from_environment().parent.resolve() == tmp_path


def test_libpvti_names(tmp_path):
    """The names of libpvti do what they say."""
    trace.start(tmp_path)
    channel = libpvti.createTraceChannel("framework2")
    assert libpvti.checkTraceChannel(channel)
    assert ["framework2", True] in libpvti.listTraceChannel()

    class Loader:
        def load(self):
            return 7

    loader = Loader()
    libpvti.instrument(loader, ["load"], channel)

    @libpvti.instrument_fn(channel)
    def step():
        return loader.load()

    libpvti.ThreadName("main")
    with libpvti.Tracepoint(channel, "block", libpvti.createJsonMetadata('{"k": 1}')):
        assert step() == 7
        libpvti.Tracepoint.begin(channel, "half")
        libpvti.Tracepoint.end(channel, "half")
        libpvti.Tracepoint.event(channel, "now")
    libpvti.disableTraceChannel(channel)
    with libpvti.Tracepoint(channel, "unseen"):
        pass
    libpvti.enableTraceChannel(channel)
    libpvti.Graph("g", "W").addSeries("s").add(3)
    libpvti.HeatmapDouble("h", [0, 1]).add([0.5])
    path = libpvti.getCurrentTraceFilename()
    libpvti.closeTrace()
    assert libpvti.getCurrentTraceFilename() == ""
    with pva.openTrace(path) as reader:
        assert "unseen" not in reader.labels
        (thread,) = reader.processes[0].threads
        assert thread.name == "main"
        children = [c.label for c in thread.events[0].children()]
        assert children[1:] == ["half", "now"]


def altered(recorded, tmp_path, *statements):
    path = tmp_path / "altered.pvti"
    path.write_bytes(recorded.path.read_bytes())
    database = sqlite3.connect(path)
    for statement in statements:
        database.execute(statement)
    database.commit()
    database.close()
    return path


@pytest.mark.parametrize(
    ("what", "words", "statement"),
    [
        (
            "details",
            "whose details are not a JSON object",
            "UPDATE events SET details = '[1' WHERE details != ''",
        ),
        ("series", "something other than a number", "UPDATE samples SET value = 'much'"),
        ("heatmaps", "whose bins do not match its edges", "UPDATE heatmaps SET edges = '[1]'"),
        (
            "heatmaps",
            "whose bins do not match its edges",
            "UPDATE heatmap_data SET bin_quantities = x'ff'",
        ),
    ],
)
def test_damaged_parts_are_named(tmp_path, recorded, what, words, statement):
    """Malformed details, samples and heat maps are reported as damage."""
    path = altered(recorded, tmp_path, statement)
    with pytest.raises(FileLoadError, match=words), pva.openTrace(path) as reader:
        getattr(reader, what)


def test_files_that_are_no_traces(tmp_path, recorded):
    """Missing, foreign and newer files are readable errors."""
    with pytest.raises(FileLoadError, match="cannot read the trace"):
        pva.openTrace(tmp_path / "none.pvti")
    (tmp_path / "text.pvti").write_text("no database at all")
    with pytest.raises(FileLoadError, match="is not a trace"):
        pva.openTrace(tmp_path / "text.pvti")
    newer = "UPDATE info SET value = '[9, 0]' WHERE key = 'schema_version'"
    with pytest.raises(FileLoadError, match="update Tremula"):
        pva.openTrace(altered(recorded, tmp_path, newer))
    endless = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT x FROM n"
    view = altered(recorded, tmp_path, "DROP TABLE labels", f"CREATE VIEW labels AS {endless}")
    with pytest.raises(FileLoadError, match="not a trace of Tremula's"):
        pva.openTrace(view)
    other = tmp_path / "cut.pvti"
    other.write_bytes(recorded.path.read_bytes()[:5000])
    with pytest.raises(FileLoadError, match="damaged"):
        len(pva.openTrace(other).events.pid)
