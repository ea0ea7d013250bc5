"""The system traces in a report's folder, merged into columns for the Host view."""

import json
from pathlib import Path
from typing import Any

import numpy as np

from tremula.base.columns import coded
from tremula.base.storage.strict_json import JsonObject
from tremula.vision.report.reader import ReportReader
from tremula.vision.trace.reader import TraceReader

Ints = np.ndarray

# Only the longest events are shown: more would make the page slow.
MOST_EVENTS, MOST_SAMPLES, MOST_FILES = 60_000, 20_000, 8


def host_columns(reader: ReportReader) -> tuple[JsonObject, dict[str, Ints]]:
    """Facts and columns; `has_trace` says whether there is a trace at all. Times are µs from t0."""
    traces = _of_last_run([_columns_of(path) for path in trace_paths(reader)])
    if not traces:
        why = (
            "There is no system trace (*.pvti) next to this report; set PVTI_OPTIONS to record one."
        )
        return {"has_trace": False, "why": why, "n_runs": len(reader.table("runs")["id"])}, {}
    origin_ns = min(t["from_ns"] for t in traces)
    events = _merged(traces, origin_ns)
    lanes, lane = coded(events.pop("lane"))
    labels, label = coded(events.pop("label"))
    channels, channel = coded(events.pop("channel"))
    graphs, samples = _series(traces, origin_ns)
    facts = {
        "has_trace": True,
        "origin_ns": str(origin_ns),
        "files": [t["file"] for t in traces],
        "lanes": lanes,
        "labels": labels,
        "channels": channels,
        "graphs": graphs,
        "n_events": int(sum(len(t["start_ns"]) for t in traces)),
        "runs": [*_runs_of_engine(reader, origin_ns), *_runs_of_model(reader, traces, origin_ns)],
    }
    return facts, {"lane": lane, "label": label, "channel": channel, **events, **samples}


def trace_paths(reader: ReportReader) -> list[Path]:
    """The newest traces beside a report; a model's report is one folder below its run's traces."""
    folder = reader.path.resolve().parent
    folders = [folder, folder.parent] if model_of(reader) else [folder]
    paths = [path for one in folders for path in one.glob("*.pvti")]
    return sorted(paths, key=lambda path: path.stat().st_mtime)[-MOST_FILES:]


def model_of(reader: ReportReader) -> object:
    """The PopTorch model that a report is about; None for others."""
    return (reader.info.get("extra") or {}).get("model")


def _of_last_run(traces: list[JsonObject]) -> list[JsonObject]:
    """The traces that overlap the last one: a folder also keeps those of older runs."""
    if not traces:
        return []
    last = max(traces, key=lambda t: t["to_ns"])
    return [t for t in traces if t["to_ns"] >= last["from_ns"]]


def _runs_of_engine(reader: ReportReader, origin_ns: int) -> list[dict[str, object]]:
    """Runs that an engine recorded, with host times."""
    runs = reader.table("runs")
    return [
        {
            "name": runs["name"][i],
            "from": (int(runs["host_start_us"][i]) * 1000 - origin_ns) / 1e3,
            "to": (int(runs["host_end_us"][i]) * 1000 - origin_ns) / 1e3,
            "cycles_from": int(runs["cycles_from"][i]),
            "cycles_to": int(runs["cycles_to"][i]),
        }
        for i in range(len(runs["id"]))
        if runs["host_end_us"][i] > 0
    ]


def _runs_of_model(
    reader: ReportReader, traces: list[JsonObject], origin_ns: int
) -> list[dict[str, object]]:
    """Calls of a model that ran on the host: each stands for one run of the report."""
    model, result = model_of(reader), []
    for trace in traces:
        for event, details in trace["details"].items():
            if model is not None and report_in(details) == model:
                start_ns = int(trace["start_ns"][event]) - origin_ns
                end_ns = start_ns + int(trace["duration_ns"][event])
                result.append({"name": model, "from": start_ns / 1e3, "to": end_ns / 1e3})
    cycles = {"cycles_from": 0, "cycles_to": int(reader.info.get("total_cycles") or 0)}
    return [{**run, **cycles} for run in result]


def report_in(details: str) -> object:
    """The report that an event's details name, if any."""
    return json.loads(details).get("report")


def _columns_of(path: Path) -> JsonObject:
    with TraceReader(path) as trace:
        events = trace.events
        ends: list[Any] = [events.start_ns + np.maximum(events.duration_ns, 0)]
        ends += [one["time_ns"] for one in trace.series]
        starts_ns = int(trace.info.get("started_ns", 0))
        names = trace.thread_names
        pairs = zip(events.pid.tolist(), events.tid.tolist(), strict=True)
        return {
            "file": path.name,
            "from_ns": min([starts_ns, *events.start_ns[:1].tolist()]),
            "to_ns": max([starts_ns, *(int(e.max()) for e in ends if len(e))]),
            "details": trace.details,
            "lane": [f"{names.get((p, t)) or t} · {p}" for p, t in pairs],
            "label": [trace.labels[i] for i in events.label.tolist()],
            "channel": [trace.channels[i] for i in events.channel.tolist()],
            "start_ns": events.start_ns,
            "duration_ns": events.duration_ns,
            "depth": events.depth,
            "series": trace.series,
        }


def _merged(traces: list[JsonObject], origin_ns: int) -> JsonObject:
    """All events in order of their start, the shortest left out where there are too many."""
    start = np.concatenate([t["start_ns"] for t in traces])
    duration = np.concatenate([t["duration_ns"] for t in traces])
    depth = np.concatenate([t["depth"] for t in traces])
    selected = np.argsort(-duration, kind="stable")[:MOST_EVENTS]
    selected = selected[np.argsort(start[selected], kind="stable")]
    texts = {
        name: [text for t in traces for text in t[name]] for name in ("lane", "label", "channel")
    }
    return {
        **{name: [column[i] for i in selected.tolist()] for name, column in texts.items()},
        "start_us": (start[selected] - origin_ns) / 1e3,
        "duration_us": np.where(duration[selected] < 0, -1.0, duration[selected] / 1e3),
        "depth": depth[selected],
    }


def _series(
    traces: list[JsonObject], origin_ns: int
) -> tuple[list[dict[str, object]], dict[str, Ints]]:
    """Graphs, and two columns for each of their series: series_N_us and series_N."""
    result: list[dict[str, object]] = []
    columns: dict[str, Ints] = {}
    for trace in traces:
        for one in trace["series"]:
            step = max(1, -(-len(one["value"]) // MOST_SAMPLES))
            columns[f"series_{len(result)}_us"] = (one["time_ns"][::step] - origin_ns) / 1e3
            columns[f"series_{len(result)}"] = one["value"][::step]
            result.append({name: str(one[name]) for name in ("graph", "name", "unit")})
    return result, columns
