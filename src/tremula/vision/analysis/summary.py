"""One function per view: plain dicts that the command line prints and the page shows."""

from collections.abc import Callable

import numpy as np

from tremula.compiler.report.intervals import energy_interval
from tremula.vision.analysis.insights import insights
from tremula.vision.analysis.operations import operation_columns
from tremula.vision.analysis.traffic import traffic
from tremula.vision.report.reader import ReportReader
from tremula.vision.report.time_totals import interval_of_total, machine_split, total_cycles

Facts = dict[str, object]
_N_SHOWN = 10


def records(columns: dict, order: np.ndarray | None = None) -> list[Facts]:
    """Rows as dicts of plain Python values, in the given order if there is one."""
    n = len(next(iter(columns.values()), ()))
    chosen = range(n) if order is None else order.tolist()
    listed = {
        name: column.tolist() if isinstance(column, np.ndarray) else column
        for name, column in columns.items()
    }
    return [{name: column[i] for name, column in listed.items()} for i in chosen]


def summary(reader: ReportReader) -> Facts:
    """Target, graph, whether it fits, totals, and how much of the cost is validated."""
    target = {k: v for k, v in reader.target.items() if k != "chip_toml"}
    return {
        "path": str(reader.path),
        "schema_version": list(reader.schema_version),
        "created": reader.info.get("created"),
        "target": target,
        "graph": {
            name: reader.info.get(f"n_{name}")
            for name in ("vertices", "edges", "variables", "compute_sets", "steps")
        },
        "programs": reader.info.get("program_names"),
        "n_program_nodes": len(reader.table("programs")["id"]),
        "memory": memory_totals(reader),
        "execution": execution_totals(reader),
        "standing_cycles": reader.info.get("standing_cycles"),
        "options": reader.options,
        "versions": reader.versions,
        "extra": reader.info.get("extra"),
        "insights": insights(reader)[:5],
    }


def memory_totals(reader: ReportReader) -> Facts:
    tiles = reader.table("tiles")
    used, available = tiles["including_gaps"], int(reader.info["available_bytes"])
    fullest = int(used.argmax())
    return {
        "fits": not bool(tiles["overflowed"].any()),
        "n_full_tiles": int((tiles["overflowed"] > 0).sum()),
        "available_per_tile": available,
        "total": int(used.sum()),
        "excluding_gaps": int(tiles["excluding_gaps"].sum()),
        "always_live": int(tiles["always_live"].sum()),
        "temporary": int(tiles["temporary"].sum()),
        "largest": int(used[fullest]),
        "fullest_tile": fullest,
        "fullest_tile_name": reader.tile_name(fullest),
        "mean": float(used.mean()),
        "share": float(used.sum() / (available * reader.n_tiles)),
    }


def execution_totals(reader: ReportReader) -> Facts | None:
    """The total and where it goes, on average over chips; None if nothing ran."""
    if not reader.has_run:
        return None
    ipus, tiles, total = reader.table("ipus"), reader.table("tiles"), total_cycles(reader)
    return {
        "total_cycles": total,
        "estimated_cycles": int(reader.info.get("estimated_cycles") or 0),
        "cycle_interval": interval_of_total(reader),
        "microseconds": total / reader.target["clock_hz"] * 1e6,
        "joules": reader.info.get("joules"),
        "joules_interval": energy_interval(reader.info.get("joules") or 0.0),
        "busiest_links": reader.info.get("busiest_links"),
        **machine_split(reader),
        "tile_compute_mean": float(tiles["compute"].mean()),
        "tile_exchange_mean": float(tiles["exchange"].mean()),
        "parallel_efficiency": float(tiles["compute"].mean() / max(1, total)),
        "n_flops": int(
            (reader.table("steps")["n_flops"] * reader.table("steps")["executed"]).sum()
        ),
        "n_runs": (reader.info.get("extra") or {}).get("n_runs", len(reader.table("runs")["id"])),
        "cycles_of_ipu": ipus["cycles"].tolist(),
    }


def memory(reader: ReportReader, tile: int | None = None) -> Facts:
    """Bytes by category, the fullest tiles, the largest variables; or what one tile holds."""
    if tile is not None:
        return tile_memory(reader, tile)
    tiles, variables = reader.table("tiles"), reader.table("variables")
    fullest = np.argsort(-tiles["including_gaps"], kind="stable")[:_N_SHOWN]
    largest = np.argsort(-variables["n_bytes"], kind="stable")[:_N_SHOWN]
    names = ("id", "name", "type", "shape", "n_bytes", "n_tiles", "always_live", "source")
    counts, edges = np.histogram(tiles["including_gaps"], bins=_N_SHOWN)
    return {
        **memory_totals(reader),
        "categories": [
            row
            for row in records(reader.table("categories"))
            if row["always_live"] or row["temporary"]
        ],
        "fullest_tiles": [
            {**row, "tile_name": reader.tile_name(tile)}
            for row, tile in zip(records(tiles, fullest), fullest.tolist(), strict=True)
        ],
        "largest_variables": records({n: variables[n] for n in names}, largest),
        "histogram": {"edges": edges.tolist(), "tiles": counts.tolist()},
        "vertex_types": records(reader.table("vertex_types")),
    }


