"""Traces for other tools: Chrome JSON, Perfetto's own format, CSV, Parquet.

Those tools want slices that nest, as events from blocks and calls do. A report adds a lane per
chip, in a separate process.
"""

import csv
import json
import os
from collections.abc import Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import numpy as np

from tremula.base.errors import MissingProfileData
from tremula.base.storage.atomic_file import atomic_file, atomic_path
from tremula.vision.report.reader import ReportReader
from tremula.vision.trace.beside_report import model_of, report_in
from tremula.vision.trace.reader import TraceReader

_DEVICE_PID = 1 << 22  # above any process id of Linux


def _origin_ns(trace: TraceReader | None) -> int:
    """The first moment of a trace."""
    if trace is None:
        return 0
    times = [time_ns for _, time_ns, _ in _samples(trace)]
    return min([int(trace.info.get("started_ns", 0)), *trace.events.start_ns.tolist(), *times])


def _device_start_ns(trace: TraceReader | None, report: ReportReader) -> int:
    """When the device's clock started: at the first run that the engine or the trace recorded."""
    if trace is None:
        return 0
    starts = report.table("runs")["host_start_us"]
    if len(starts) and starts[0] * 1000 >= _origin_ns(trace):
        return int(starts[0]) * 1000
    model = model_of(report)
    if model is not None:
        for event, details in trace.details.items():
            if report_in(details) == model:
                return int(trace.events.start_ns[event])
    return _origin_ns(trace)


def _thread_numbers(trace: TraceReader) -> dict[tuple[int, int], int]:
    """Small numbers for threads: other tools keep only 32 bits."""
    pairs = zip(trace.events.pid.tolist(), trace.events.tid.tolist(), strict=True)
    return {pair: number for number, pair in enumerate(dict.fromkeys(pairs), 1)}


# -- Chrome ----------------------------------------------------------------------------------------


def export_chrome(
    path: str | os.PathLike[str],
    trace: TraceReader | None = None,
    report: ReportReader | None = None,
) -> Path:
    """JSON for chrome://tracing and ui.perfetto.dev: host events, device steps or both.

    Times are microseconds from the trace's beginning, which `otherData` gives in nanoseconds:
    a float of microseconds since 1970 would be too coarse.
    """
    with atomic_file(path) as file:
        file.writelines(chrome_parts(trace, report))
    return Path(path)


def chrome_parts(trace: TraceReader | None, report: ReportReader | None) -> Iterator[bytes]:
    """The bytes of `export_chrome`, event by event."""
    origin_ns = _origin_ns(trace)
    yield b'{"displayTimeUnit": "ns", "otherData": '
    yield json.dumps({"started_ns": str(origin_ns)}).encode() + b', "traceEvents": ['
    before = b"\n"
    for event in chain(_host_events(trace, origin_ns), _device_events(trace, report, origin_ns)):
        yield before + json.dumps(event, allow_nan=False).encode()
        before = b",\n"
    yield b"]}\n"


def _host_events(trace: TraceReader | None, origin_ns: int) -> Iterator[dict]:
    if trace is None:
        return
    threads = _thread_numbers(trace)
    for (pid, tid), number in threads.items():
        name = trace.thread_names.get((pid, tid), str(tid))
        yield {"ph": "M", "name": "thread_name", "pid": pid, "tid": number, "args": {"name": name}}
    events = trace.events
    columns = (
        events.pid, events.tid, events.channel, events.label, events.start_ns, events.duration_ns,
    )  # fmt: skip
    rows = zip(*(column.tolist() for column in columns), strict=True)
    for i, (pid, tid, channel, label, start_ns, duration_ns) in enumerate(rows):
        row = {
            "name": trace.labels[label], "cat": trace.channels[channel], "pid": pid,
            "tid": threads[pid, tid], "ts": (start_ns - origin_ns) / 1000,
        }  # fmt: skip
        if i in trace.details:
            row["args"] = json.loads(trace.details[i])
        is_instant = duration_ns < 0
        yield {**row, "ph": "i", "s": "t"} if is_instant else {
            **row, "ph": "X", "dur": duration_ns / 1000,
        }  # fmt: skip
    yield from _counter_events(trace, origin_ns)


def _counter_events(trace: TraceReader, origin_ns: int) -> Iterator[dict]:
    """Numbers over time, without infinities and NaN, which JSON lacks."""
    for series, time_ns, value in _samples(trace):
        if np.isfinite(value):
            yield {
                "ph": "C", "name": series["graph"], "pid": trace.info.get("pid", 1),
                "ts": (time_ns - origin_ns) / 1000, "args": {str(series["name"]): value},
            }  # fmt: skip


