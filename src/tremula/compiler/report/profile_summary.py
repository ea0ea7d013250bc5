"""The profile summary: a report as text, in the layout Poplar users know."""

from collections.abc import Iterator

import numpy as np

from tremula.base.wording import counted
from tremula.compiler.passes.memory import CATEGORIES, PARTS
from tremula.compiler.report.energy import PARTS as ENERGY_PARTS
from tremula.compiler.report.phases import PHASES
from tremula.compiler.report.report import ProgramReport

_STARS = 40
_HISTOGRAM_BUCKETS = 8
_BUSIEST_LINKS = 4
_FULLEST_TILES = 5


def profile_summary(
    report: ProgramReport, *, show_execution_steps: bool = False, show_var_storage: bool = False
) -> str:
    """Target, graph, memory and execution; with options also every step and the fullest tiles."""
    parts = [_target(report), _graph(report), _memory(report, show_var_storage)]
    if report.has_run:
        parts.append(_execution(report))
    if show_execution_steps:
        parts.append(_steps(report))
    return "\n\n".join("\n".join(part) for part in parts)


def _rows(indent: int, rows: list[tuple[str, str]]) -> Iterator[str]:
    """Lines `name:   value` with values in one column."""
    width = max((len(name) for name, _ in rows), default=0) + 2
    return (f"{' ' * indent}{name + ':':<{width}}{value}" for name, value in rows)


def _target(report: ProgramReport) -> list[str]:
    target, chip = report.target, report.chip
    total_mb = target.n_tiles * chip.n_bytes_per_tile / 1e6
    rows = [
        ("Number of IPUs", f"{target.n_ipus}"),
        ("Tiles per IPU", f"{target.tiles_per_ipu:,}"),
        ("Total Tiles", f"{target.n_tiles:,}"),
        ("Memory Per-Tile", f"{chip.n_bytes_per_tile / 1024:.1f} kB"),
        ("Total Memory", f"{total_mb:.1f} MB"),
        ("Clock Speed (approx)", f"{chip.clock_hz / 1e6:,.1f} MHz"),
        ("Chip", chip.name),
    ]
    if report.replication_factor > 1:
        rows.insert(1, ("Number of Replicas", f"{report.replication_factor}"))
    return ["Target:", *_rows(2, rows)]


def _graph(report: ProgramReport) -> list[str]:
    rows = [
        ("Number of vertices", f"{report.n_vertices:,}"),
        ("Number of edges", f"{report.n_edges:,}"),
        ("Number of variables", f"{report.n_variables:,}"),
        ("Number of compute sets", f"{report.n_compute_sets:,}"),
    ]
    return ["Graph:", *_rows(2, rows)]


def _memory(report: ProgramReport, show_tiles: bool) -> list[str]:
    memory = report.memory
    including, excluding = memory.including_gaps, memory.excluding_gaps
    placement = memory.placement
    regions = [
        ("Non-interleaved", f"{int(placement.region0.sum()):,} B"),
        ("Interleaved", f"{int(placement.region1.sum()):,} B"),
        ("Overflowed", f"{int(placement.overflowed.sum()):,} B"),
    ]
    by_type = [(name, f"{int(memory.category(name).sum()):,} B") for name in CATEGORIES]
    n_full = int(memory.is_full.sum())
    lines = [
        "Memory Usage:",
        "  Total:",
        f"    Including Gaps:  {int(including.sum()):,} B",
        "    Excluding Gaps:",
        "      By Memory Region:",
        *_rows(8, regions),
        f"      Total:  {int(excluding.sum()):,} B",
        "      By Data Type:",
        *_rows(8, by_type),
        *_vertex_data(report),
        "  By Tile (Excluding Gaps):",
        *_histogram(excluding),
        f"    Maximum (Including Gaps): {_largest(including)}",
        f"    Maximum (Excluding Gaps): {_largest(excluding)}",
        f"    {n_full} tile(s) out of memory",  # Poplar's words, which scripts parse
    ]
    if show_tiles or n_full:
        lines += _fullest_tiles(report)
    return lines


def _largest(n_bytes_of_tile: np.ndarray) -> str:
    return f"{_kilo(int(n_bytes_of_tile.max()))} on tile {int(n_bytes_of_tile.argmax())}"


def _kilo(n_bytes: int) -> str:
    return f"{n_bytes:,} ({n_bytes / 1024:.1f} K)"


def _vertex_data(report: ProgramReport) -> list[str]:
    vertices = report.memory.vertices
    parts = zip(PARTS, vertices.bytes_of_part.tolist(), strict=True)
    categories = [(name, f"{n_bytes:,} B") for name, n_bytes in parts]
    types = [(name, f"{n_bytes:,} B") for name, n_bytes in vertices.bytes_of_type.items()]
    return [
        "  Vertex Data:",
        "    By Category:",
        *_rows(6, categories),
        "    By Type:",
        *_rows(6, types),
    ]


