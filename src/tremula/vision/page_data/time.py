"""What the Program tree, Operations, Execution and Host views fetch."""

import numpy as np

from tremula.base.columns import coded
from tremula.base.errors import PoplarError
from tremula.vision.analysis.host_verdict import host_verdict
from tremula.vision.analysis.operations import host_cycles_of_steps, ideal_cycles, operation_of_step
from tremula.vision.page_data.heat_blocks import heat_shape
from tremula.vision.page_data.pack import pack_of
from tremula.vision.report.reader import ReportReader
from tremula.vision.trace.beside_report import host_columns

Ints = np.ndarray

ENTRIES_PER_PART = 16_384
_MOST_BUCKETS = 1_024
_STEP_COLUMNS = (
    "compute_set", "executed", "is_known", "sync", "exchange", "compute", "cycles", "total_cycles",
    "n_flops", "peak_cycles", "n_active_tiles", "balance", "active_balance", "critical_tile",
    "bytes_in", "bytes_out", "temporary_bytes", "largest_temporary",
)  # fmt: skip


def steps_pack(reader: ReportReader) -> bytes:
    """All static steps, and what one execution of each takes on each chip."""
    table = reader.table("steps")
    texts, columns = {}, {}
    for name in ("path", "name", "type", "source"):
        texts[name], columns[name] = coded(table[name])
    texts["operation"], columns["operation"] = operation_of_step(reader)
    columns |= {name: table[name] for name in _STEP_COLUMNS}
    for name in ("balance", "active_balance"):
        columns[name] = table[name].astype(np.float32)
    columns["host"] = host_cycles_of_steps(reader)
    columns["ideal"] = ideal_cycles(reader).astype(np.float32)
    columns["n_vertices"] = _vertices_of(reader, table["compute_set"])
    if reader.n_ipus > 1:
        takes_part = reader.by_ipu("is_active") | reader.by_ipu("joins")
        for name in ("sync", "exchange", "compute"):
            columns[f"ipu_{name}"] = (reader.by_ipu(name) * takes_part).reshape(-1)
    facts = {
        "texts": texts,
        "n_ipus": reader.n_ipus,
        "n_tiles": reader.n_tiles,
        "peaks": _peaks(reader),
        "exchange_bytes_per_cycle": reader.target["exchange_bytes_per_cycle"] * reader.n_tiles,
    }
    return pack_of(facts, columns)


def _peaks(reader: ReportReader) -> list[tuple[str, int]]:
    """(unit and type, flops per cycle of all tiles), the highest first."""
    units = {
        "half": "matrix, half", "half_float": "matrix, half to float", "float": "matrix, float",
        "vector_half": "vector, half", "vector_float": "vector, float",
    }  # fmt: skip
    found = [
        (text, reader.target[f"flops_per_cycle_{name}"] * reader.n_tiles)
        for name, text in units.items()
        if f"flops_per_cycle_{name}" in reader.target  # schema 1.0 has only two of them
    ]
    return sorted(found, key=lambda peak: -peak[1])


def _vertices_of(reader: ReportReader, compute_set: Ints) -> Ints:
    counts = np.append(reader.table("compute_sets")["n_vertices"], 0)
    return counts[compute_set]  # row -1 is the appended zero


def vertices_pack(reader: ReportReader) -> bytes:
    """Codelets, and how many vertices of each are in which compute set."""
    types, rows = reader.table("vertex_types"), reader.table("vertices")
    texts, columns = {"name": list(types["name"]), "standing": list(types["standing"])}, {}
    for name in ("n_vertices", "cycles", "code_bytes", "state_bytes"):
        columns[f"type_{name}"] = types[name]
    for name in ("compute_set", "vertex_type", "n_vertices", "n_flops", "cycles"):
        columns[name] = rows[name]
    return pack_of({"texts": texts}, columns)


def tree_pack(reader: ReportReader) -> bytes:
    """All nodes of the program trees, each with the sum of what ran in it."""
    table = reader.table("programs")
    texts, columns = {}, {}
    for name in ("kind", "name", "source", "root"):
        texts[name], columns[name] = coded(table[name])
    parent, step = table["parent"], table["step"]
    steps = reader.table("steps")
    sums = {
        name: np.append(steps[column] * (1 if name == "cycles" else steps["executed"]), 0)[step]
        for name, column in (
            ("cycles", "total_cycles"), ("compute", "compute"), ("exchange", "exchange"),
            ("sync", "sync"),
        )
    }  # fmt: skip
    sums["n_steps"] = np.where(step >= 0, 1, 0)
    sums = {name: _with_children(column, parent) for name, column in sums.items()}
    columns |= {"parent": parent, "n_times": table["n_times"], "step": step}
    return pack_of({"texts": texts}, {**columns, **sums})