def _samples(trace: TraceReader) -> Iterator[tuple[dict[str, object], int, float]]:
    for series in trace.series:
        pairs = zip(series["time_ns"].tolist(), series["value"].tolist(), strict=True)  # pyright: ignore[reportAttributeAccessIssue]
        for time_ns, value in pairs:
            yield series, time_ns, value


def _device_events(
    trace: TraceReader | None, report: ReportReader | None, origin_ns: int
) -> Iterator[dict]:
    """Steps of each chip, on the modelled clock, from the first traced run's start."""
    if report is None:
        return
    begin_us = (_device_start_ns(trace, report) - origin_ns) / 1000
    per_us = report.target["clock_hz"] / 1e6
    named = {"ph": "M", "pid": _DEVICE_PID}
    yield {**named, "name": "process_name", "args": {"name": f"{report.target['chip']} (modelled)"}}
    for ipu in range(report.n_ipus):
        yield {**named, "name": "thread_name", "tid": ipu, "args": {"name": f"IPU {ipu}"}}
        for entry in _lane(report, ipu):
            yield {
                "ph": "X", "pid": _DEVICE_PID, "tid": ipu, "cat": entry.kind, "name": entry.path,
                "ts": begin_us + entry.start / per_us, "dur": (entry.end - entry.start) / per_us,
                "args": entry.details,
            }  # fmt: skip


class _Entry(NamedTuple):
    """What a chip did for a while, on the modelled clock."""

    path: str
    kind: str
    start: int  # cycles
    end: int
    details: dict[str, int]  # how often; in a pipeline also the stage and its micro-batch


def _lane(report: ReportReader, ipu: int) -> Iterator[_Entry]:
    """What took time on a chip."""
    ran, steps = report.trace, report.table("steps")
    mine = np.flatnonzero(ran.end[:, ipu] > ran.start[:, ipu])
    columns = (ran.step, ran.start[:, ipu], ran.end[:, ipu], ran.times, ran.stage, ran.micro_batch)
    rows = zip(*(column[mine].tolist() for column in columns), strict=True)
    for step, start, end, times, stage, micro_batch in rows:
        details = {"times": times}
        if stage >= 0:
            details |= {"stage": stage, "micro_batch": micro_batch}
        yield _Entry(steps["path"][step], steps["type"][step], start, end, details)


# -- Perfetto --------------------------------------------------------------------------------------
# Field numbers of perfetto/trace/trace_packet.proto, track_event/{track_event,track_descriptor,
# process_descriptor,thread_descriptor,counter_descriptor}.proto.

_BEGIN, _END, _INSTANT, _COUNTER = 1, 2, 3, 4
_SEQUENCE = 1


def _varint(number: int) -> bytes:
    number &= (1 << 64) - 1
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def _whole(field: int, value: int) -> bytes:
    return _varint(field << 3) + _varint(value)


def _bytes(field: int, value: bytes) -> bytes:
    return _varint(field << 3 | 2) + _varint(len(value)) + value


def _text(field: int, value: str) -> bytes:
    return _bytes(field, value.encode(errors="replace"))  # JSON can hold half a character


def _double(field: int, value: float) -> bytes:
    return _varint(field << 3 | 1) + np.float64(value).tobytes()


def _packet(content: bytes, time_ns: int | None = None) -> bytes:
    stamp = b"" if time_ns is None else _whole(8, time_ns)
    return _bytes(1, stamp + _whole(10, _SEQUENCE) + content)


def _track(uuid: int, name: str, extra: bytes = b"") -> bytes:
    return _packet(_bytes(60, _whole(1, uuid) + _text(2, name) + extra))


def _slice(
    kind: int, uuid: int, name: str = "", category: str = "",
    details: Mapping[str, object] | None = None,
) -> bytes:  # fmt: skip
    labels = (_text(22, category) if category else b"") + (_text(23, name) if name else b"")
    notes = (_bytes(4, _text(10, k) + _text(6, str(v))) for k, v in (details or {}).items())
    return _bytes(11, _whole(9, kind) + _whole(11, uuid) + labels + b"".join(notes))


def export_perfetto(
    path: str | os.PathLike[str],
    trace: TraceReader | None = None,
    report: ReportReader | None = None,
) -> Path:
    """Perfetto's protobuf format, written without its library: tracks, slices, counters."""
    with atomic_file(path) as file:
        file.writelines(perfetto_parts(trace, report))
    return Path(path)