def _histogram(values: np.ndarray) -> list[str]:
    """Tiles by bytes, a row of stars for each range."""
    low, high = int(values.min()), int(values.max())
    if low == high:
        return [f"    {low:>11,} - {high:>11,}  [{'*' * _STARS}] {len(values):,} tiles"]
    counts, edges = np.histogram(values, bins=_HISTOGRAM_BUCKETS)
    lines = []
    for count, begin, end in zip(counts, edges[:-1], edges[1:], strict=True):
        stars = "*" * int(np.ceil(_STARS * count / counts.max()))
        lines.append(
            f"    {int(begin):>11,} - {int(end):>11,}  [{stars:<{_STARS}}] {count:,} tiles"
        )
    return lines


def _fullest_tiles(report: ProgramReport) -> list[str]:
    including = report.memory.including_gaps
    lines = [f"  The {_FULLEST_TILES} fullest tiles:"]
    for tile in np.argsort(including)[::-1][:_FULLEST_TILES].tolist():
        n_bytes = [
            (name, int(n[tile])) for name, n in report.bytes_by_category().items() if n[tile]
        ]
        shown = ", ".join(f"{name} {n:,}" for name, n in sorted(n_bytes, key=lambda h: -h[1])[:4])
        lines.append(f"    tile {tile}: {int(including[tile]):,} B ({shown})")
    return lines


def _execution(report: ProgramReport) -> list[str]:
    total = report.total_cycles
    microseconds = report.total_seconds * 1e6
    parts = dict(zip(PHASES, report.phases_of_chip.mean(axis=0).tolist(), strict=True))

    def share(cycles: float) -> str:
        return f"{cycles:,.1f} ({100 * cycles / max(total, 1):.1f}% of total)"

    rows = [
        (
            "Tile average compute cycles (including idle threads)",
            share(report.tiles.compute.mean()),
        ),
        ("Tile average compute cycles (excluding idle threads)", share(report.tiles.busy.mean())),
        ("Tile average IPU exchange cycles", share(report.tiles.exchange.mean())),
        ("Tile average global exchange cycles", share(parts["links"])),
        ("Tile average host exchange cycles", share(parts["host"])),
        ("Tile average sync cycles", share(parts["sync"])),
        ("Chip average waiting cycles", share(total - sum(parts.values()))),
    ]
    types = [
        (f"{row.codelet} ({row.n_vertices:,} instances)", f"{row.cycles:,} [{row.provenance}]")
        for row in sorted(report.vertex_types, key=lambda row: -row.cycles)
    ]
    return [
        "Execution:",
        f"  Programs executed: {', '.join(report.program_names)}",
        f"  Total cycles:  {total:,} (approx {microseconds:,.1f} microseconds)",
        "  On hardware, nine times in ten:  {:,} to {:,} cycles".format(*report.cycle_interval),
        *_rows(2, rows),
        *_links(report),
        *_energy(report),
        "  Cycles by vertex type:",
        *_rows(4, types),
        f"  Provenance of vertex cycles: {_provenance(report)}",
    ]


def _links(report: ProgramReport) -> list[str]:
    """The busiest links between chips, the bottleneck first."""
    links = report.links
    if not len(links):
        return []
    shares = 100 * links.busy_seconds / max(report.total_seconds, 1e-30)
    rows = [
        (links.name[i], f"{int(links.n_bytes[i]):,} B, busy {shares[i]:.1f}% of the time")
        for i in range(min(len(links), _BUSIEST_LINKS))
    ]
    return [f"  Links between chips: {len(links)} in use, the busiest first", *_rows(4, rows)]


NO_MEASUREMENT = "no program's energy was measured"


def _energy(report: ProgramReport) -> list[str]:
    """Joules by part, each with the provenance of the constants it rests on."""
    energy = report.energy
    rows = [
        (part, f"{getattr(energy, part):.4g} J [{energy.provenances[part]}]")
        for part in ENERGY_PARTS
    ]
    chips = counted(energy.n_chips, "chip")
    head = f"  Energy:  {energy.total:.4g} J, {energy.watts:,.0f} W on {chips}"
    low, high = energy.interval
    note = f"    {low:.4g} to {high:.4g} J by stated powers of machines; {NO_MEASUREMENT}"
    return [head, note, *_rows(4, rows)]


def _provenance(report: ProgramReport) -> str:
    total = sum(report.provenance_cycles.values())
    if not total:
        return "none counted"
    return ", ".join(
        f"{100 * cycles / total:.1f}% {name}"
        for name, cycles in report.provenance_cycles.items()
        if cycles
    )


def _steps(report: ProgramReport) -> list[str]:
    steps = report.steps
    counts = f"{'times':>8} {'sync':>8} {'exchange':>9} {'compute':>10} {'tiles':>6}"
    lines = ["Execution Steps:", f"  {counts} {'balance':>8}  step"]
    for i, name in enumerate(steps.name):
        compute = f"{int(steps.compute[i].max()):,}" if steps.is_known[i] else "not run"
        path = "/".join((*steps.path[i], name))
        lines.append(
            f"  {int(steps.executed[i]):>8,} {int(steps.sync[i].max()):>8,} "
            f"{int(steps.exchange[i].max()):>9,} {compute:>10} {int(steps.n_active_tiles[i]):>6,} "
            f"{100 * steps.balance[i]:>7.1f}%  {path} ({steps.kind[i].value})"
        )
    return lines
