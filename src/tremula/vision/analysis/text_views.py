"""Views as text, for terminals."""

from collections.abc import Iterable, Sequence

from tremula.base.wording import counted
from tremula.compiler.report.phases import PHASES
from tremula.vision.analysis.quantities import QUANTITIES, heading
from tremula.vision.report.time_totals import PARTS

_BAR_WIDTH = 40
_NOUNS = {
    "vertices": "vertex", "edges": "edge", "variables": "variable", "compute_sets": "compute set",
    "steps": "step",
}  # fmt: skip
_AT_PEAKS = (heading("always_live"), heading("temporary_peaks"))
_ON_A_TILE = (heading("tile_always_live"), heading("tile_temporary"))


def table(heads: Sequence[str], rows: Iterable[Sequence[object]], limit: int = 0) -> str:
    """An aligned table, text to the left, numbers to the right; at most `limit` rows."""
    listed = [list(row) for row in rows]
    shown = listed[:limit] if limit else listed
    cells = [[_cell(value) for value in row] for row in shown]
    widths = [max(len(r[i]) for r in [list(heads), *cells]) for i in range(len(heads))]
    is_text = [bool(shown) and isinstance(shown[0][i], str) for i in range(len(heads))]
    lines = [_line(heads, widths, is_text), *(_line(row, widths, is_text) for row in cells)]
    if len(listed) > len(shown):
        lines.append(f"… {len(listed) - len(shown):,} more; --limit 0 shows all")
    return "\n".join(lines)


def _line(row: Sequence[str], widths: list[int], is_text: list[bool]) -> str:
    parts = [
        cell.ljust(width) if left else cell.rjust(width)
        for cell, width, left in zip(row, widths, is_text, strict=True)
    ]
    return "  ".join(parts).rstrip()


def _cell(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:.3g}" if isinstance(value, float) else printable(str(value))


def printable(text: str) -> str:
    """Names come from a file that is not trusted: no control characters reach the terminal."""
    return "".join(c if c.isprintable() else "�" for c in text)


def text_of_view(view: str, data: object, limit: int) -> str:
    return _VIEWS[view](data, limit)


def _fit(memory: dict) -> str:
    word = "fits" if memory["fits"] else "DOES NOT FIT"
    of = f"{memory['largest']:,} of {memory['available_per_tile']:,} B"
    name = memory["fullest_tile_name"]
    share = f"{100 * memory['share']:.1f} % of all"
    return f"Memory: {word}; fullest is {name} with {of}; {share}"


def _summary(data: dict, _: int) -> str:
    target, memory, execution = data["target"], data["memory"], data["execution"]
    lines = [
        f"{target['chip']}: {target['n_ipus']} × {counted(target['tiles_per_ipu'], 'tile')}"
        + (f", {target['n_replicas']} replicas" if target["n_replicas"] > 1 else ""),
        "Graph: " + ", ".join(counted(n, _NOUNS[name]) for name, n in data["graph"].items()),
        f"Programs: {len(data['programs'] or ()):,}, with "
        + counted(data["n_program_nodes"], "node"),
        _fit(memory),
    ]
    if execution is None:
        lines.append("Execution: nothing ran")
    else:
        total = max(1, execution["total_cycles"])
        parts = ", ".join(f"{name} {100 * execution[name] / total:.1f} %" for name in PARTS)
        of = " of all chips" if target["n_ipus"] > 1 else ""
        lines.append(
            f"Execution: {execution['total_cycles']:,} cycles, {execution['microseconds']:,.1f} µs "
            f"({parts}{of})"
        )
        if execution["cycle_interval"] is not None:
            low, high = execution["cycle_interval"]
            lines.append(
                f"On hardware, nine times in ten: {low:,} to {high:,} cycles "
                f"({low / total - 1:+.0%} to {high / total - 1:+.0%})"
            )
        if execution["joules"] is not None:  # reports of earlier versions have none
            low, high = execution["joules_interval"]
            lines.append(
                f"Energy: {execution['joules']:.4g} J ({low:.4g} to {high:.4g} by stated powers of "
                "machines; no program's energy was measured)"
            )
        if execution["busiest_links"]:
            lines.append(f"Busiest link: {printable(execution['busiest_links'][0]['name'])}")
        if execution["estimated_cycles"]:
            lines.append(
                f"Not recorded in order: {execution['estimated_cycles']:,} cycles, which steps and "
                "operations share as their busy cycles do"
            )
    advice = [f"  {i}. {printable(item['title'])}" for i, item in enumerate(data["insights"], 1)]
    return "\n".join([*lines, *(["Advice (`insights` says more):", *advice] if advice else [])])


def _memory(data: dict, limit: int) -> str:
    if "tile" in data:
        rows = [(v["name"], v["n_bytes"], v["always_live"]) for v in data["variables"]]
        categories = [(c["name"], c["always_live"], c["temporary"]) for c in data["categories"]]
        return "\n\n".join(
            [
                f"{data['tile_name'].capitalize()}: {data['including_gaps']:,} B",
                table((heading("category"), *_ON_A_TILE), categories),
                table(("variable", "bytes", "always live"), rows, limit),
            ]
        )
    categories = [(c["name"], c["always_live"], c["temporary"]) for c in data["categories"]]
    tiles = [
        (t["tile_name"], t["including_gaps"], t["always_live"], t["temporary"])
        for t in data["fullest_tiles"]
    ]
    variables = [
        (v["name"], v["type"], v["shape"], v["n_bytes"], v["n_tiles"])
        for v in data["largest_variables"]
    ]
    parts = (
        f"{data['always_live']:,} {heading('always_live')}, "
        f"{data['temporary']:,} {heading('temporary_peaks')}"
    )
    return "\n\n".join(
        [
            f"All tiles: {data['total']:,} B including gaps, {parts}",
            table((heading("category"), *_AT_PEAKS), categories),
            table(("tile", heading("tile_needs"), *_ON_A_TILE), tiles, limit),
            table(("variable", "type", "shape", "bytes", "tiles"), variables, limit),
        ]
    )


