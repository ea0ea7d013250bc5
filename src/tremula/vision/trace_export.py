"""Traces for other tools: Chrome JSON, Perfetto's own format, CSV, Parquet.

Slices must nest there, as events that come from blocks and calls do. A report adds a lane per chip
on a process of its own.
"""

import csv
import json
import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from tremula.base.errors import MissingProfileData
from tremula.vision.report_reader import ReportReader
from tremula.vision.trace_reader import TraceReader

_DEVICE_PID = 0  # no process has it


def export_chrome(
    path: str | os.PathLike[str],
    trace: TraceReader | None = None,
    report: ReportReader | None = None,
) -> Path:
    """JSON for chrome://tracing and ui.perfetto.dev: host events, device steps or both."""
    events = [*_host_events(trace), *_device_events(report)]
    text = json.dumps({"traceEvents": events, "displayTimeUnit": "ns"})
    Path(path).write_text(text, encoding="utf-8")
    return Path(path)


def _host_events(trace: TraceReader | None) -> Iterator[dict]:
    if trace is None:
        return
    for (pid, tid), name in trace.thread_names.items():
        yield {"ph": "M", "name": "thread_name", "pid": pid, "tid": tid, "args": {"name": name}}
    events = trace.events
    columns = (
        events.pid,
        events.tid,
        events.channel,
        events.label,
        events.start_ns,
        events.duration_ns,
    )
    for i, (pid, tid, c, label, start, length) in enumerate(
        zip(*(x.tolist() for x in columns), strict=True)
    ):
        row = {
            "name": trace.labels[label], "cat": trace.channels[c], "pid": pid, "tid": tid,
            "ts": start / 1000,
        }  # fmt: skip
        if i in trace.details:
            row["args"] = json.loads(trace.details[i])
        yield (
            {**row, "ph": "i", "s": "t"} if length < 0 else {**row, "ph": "X", "dur": length / 1000}
        )
    for series in trace.series:
        pairs = zip(series["time_ns"].tolist(), series["value"].tolist(), strict=True)  # pyright: ignore[reportAttributeAccessIssue]
        for time_ns, value in pairs:
            args = {str(series["name"]): value}
            yield {
                "ph": "C", "name": series["graph"], "pid": trace.info.get("pid", 1),
                "ts": time_ns / 1000, "args": args,
            }  # fmt: skip


def _device_events(report: ReportReader | None) -> Iterator[dict]:
    """Steps of each chip; microseconds of the modelled clock, from the first traced run's start."""
    if report is None:
        return
    per_us = report.target["clock_hz"] / 1e6
    runs = report.table("runs")
    begin = int(runs["host_start_us"][0]) if len(runs["id"]) else 0
    trace, steps = report.trace, report.table("steps")
    named = {"ph": "M", "pid": _DEVICE_PID}
    yield {**named, "name": "process_name", "args": {"name": f"{report.target['chip']} (modelled)"}}
    for ipu in range(report.n_ipus):
        yield {**named, "name": "thread_name", "tid": ipu, "args": {"name": f"IPU {ipu}"}}
        lane = zip(trace.step, trace.times, trace.start[:, ipu], trace.end[:, ipu], strict=True)
        for step, times, start, end in lane:
            if end > start:
                yield {
                    "ph": "X", "pid": _DEVICE_PID, "tid": ipu, "cat": steps["type"][step],
                    "name": steps["path"][step], "ts": begin + float(start / per_us),
                    "dur": float((end - start) / per_us), "args": {"times": int(times)},
                }  # fmt: skip


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
    return _bytes(field, value.encode())


def _double(field: int, value: float) -> bytes:
    return _varint(field << 3 | 1) + np.float64(value).tobytes()


def _packet(content: bytes, time_ns: int | None = None) -> bytes:
    stamp = b"" if time_ns is None else _whole(8, time_ns)
    return _bytes(1, stamp + _whole(10, _SEQUENCE) + content)


def _track(uuid: int, name: str, extra: bytes = b"") -> bytes:
    return _packet(_bytes(60, _whole(1, uuid) + _text(2, name) + extra))


def _slice(kind: int, uuid: int, name: str = "", category: str = "") -> bytes:
    labels = (_text(22, category) if category else b"") + (_text(23, name) if name else b"")
    return _bytes(11, _whole(9, kind) + _whole(11, uuid) + labels)


def export_perfetto(
    path: str | os.PathLike[str],
    trace: TraceReader | None = None,
    report: ReportReader | None = None,
) -> Path:
    """Perfetto's protobuf format, written without its library: tracks, slices, counters."""
    with Path(path).open("wb") as file:
        if trace is not None:
            file.writelines(_host_packets(trace))
        if report is not None:
            file.writelines(_device_packets(report))
    return Path(path)


def _host_packets(trace: TraceReader) -> Iterator[bytes]:
    events = trace.events
    uuids: dict[tuple[int, int], int] = {}
    for pid, tid in zip(events.pid.tolist(), events.tid.tolist(), strict=True):
        if (pid, tid) not in uuids:
            uuid = uuids[pid, tid] = 1000 + len(uuids)
            name = trace.thread_names.get((pid, tid), str(tid))
            # Thread ids are 32 bits wide there; only their difference matters.
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
        if duration < 0:
            yield _packet(_slice(_INSTANT, uuid, name, category), start)
        else:
            yield _packet(_slice(_BEGIN, uuid, name, category), start)
            ends.append((start + duration, uuid))
    while ends:
        end, uuid = ends.pop()
        yield _packet(_slice(_END, uuid), end)
    yield from _counter_packets(trace)


def _counter_packets(trace: TraceReader) -> Iterator[bytes]:
    for number, series in enumerate(trace.series):
        uuid = 500_000 + number
        counter = _bytes(8, _text(6, str(series["unit"])))
        yield _track(uuid, f"{series['graph']} {series['name']}", counter)
        pairs = zip(series["time_ns"].tolist(), series["value"].tolist(), strict=True)  # pyright: ignore[reportAttributeAccessIssue]
        for time_ns, value in pairs:
            event = _whole(9, _COUNTER) + _whole(11, uuid) + _double(44, value)
            yield _packet(_bytes(11, event), time_ns)


def _device_packets(report: ReportReader) -> Iterator[bytes]:
    runs, trace, steps = report.table("runs"), report.trace, report.table("steps")
    begin_ns = int(runs["host_start_us"][0]) * 1000 if len(runs["id"]) else 0
    ns_per_cycle = 1e9 / report.target["clock_hz"]
    for ipu in range(report.n_ipus):
        uuid = 1_000_000 + ipu
        yield _track(uuid, f"{report.target['chip']} IPU {ipu} (modelled)")
        lane = zip(
            trace.step.tolist(),
            trace.start[:, ipu].tolist(),
            trace.end[:, ipu].tolist(),
            strict=True,
        )
        for step, start, end in lane:
            if end > start:
                named = _slice(_BEGIN, uuid, steps["path"][step], steps["type"][step])
                yield _packet(named, begin_ns + round(start * ns_per_cycle))
                yield _packet(_slice(_END, uuid), begin_ns + round(end * ns_per_cycle))


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
    with Path(path).open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
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
            mend="pip install pyarrow, or export CSV",
        ) from None
    parquet.write_table(pa.table(_table(trace)), path)
    return Path(path)
