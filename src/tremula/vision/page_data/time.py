"""What the Program tree, Operations, Execution and Host views fetch."""

import numpy as np

from tremula.base.columns import coded
from tremula.base.errors import PoplarError
from tremula.compiler.report.phases import PHASES
from tremula.vision.analysis.host_verdict import host_verdict
from tremula.vision.analysis.operations import ideal_cycles, operation_of_step
from tremula.vision.analysis.stages import stage_facts
from tremula.vision.page_data.heat_blocks import heat_shape
from tremula.vision.page_data.pack import pack_of
from tremula.vision.report.reader import ReportReader
from tremula.vision.report.time_totals import machine_split, total_cycles
from tremula.vision.report.timeline.visits import VISIT_COLUMNS, WAIT_COLUMNS
from tremula.vision.trace.beside_report import host_columns

Ints = np.ndarray

ENTRIES_PER_PART = 16_384
_STEP_COLUMNS = (
    "compute_set", "executed", "is_known", "is_counted", "stage", *PHASES, "cycles",
    "total_cycles", *(f"path_{name}" for name in PHASES), "busy_cycles", "n_flops", "peak_cycles",
    "n_active_tiles", "balance", "active_balance", "critical_tile", "bytes_in", "bytes_out",
    "temporary_bytes", "largest_temporary",
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
    columns["ideal"] = ideal_cycles(reader).astype(np.float32)
    columns["n_vertices"] = _vertices_of(reader, table["compute_set"])
    busy = reader.busy_of_steps.sum(axis=1)
    for i, name in enumerate(PHASES):
        columns[f"ipu_{name}"] = reader.by_ipu(name).reshape(-1)
        columns[f"busy_{name}"] = busy[:, i]
    columns["ipu_bytes_in"] = reader.by_ipu("data_in").reshape(-1)
    facts = {
        "texts": texts,
        "phases": list(PHASES),
        "total_cycles": total_cycles(reader),
        "n_ipus": reader.n_ipus,
        "n_tiles": reader.n_tiles,
        "tiles_per_ipu": reader.tiles_per_ipu,
        "peaks": _peaks(reader),
        "exchange_bytes_per_cycle": reader.target["exchange_bytes_per_cycle"]
        * reader.tiles_per_ipu,
    }
    return pack_of(facts, columns)


def _peaks(reader: ReportReader) -> list[tuple[str, int]]:
    """(unit and type, flops per cycle of a chip's tiles), the highest first."""
    units = {
        "half": "matrix, half", "half_float": "matrix, half to float", "float": "matrix, float",
        "vector_half": "vector, half", "vector_float": "vector, float",
    }  # fmt: skip
    result = [
        (text, reader.target[f"flops_per_cycle_{name}"] * reader.tiles_per_ipu)
        for name, text in units.items()
    ]
    return sorted(result, key=lambda peak: -peak[1])


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
    """All nodes of the program trees, each with the cycles of everything in it."""
    table = reader.table("programs")
    texts, columns = {}, {}
    for name in ("kind", "name", "source", "root"):
        texts[name], columns[name] = coded(table[name])
    columns |= {name: table[name] for name in ("parent", "n_times", "step", "depth")}
    columns["path_cycles"] = table["total_cycles"]
    columns |= {f"path_{name}": table[f"path_{name}"] for name in PHASES}
    if reader.has_column("programs.busy"):  # files of version 2.0 do not say
        busy = reader.column("programs.busy")
        columns |= {f"busy_{name}": busy[:, i] for i, name in enumerate(PHASES)}
        columns["busy_cycles"] = busy.sum(axis=1)
    columns["n_steps"] = _n_steps(table["step"], table["parent"], table["depth"])
    facts = {"texts": texts, "total_cycles": total_cycles(reader), "n_ipus": reader.n_ipus}
    return pack_of(facts, columns)


def _n_steps(step: Ints, parent: Ints, depth: Ints) -> Ints:
    """Steps at or below each node."""
    result = (step >= 0).astype(np.int64)
    for level in range(int(depth.max(initial=0)), 0, -1):
        mine = np.flatnonzero(depth == level)
        np.add.at(result, parent[mine], result[mine])
    return result


def trace_facts(reader: ReportReader) -> dict[str, object]:
    """How the trace and the heat maps are cut, and the runs."""
    runs = reader.table("runs")
    shapes = {kind: heat_shape(reader, kind) for kind in ("phases", "live")}
    return {
        "n_entries": reader.n_entries,
        "n_executions": int(reader.info["n_executions"]),
        "is_folded": bool(reader.info["is_folded"]),
        "estimated_cycles": int(reader.info["estimated_cycles"]),
        "total_cycles": total_cycles(reader),
        "phases": list(PHASES),
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
    """The whole timeline in at most 1,024 buckets of entries, per chip."""
    facts, n = trace_facts(reader), reader.n_entries
    if not n:
        return pack_of(facts, {})
    columns = {
        "entry": np.arange(0, n, reader.overview_pool),
        "begin": reader.column("overview.begin").reshape(-1),
        "end": reader.column("overview.end").reshape(-1),
    }
    phases = reader.column("overview.phases")
    columns |= {name: phases[:, :, i].reshape(-1) for i, name in enumerate(PHASES)}
    return pack_of(facts, columns)


def trace_pack(reader: ReportReader, part: int) -> bytes | None:
    """16,384 entries of the timeline: what ran, how often, when on which chip."""
    first = part * ENTRIES_PER_PART
    last = min(reader.n_entries, first + ENTRIES_PER_PART)
    if part < 0 or first >= last:
        return None
    entries = reader.entries(first, last)
    before = np.concatenate((entries.start[:1], entries.end[:-1]))
    columns = {
        "step": entries.step,
        "times": entries.times,
        "stage": entries.stage,
        "micro_batch": entries.micro_batch,
        # The wait before an entry and its duration: small numbers, unlike absolute times.
        "gap": (entries.start - before).reshape(-1),
        "duration": (entries.end - entries.start).reshape(-1),
    }
    facts = {"first": first, "begin": entries.start[0].tolist()}
    return pack_of({**facts, "is_folded": bool((entries.times > 1).any())}, columns)


def stages_pack(reader: ReportReader) -> bytes:
    """Stages of pipelines over time: visits, waits, passes with fill, main and flush."""
    facts = stage_facts(reader)
    if not facts["stages"]:
        return pack_of(facts, {})
    columns = {}
    for prefix, table, names in (
        ("visit", "visits", VISIT_COLUMNS), ("wait", "waits", WAIT_COLUMNS),
    ):  # fmt: skip
        rows = reader.column(f"stages.{table}")
        columns |= {f"{prefix}_{name}": rows[:, i] for i, name in enumerate(names)}
    return pack_of(facts, columns)


def step_tiles_pack(reader: ReportReader, step: int) -> bytes | None:
    """One execution of a step on every tile, exactly."""
    if not 0 <= step < reader.n_steps:
        return None
    phases = reader.step_cycles(step)
    columns = {name: getattr(phases, name)[0] for name in (*PHASES, "idle")}
    return pack_of({"step": step}, columns)


def host_pack(reader: ReportReader) -> bytes:
    """The system trace beside a report, if there is one."""
    try:
        facts, columns = host_columns(reader)
    except PoplarError as error:
        facts, columns = {"has_trace": False, "why": str(error)}, {}
    if facts["has_trace"]:
        share = machine_split(reader)["host"] / max(1, total_cycles(reader))
        facts["verdict"] = host_verdict(facts, columns, reader.target["clock_hz"], share)
    return pack_of(facts, columns)
