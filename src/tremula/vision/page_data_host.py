"""The system traces beside a report, as columns for the Host view."""

from pathlib import Path
from typing import Any

import numpy as np

from tremula.vision.page_data_pack import coded
from tremula.vision.report_reader import ReportReader
from tremula.vision.trace_reader import TraceReader

Ints = np.ndarray

# The longest events are shown; a page with more would not be fluent.
MOST_EVENTS, MOST_SAMPLES, MOST_FILES = 60_000, 20_000, 8


def host_columns(reader: ReportReader) -> tuple[dict[str, Any], dict[str, Ints]]:
    """Facts and columns; `found` says whether there is a trace at all. Times are µs from t0."""
    paths = sorted(reader.path.resolve().parent.glob("*.pvti"))[:MOST_FILES]
    runs = reader.table("runs")
    if not paths:
        why = "No system trace (*.pvti) lies beside this report; PVTI_OPTIONS asks for one."
        return {"found": False, "why": why, "n_runs": len(runs["id"])}, {}
    traces = [_columns_of(path) for path in paths]
    starts = [t["start_ns"].min() for t in traces if len(t["start_ns"])]
    origin_ns = int(min(starts, default=0))
    events = _merged(traces, origin_ns)
    lanes, lane = coded(events.pop("lane"))
    labels, label = coded(events.pop("label"))
    channels, channel = coded(events.pop("channel"))
    graphs, samples = _series(traces, origin_ns)
    facts = {
        "found": True,
        "origin_ns": str(origin_ns),
        "files": [path.name for path in paths],
        "lanes": lanes,
        "labels": labels,
        "channels": channels,
        "graphs": graphs,
        "n_events": int(sum(len(t["start_ns"]) for t in traces)),
        "runs": [
            {
                "name": runs["name"][i],
                "from": (int(runs["host_start_us"][i]) * 1000 - origin_ns) / 1e3,
                "to": (int(runs["host_end_us"][i]) * 1000 - origin_ns) / 1e3,
                "cycles_from": int(runs["cycles_from"][i]),
                "cycles_to": int(runs["cycles_to"][i]),
            }
            for i in range(len(runs["id"]))
            if runs["host_end_us"][i] > 0
        ],
    }
    return facts, {"lane": lane, "label": label, "channel": channel, **events, **samples}


def _columns_of(path: Path) -> dict[str, Any]:
    with TraceReader(path) as trace:
        events = trace.events
        names = trace.thread_names
        pairs = zip(events.pid.tolist(), events.tid.tolist(), strict=True)
        return {
            "lane": [f"{names.get((p, t)) or t} · {p}" for p, t in pairs],
            "label": [trace.labels[i] for i in events.label.tolist()],
            "channel": [trace.channels[i] for i in events.channel.tolist()],
            "start_ns": events.start_ns,
            "duration_ns": events.duration_ns,
            "depth": events.depth,
            "series": trace.series,
        }


def _merged(traces: list[dict[str, Any]], origin_ns: int) -> dict[str, Any]:
    """All events in order of their start, the shortest left out where there are too many."""
    start = np.concatenate([t["start_ns"] for t in traces])
    duration = np.concatenate([t["duration_ns"] for t in traces])
    depth = np.concatenate([t["depth"] for t in traces])
    kept = np.argsort(-duration, kind="stable")[:MOST_EVENTS]
    kept = kept[np.argsort(start[kept], kind="stable")]
    texts = {
        name: [text for t in traces for text in t[name]] for name in ("lane", "label", "channel")
    }
    return {
        **{name: [column[i] for i in kept.tolist()] for name, column in texts.items()},
        "start_us": (start[kept] - origin_ns) / 1e3,
        "duration_us": np.where(duration[kept] < 0, -1.0, duration[kept] / 1e3),
        "depth": depth[kept],
    }


def _series(
    traces: list[dict[str, Any]], origin_ns: int
) -> tuple[list[dict[str, object]], dict[str, Ints]]:
    """Graphs, and two columns for each series of theirs: series_N_us and series_N."""
    found: list[dict[str, object]] = []
    columns: dict[str, Ints] = {}
    for trace in traces:
        for one in trace["series"]:
            step = max(1, -(-len(one["value"]) // MOST_SAMPLES))
            columns[f"series_{len(found)}_us"] = (one["time_ns"][::step] - origin_ns) / 1e3
            columns[f"series_{len(found)}"] = one["value"][::step]
            found.append({name: str(one[name]) for name in ("graph", "name", "unit")})
    return found, columns