def _liveness(data: dict, limit: int) -> str:
    if data["peak_step"] is None:
        return "There are no steps."
    peak = f"{data['peak_temporary_bytes']:,} B, at step {data['peak_step']}"
    lines = [
        f"Always live: {data['always_live']:,} B on all tiles.",
        f"{QUANTITIES['temporary_peak'].title}: {peak} ({printable(data['peak_step_name'])}).",
        "",
        *_curve(data["temporary"]),
    ]
    rows = [
        (v["name"], v["n_bytes"], v["frees"], v["first_step"], v["last_step"])
        for v in data["live_at_peak"]
    ]
    heads = ("live at the peak", "bytes", "would free", "from step", "to step")
    return "\n".join([*lines, "", table(heads, rows, limit)])


def _curve(values: list[int], n_rows: int = 16) -> list[str]:
    """One bar per range of steps: its largest value."""
    most, n = max([*values, 1]), len(values)
    lines = []
    for i in range(min(n_rows, n)):
        first, last = i * n // min(n_rows, n), (i + 1) * n // min(n_rows, n)
        largest = max(values[first:last])
        lines.append(
            f"{first:>8,}  {'█' * round(_BAR_WIDTH * largest / most):<{_BAR_WIDTH}} {largest:,}"
        )
    return lines


def _ops(data: list, limit: int) -> str:
    heads = (
        *map(heading, ("operation", "path_cycles", "path_share", "busy_cycles", "executed",
                       "n_flops", "flops_per_cycle", "of_peak", "of_roofline", "flops_per_byte",
                       "bound", "balance", "n_vertices")),
    )  # fmt: skip
    total = max(1, sum(o["path_cycles"] for o in data))
    rows = [
        (o["name"], o["path_cycles"], o["path_cycles"] / total, o["busy_cycles"], o["executed"],
         o["n_flops"], _rate(o["flops_per_cycle"]), o["efficiency"], o["roofline"],
         _rate(o["intensity"]), o["bound"], o["balance"], o["n_vertices"])
        for o in data
    ]  # fmt: skip
    return table(heads, rows, limit)


def _rate(value: float) -> float | int:
    """Whole from 1000 up: more digits say nothing."""
    return round(value) if value >= 1000 else value


def _steps(data: list, limit: int) -> str:
    heads = (
        "step", "kind", "id", heading("executed"), *(heading(f"once_{name}") for name in PHASES),
        *map(heading, ("n_active_tiles", "active_balance", "temporary_at_step")),
    )  # fmt: skip
    rows = [
        (s["path"], s["kind"], s["id"], s["executed"], *(s[name] for name in PHASES),
         s["n_active_tiles"], s["active_balance"], s["temporary_bytes"])
        for s in data
    ]  # fmt: skip
    return table(heads, rows, limit)


def _tree(data: list, limit: int) -> str:
    lines = []
    for node in data[:limit] if limit else data:
        times = f" × {node['n_times']:,}" if node["kind"] == "Repeat" else ""
        cycles = _node_cycles(node)
        name = f" {printable(node['name'])}" if node["name"] else ""
        lines.append(f"{'  ' * node['depth']}{node['kind']}{name}{times}{cycles}")
    if limit and len(data) > limit:
        lines.append(f"… {len(data) - limit:,} more; --limit 0 shows all")
    return "\n".join(lines)


def _node_cycles(node: dict) -> str:
    """What a node takes: on one chip both are the same."""
    path, busy = node["total_cycles"], node.get("busy_cycles", node["total_cycles"])
    if path == busy:
        return f"  [{path:,} cycles]" if path else ""
    return f"  [{busy:,} {heading('busy_cycles')}, {path:,} on the {heading('path_cycles')}]"


def _insights(data: list, limit: int) -> str:
    if not data:
        return "Nothing stands out."
    parts = []
    for number, item in enumerate(data[:limit] if limit else data, 1):
        saves = [f"up to {item['saves_cycles']:,} cycles"] if item["saves_cycles"] else []
        saves += [f"up to {item['saves_bytes']:,} bytes on a tile"] if item["saves_bytes"] else []
        gain = f"\n   saves {' and '.join(saves)}" if saves else ""
        parts.append(f"{number}. {printable(item['title'])}\n   {printable(item['text'])}{gain}")
    return "\n".join(parts)


def _traffic(data: dict, limit: int) -> str:
    what = "everything that ran" if data["step"] is None else f"one execution of {data['path']}"
    heads = ("from", "to", heading("route_bytes"))
    routes = [(r["from"], r["to"], r["n_bytes"]) for r in data["routes"]]
    head = (
        f"{data['n_bytes']:,} B between tiles in {counted(data['n_routes'], 'route')}, {what}; "
        f"{data['from_outside']:,} B from the host or other replicas, {data['to_outside']:,} B to "
        "them."
    )
    return f"{head}\n{table(heads, routes, limit)}" if routes else head


_VIEWS = {
    "summary": _summary, "memory": _memory, "liveness": _liveness, "ops": _ops, "steps": _steps,
    "tree": _tree, "insights": _insights, "traffic": _traffic,
}  # fmt: skip