def _with_children(column: Ints, parent: Ints) -> Ints:
    """Each node's value and those of everything below it; children come after their parents."""
    sums, above = column.tolist(), parent.tolist()
    for node in range(len(sums) - 1, -1, -1):
        if above[node] >= 0:
            sums[above[node]] += sums[node]
    return np.array(sums, np.int64)


def trace_facts(reader: ReportReader) -> dict[str, object]:
    """How the trace and the heat maps are cut, and the runs."""
    runs = reader.table("runs")
    shapes = {kind: heat_shape(reader, kind) for kind in ("phases", "live")}
    return {
        "n_entries": reader.n_entries,
        "n_per_part": ENTRIES_PER_PART,
        "n_ipus": reader.n_ipus,
        "tiles_per_ipu": reader.tiles_per_ipu,
        "clock_hz": reader.target["clock_hz"],
        "runs": [
            {name: column[i] for name, column in runs.items()} for i in range(len(runs["id"]))
        ],
        "heat": {
            kind: {
                "n_entries": shape.n_entries,
                "n_levels": shape.n_levels,
                "rows": list(shape.rows_of_level),
            }
            for kind, shape in shapes.items()
        },
        "largest_temporary": int(reader.table("steps")["largest_temporary"].max(initial=0)),
    }


def overview_pack(reader: ReportReader) -> bytes:
    """The whole trace in at most 1,024 buckets of entries, per chip."""
    facts, n = trace_facts(reader), reader.n_entries
    if not n:
        return pack_of(facts, {})
    trace = reader.trace
    per_bucket = -(-n // _MOST_BUCKETS)
    starts = np.arange(0, n, per_bucket)
    ends = np.append(starts[1:], n) - 1
    takes_part = reader.by_ipu("is_active") | reader.by_ipu("joins")
    columns = {
        "entry": starts,
        "begin": trace.start[starts].reshape(-1),
        "end": trace.end[ends].reshape(-1),
    }
    for name in ("sync", "exchange", "compute"):
        cycles = (reader.by_ipu(name) * takes_part)[trace.step] * trace.times[:, None]
        columns[name] = np.add.reduceat(cycles, starts, axis=0).reshape(-1)
    return pack_of(facts, columns)


def trace_pack(reader: ReportReader, part: int) -> bytes | None:
    """16,384 entries of the trace: what ran, how often, when on which chip."""
    first = part * ENTRIES_PER_PART
    last = min(reader.n_entries, first + ENTRIES_PER_PART)
    if part < 0 or first >= last:
        return None
    trace = reader.trace
    start, end = trace.start[first:last], trace.end[first:last]
    before = np.concatenate((start[:1], end[:-1]))
    columns = {
        "step": trace.step[first:last],
        "times": trace.times[first:last],
        # The wait before an entry and its duration: small numbers, unlike absolute times.
        "gap": (start - before).reshape(-1),
        "duration": (end - start).reshape(-1),
    }
    return pack_of({"first": first, "begin": start[0].tolist()}, columns)


def step_tiles_pack(reader: ReportReader, step: int) -> bytes | None:
    """One execution of a step on every tile, exactly."""
    if not 0 <= step < reader.n_steps:
        return None
    phases = reader.step_cycles(step)
    columns = {name: getattr(phases, name)[0] for name in ("compute", "exchange", "sync", "idle")}
    return pack_of({"step": step}, columns)


def host_pack(reader: ReportReader) -> bytes:
    """The system trace beside a report, if there is one."""
    try:
        facts, columns = host_columns(reader)
    except PoplarError as error:
        facts, columns = {"found": False, "why": str(error)}, {}
    if facts["found"]:
        total = max(1, int(reader.info.get("total_cycles") or 0))
        transfers = host_cycles_of_steps(reader) * reader.table("steps")["executed"]
        share = min(1.0, int(transfers.sum()) / total)
        facts["verdict"] = host_verdict(facts, columns, reader.target["clock_hz"], share)
    return pack_of(facts, columns)