def tile_memory(reader: ReportReader, tile: int) -> Facts:
    """What a tile holds at its fullest moment."""
    live, variables = reader.live_at_peak(tile), reader.table("variables")
    always, temporary = reader.matrix("always_live"), reader.matrix("temporary")
    names = reader.table("categories")["name"]
    n = len(names)
    rows = zip(
        names,
        always.rows(0, n)[:, tile].tolist(),
        temporary.rows(0, n)[:, tile].tolist(),
        strict=True,
    )
    return {
        "tile": tile,
        "tile_name": reader.tile_name(tile),
        **{k: v[tile].item() for k, v in reader.table("tiles").items() if k != "tile"},
        "categories": [
            {"name": name, "always_live": a, "temporary": t} for name, a, t in rows if a or t
        ],
        "variables": [
            {"name": variables["name"][v], "n_bytes": b, "always_live": a, "id": v}
            for v, b, a in zip(
                live.variable.tolist(),
                live.n_bytes.tolist(),
                live.always_live.tolist(),
                strict=True,
            )
        ],
    }


def liveness(reader: ReportReader) -> Facts:
    """Temporary bytes over steps, the peak, and which variables would lower it."""
    steps = reader.table("steps")
    always = int(reader.table("tiles")["always_live"].sum())
    if not reader.n_steps:
        return {"always_live": always, "peak_step": None, "temporary": [], "largest_temporary": []}
    peak = int(steps["temporary_bytes"].argmax())
    live, variables = reader.live_at(peak), reader.table("variables")
    temporary = ~live.always_live
    gains = zip(live.variable[temporary].tolist(), live.n_bytes[temporary].tolist(), strict=True)
    return {
        "always_live": always,
        "peak_step": peak,
        "peak_step_name": steps["path"][peak],
        "peak_temporary_bytes": int(steps["temporary_bytes"][peak]),
        "temporary": steps["temporary_bytes"].tolist(),
        "largest_temporary": steps["largest_temporary"].tolist(),
        "live_at_peak": [
            {
                "name": variables["name"][v],
                "n_bytes": b,
                "first_step": int(variables["first_step"][v]),
                "last_step": int(variables["last_step"][v]),
                "source": variables["source"][v],
                "frees": _frees(reader, v, peak),
            }
            for v, b in list(gains)[:_N_SHOWN]
        ],
    }


def _frees(reader: ReportReader, variable: int, peak: int) -> int:
    """How far the peak falls if a variable took no memory."""
    steps = reader.table("steps")
    curve, size = steps["temporary_bytes"], int(reader.table("variables")["n_bytes"][variable])
    without = curve.copy()
    for first, last in reader.lifetimes(variable).tolist():
        inside = (steps["instruction"] >= first) & (steps["instruction"] <= last)
        without[inside] -= size
    return int(curve[peak] - without.max())


def operations(reader: ReportReader) -> list[Facts]:
    """One row per operation, the most expensive first."""
    columns = operation_columns(reader)
    return records(columns, np.argsort(-columns["busy_cycles"], kind="stable"))  # pyright: ignore[reportOperatorIssue, reportArgumentType]


def steps(reader: ReportReader) -> list[Facts]:
    """One row per step, in order."""
    return records(reader.table("steps"))


def tree(reader: ReportReader) -> list[Facts]:
    """Nodes of all program trees, with the cycles of everything in them."""
    programs = reader.table("programs")
    executed = np.append(reader.table("steps")["executed"], 0)[programs["step"]]  # row -1 is 0
    busy = {}
    if reader.has_column("programs.busy"):  # files of version 2.0 do not say
        busy["busy_cycles"] = reader.column("programs.busy").sum(axis=1)
    return records({**programs, "executed": executed, **busy})


VIEWS: dict[str, Callable[[ReportReader], object]] = {
    "summary": summary,
    "memory": memory,
    "liveness": liveness,
    "ops": operations,
    "steps": steps,
    "tree": tree,
    "insights": insights,
    "traffic": traffic,
}