def perfetto_parts(trace: TraceReader | None, report: ReportReader | None) -> Iterator[bytes]:
    """The bytes of `export_perfetto`, packet by packet."""
    if trace is not None:
        yield from _host_packets(trace)
    if report is not None:
        yield from _device_packets(trace, report)


def _host_packets(trace: TraceReader) -> Iterator[bytes]:
    events, uuids = trace.events, _thread_numbers(trace)
    for (pid, tid), uuid in uuids.items():
        name = trace.thread_names.get((pid, tid), str(tid))
        thread = _whole(1, pid) + _whole(2, uuid) + _text(5, name)
        yield _track(uuid, name, _bytes(4, thread))
    ends: list[tuple[int, int]] = []  # (end, uuid) of slices that are open, outermost first
    last: tuple[int, int] | None = None
    for i in range(len(events.pid)):
        key = int(events.pid[i]), int(events.tid[i])
        start, duration = int(events.start_ns[i]), int(events.duration_ns[i])
        while ends and (key != last or len(ends) > events.depth[i]):
            end, uuid = ends.pop()
            yield _packet(_slice(_END, uuid), end)
        last, uuid = key, uuids[key]
        name, category = trace.labels[int(events.label[i])], trace.channels[int(events.channel[i])]
        kind = _INSTANT if duration < 0 else _BEGIN
        details = json.loads(trace.details.get(i, "{}"))
        yield _packet(_slice(kind, uuid, name, category, details), start)
        if duration >= 0:
            ends.append((start + duration, uuid))
    while ends:
        end, uuid = ends.pop()
        yield _packet(_slice(_END, uuid), end)
    yield from _counter_packets(trace)


def _counter_packets(trace: TraceReader) -> Iterator[bytes]:
    uuids: dict[tuple[object, object], int] = {}
    for series, time_ns, value in _samples(trace):
        key = series["graph"], series["name"]
        if key not in uuids:
            uuids[key] = 500_000 + len(uuids)
            counter = _bytes(8, _text(6, str(series["unit"])))
            yield _track(uuids[key], f"{series['graph']} {series['name']}", counter)
        event = _whole(9, _COUNTER) + _whole(11, uuids[key]) + _double(44, value)
        yield _packet(_bytes(11, event), time_ns)


def _device_packets(trace: TraceReader | None, report: ReportReader) -> Iterator[bytes]:
    begin_ns = _device_start_ns(trace, report)
    ns_per_cycle = 1e9 / report.target["clock_hz"]
    for ipu in range(report.n_ipus):
        uuid = 1_000_000 + ipu
        yield _track(uuid, f"{report.target['chip']} IPU {ipu} (modelled)")
        for entry in _lane(report, ipu):
            named = _slice(_BEGIN, uuid, entry.path, entry.kind, entry.details)
            yield _packet(named, begin_ns + round(entry.start * ns_per_cycle))
            yield _packet(_slice(_END, uuid), begin_ns + round(entry.end * ns_per_cycle))


# -- tables ----------------------------------------------------------------------------------------


def _table(trace: TraceReader) -> dict[str, list]:
    events = trace.events
    n = len(events.pid)
    return {
        "pid": events.pid.tolist(),
        "tid": events.tid.tolist(),
        "channel": [trace.channels[c] for c in events.channel.tolist()],
        "label": [trace.labels[c] for c in events.label.tolist()],
        "start_ns": events.start_ns.tolist(),
        "duration_ns": events.duration_ns.tolist(),
        "depth": events.depth.tolist(),
        "details": [trace.details.get(i, "") for i in range(n)],
    }


def export_csv(path: str | os.PathLike[str], trace: TraceReader) -> Path:
    """One row per event."""
    table = _table(trace)
    with atomic_file(path, "w") as file:
        writer = csv.writer(file, lineterminator="\r\n")
        writer.writerow(table)
        writer.writerows(zip(*table.values(), strict=True))
    return Path(path)


def export_parquet(path: str | os.PathLike[str], trace: TraceReader) -> Path:
    """One row per event; needs pyarrow."""
    try:
        import pyarrow as pa  # pyright: ignore[reportMissingImports]
        from pyarrow import parquet  # pyright: ignore[reportMissingImports]
    except ImportError:
        raise MissingProfileData(
            "pyarrow is not installed, so no Parquet file can be written.",
            hint="pip install pyarrow, or export CSV",
        ) from None
    with atomic_path(path) as temporary:
        parquet.write_table(pa.table(_table(trace)), temporary)
    return Path(path)
