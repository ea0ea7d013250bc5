"""Advice: rules that look at a report and say, in words, what would save most."""

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass

import numpy as np

from tremula.vision.report.reader import ReportReader


@dataclass(frozen=True, slots=True)
class Insight:
    """One piece of advice. Saved cycles are of the whole run, saved bytes of the fullest tile."""

    rule: str
    title: str
    text: str
    saves_cycles: int
    saves_bytes: int
    evidence: dict[str, object]
    view: str  # of the page, and the selection there
    select: dict[str, object]


Rule = Callable[[ReportReader], Iterator[Insight]]
RULES: list[Rule] = []


def rule(function: Rule) -> Rule:
    RULES.append(function)
    return function


def insights(reader: ReportReader) -> list[dict[str, object]]:
    """All advice, the largest saving first; running out of memory comes before everything."""
    found = [insight for each in RULES for insight in each(reader)]
    total = max(1, int(reader.info.get("total_cycles") or 0))
    available = max(1, int(reader.info["available_bytes"]))

    def weight(insight: Insight) -> float:
        urgency = 10.0 if insight.rule == "out_of_memory" else 0.0
        return urgency + insight.saves_cycles / total + 0.5 * insight.saves_bytes / available

    return [asdict(insight) for insight in sorted(found, key=weight, reverse=True)]


def _percent(part: float, whole: float) -> str:
    return f"{100 * part / max(whole, 1e-30):.1f} %"


def _step_name(reader: ReportReader, step: int) -> str:
    return reader.table("steps")["path"][step] or f"step {step}"


# -- memory ----------------------------------------------------------------------------------------


@rule
def out_of_memory(reader: ReportReader) -> Iterator[Insight]:
    tiles = reader.table("tiles")
    over = tiles["overflowed"]
    if not over.any():
        return
    worst, n_full = int(over.argmax()), int((over > 0).sum())
    name, n_bytes = _largest_on(reader, worst)
    yield Insight(
        "out_of_memory",
        f"{n_full} tile(s) are out of memory",
        f"Tile {worst} needs {int(over[worst]):,} bytes more than it has. Its largest variable is "
        f"{name!r} with {n_bytes:,} bytes: spread it over more tiles, or make it smaller.",
        0,
        int(over[worst]),
        {"n_full_tiles": n_full, "worst_tile": worst, "over": int(over[worst]), "largest": name},
        "memory",
        {"tile": worst},
    )


def _largest_on(reader: ReportReader, tile: int) -> tuple[str, int]:
    live = reader.live_at_peak(tile)
    if not len(live.variable):
        return "", 0
    return reader.table("variables")["name"][int(live.variable[0])], int(live.n_bytes[0])


@rule
def uneven_memory(reader: ReportReader) -> Iterator[Insight]:
    """One tile is much fuller than the others are on average."""
    used = reader.table("tiles")["including_gaps"]
    fullest, mean = int(used.argmax()), float(used.mean())
    gain = int(used[fullest] - mean)
    if gain < 0.05 * int(reader.info["available_bytes"]) or used[fullest] < 1.5 * mean:
        return
    what, more = _most_above_average(reader, fullest)
    yield Insight(
        "uneven_memory",
        f"Tile {fullest} holds {used[fullest] / max(mean, 1):.1f} times the average",
        f"Tile {fullest} needs {int(used[fullest]):,} bytes, a tile on average {mean:,.0f}. Most "
        f"of the difference is {what}: {more:,} bytes more than average. Spread evenly, the "
        f"fullest tile would need up to {gain:,} bytes less.",
        0,
        gain,
        {"tile": fullest, "bytes": int(used[fullest]), "mean": mean, "what": what, "more": more},
        "memory",
        {"tile": fullest},
    )


def _most_above_average(reader: ReportReader, tile: int) -> tuple[str, int]:
    """The category in which a tile exceeds the average most; of variables, the largest."""
    names = reader.table("categories")["name"]
    n = len(names)
    held = reader.matrix("always_live").rows(0, n) + reader.matrix("temporary").rows(0, n)
    more = held[:, tile] - held.mean(axis=1)
    row = int(more.argmax())
    if names[row] not in ("Variables", "Constants"):
        return names[row].lower(), int(more[row])
    variable, n_bytes = _largest_on(reader, tile)
    return f"{names[row].lower()}, the largest {variable!r} with {n_bytes:,} bytes", int(more[row])


@rule
def always_live(reader: ReportReader) -> Iterator[Insight]:
    """Variables that never share memory although they are neither weights nor constants."""
    variables = reader.table("variables")
    always = variables["always_live"].astype(bool) & ~variables["is_constant"].astype(bool)
    total = int(variables["n_bytes"][always].sum())
    everything = int(reader.table("tiles")["excluding_gaps"].sum())
    if not always.any() or total < 0.3 * everything:
        return
    largest = int(np.flatnonzero(always)[variables["n_bytes"][always].argmax()])
    gain = int(variables["largest_on_tile"][largest])
    yield Insight(
        "always_live",
        f"{_percent(total, everything)} of memory is always live",
        f"{int(always.sum())} variables take {total:,} bytes for the whole run, because the host "
        f"names them or a program reads them before it writes them. The largest is "
        f"{variables['name'][largest]!r}: if it is only needed in between, write it completely "
        "(or WriteUndef it) before its first use, and it can share memory.",
        0,
        gain,
        {"bytes": total, "n_variables": int(always.sum()), "largest": variables["name"][largest]},
        "liveness",
        {"variable": largest},
    )


@rule
def peak_variable(reader: ReportReader) -> Iterator[Insight]:
    """A temporary variable that makes the peak."""
    steps = reader.table("steps")
    if not reader.n_steps or not steps["largest_temporary"].any():
        return
    tile = int(reader.table("tiles")["temporary"].argmax())
    live = reader.live_at_peak(tile)
    mine = live.variable[~live.always_live]
    temporary = int(reader.table("tiles")["temporary"][tile])
    if not len(mine):
        return
    n_bytes = int(live.n_bytes[~live.always_live][0])
    if n_bytes < 0.25 * temporary:
        return
    variable, name = int(mine[0]), reader.table("variables")["name"][int(mine[0])]
    yield Insight(
        "peak_variable",
        f"{name!r} makes {_percent(n_bytes, temporary)} of the temporary peak",
        f"At its fullest moment tile {tile} holds {temporary:,} temporary bytes, {n_bytes:,} of "
        f"them {name!r} (made at {reader.table('variables')['source'][variable]}). Computing it "
        "again where it is used, in halves, or in smaller pieces lowers the peak.",
        0,
        n_bytes,
        {"tile": tile, "temporary": temporary, "bytes": n_bytes, "variable": name},
        "liveness",
        {"tile": tile, "variable": variable},
    )


@rule
def exchange_code(reader: ReportReader) -> Iterator[Insight]:
    """Exchange code grows with fragments: scattered layouts cost memory on every tile."""
    names = reader.table("categories")["name"]
    rows = [i for i, name in enumerate(names) if name.endswith("Exchange Code")]
    per_tile = reader.matrix("always_live").rows(0, len(names))[rows].sum(axis=0)
    tile = int(per_tile.argmax())
    if per_tile[tile] < 0.1 * int(reader.info["available_bytes"]):
        return
    yield Insight(
        "exchange_code",
        f"Exchange code takes {int(per_tile[tile]):,} bytes on tile {tile}",
        "Code of exchanges grows with the number of contiguous pieces, not with bytes. Layouts "
        "that keep together what one tile reads need fewer pieces.",
        0,
        int(per_tile[tile]) // 2,
        {"tile": tile, "bytes": int(per_tile[tile]), "all_tiles": int(per_tile.sum())},
        "memory",
        {"tile": tile},
    )


# -- cycles ----------------------------------------------------------------------------------------


@rule
def uneven_compute(reader: ReportReader) -> Iterator[Insight]:
    """Steps that wait for one tile."""
    steps = reader.table("steps")
    waste = (steps["compute"] * (1 - steps["active_balance"]) * steps["executed"]).astype(np.int64)
    total = int(reader.info.get("total_cycles") or 0)
    if not total or waste.sum() < 0.05 * total:
        return
    worst = int(waste.argmax())
    tile = int(steps["critical_tile"][worst])
    yield Insight(
        "uneven_compute",
        f"{_percent(float(waste.sum()), total)} of the time tiles wait for the slowest one",
        f"Worst is {_step_name(reader, worst)!r}: its active tiles compute on average "
        f"{100 * steps['active_balance'][worst]:.0f} % as long as tile {tile}. Spreading its work "
        f"evenly would save up to {int(waste[worst]):,} cycles.",
        int(waste.sum()),
        0,
        {
            "step": worst,
            "critical_tile": tile,
            "cycles": int(waste[worst]),
            "all": int(waste.sum()),
        },
        "execution",
        {"step": worst, "tile": tile},
    )


@rule
def idle_tiles(reader: ReportReader) -> Iterator[Insight]:
    """Steps that use few tiles."""
    steps, total = reader.table("steps"), int(reader.info.get("total_cycles") or 0)
    share = steps["n_active_tiles"] / reader.n_tiles
    few = (share < 0.5) & (steps["n_active_tiles"] > 0)
    gain = (steps["compute"] * (1 - share) * steps["executed"] * few).astype(np.int64)
    if not total or gain.sum() < 0.02 * total:
        return
    worst = int(gain.argmax())
    yield Insight(
        "idle_tiles",
        f"{int(few.sum())} steps use less than half of the tiles",
        f"{_step_name(reader, worst)!r} computes for {int(steps['compute'][worst]):,} cycles on "
        f"{int(steps['n_active_tiles'][worst]):,} of {reader.n_tiles:,} tiles. On all of them it "
        f"could take {int(gain[worst]):,} cycles less over the run.",
        int(gain.sum()),
        0,
        {"step": worst, "n_active_tiles": int(steps["n_active_tiles"][worst])},
        "execution",
        {"step": worst},
    )


@rule
def exchange_bound(reader: ReportReader) -> Iterator[Insight]:
    """Steps that move data longer than they compute."""
    steps, total = reader.table("steps"), int(reader.info.get("total_cycles") or 0)
    is_bound = (steps["exchange"] > steps["compute"]) & (steps["executed"] > 0)
    is_bound &= np.array([k in ("OnTileExecute", "DoExchange") for k in steps["kind"]], bool)
    excess = (steps["exchange"] - steps["compute"]) * steps["executed"] * is_bound
    if not total or excess.sum() < 0.1 * total:
        return
    worst = int(excess.argmax())
    yield Insight(
        "exchange_bound",
        f"{_percent(float(excess.sum()), total)} of the time goes into moving data",
        f"{int(is_bound.sum())} steps exchange longer than they compute. Worst is "
        f"{_step_name(reader, worst)!r}: {int(steps['exchange'][worst]):,} cycles of exchange for "
        f"{int(steps['compute'][worst]):,} of compute. Mapping what it reads to the tiles that "
        "read it, or sending halves, shortens it.",
        int(excess.sum()),
        0,
        {"step": worst, "n_steps": int(is_bound.sum()), "bytes_in": int(steps["bytes_in"][worst])},
        "execution",
        {"step": worst},
    )


@rule
def rearrangements(reader: ReportReader) -> Iterator[Insight]:
    """Copies between computations."""
    steps, total = reader.table("steps"), int(reader.info.get("total_cycles") or 0)
    is_copy = np.array([kind == "DoExchange" for kind in steps["kind"]], bool)
    cycles = steps["total_cycles"] * is_copy
    if not total or cycles.sum() < 0.05 * total:
        return
    worst = int(cycles.argmax())
    yield Insight(
        "rearrangements",
        f"Copies take {_percent(float(cycles.sum()), total)} of the time",
        f"{int(is_copy.sum())} copies only rearrange data. The longest, "
        f"{_step_name(reader, worst)!r}, takes {int(cycles[worst]):,} cycles over the run. Let the "
        "operation that makes the data lay it out as the next one wants it.",
        int(cycles.sum()),
        0,
        {"step": worst, "n_copies": int(is_copy.sum()), "cycles": int(cycles.sum())},
        "execution",
        {"step": worst},
    )


@rule
def small_steps(reader: ReportReader) -> Iterator[Insight]:
    """Compute sets so small that sync dominates them."""
    steps, total = reader.table("steps"), int(reader.info.get("total_cycles") or 0)
    is_small = (steps["sync"] > steps["compute"]) & (steps["compute"] > 0)
    lost = steps["sync"] * steps["executed"] * is_small
    if not total or lost.sum() < 0.02 * total:
        return
    worst = int(lost.argmax())
    yield Insight(
        "small_steps",
        f"{int(is_small.sum())} steps sync longer than they compute",
        f"Together they spend {int(lost.sum()):,} cycles in sync. {_step_name(reader, worst)!r} "
        f"runs {int(steps['executed'][worst]):,} times, each time computing "
        f"{int(steps['compute'][worst]):,} cycles: put independent compute sets into one, or fuse "
        "operations.",
        int(lost.sum()),
        0,
        {"step": worst, "n_steps": int(is_small.sum()), "cycles": int(lost.sum())},
        "execution",
        {"step": worst},
    )


@rule
def host_bound(reader: ReportReader) -> Iterator[Insight]:
    """Time spent on transfers with the host or other chips."""
    total = int(reader.info.get("total_cycles") or 0)
    if not total:
        return
    executed = reader.table("steps")["executed"]
    for name, where, hint in (
        ("host_exchange", "the host", "move more per transfer, or repeat on the device"),
        ("link_exchange", "other chips", "keep what exchanges much on one chip"),
    ):
        cycles = reader.by_ipu(name).max(axis=1) * executed
        if cycles.sum() < 0.1 * total:
            continue
        worst = int(cycles.argmax())
        yield Insight(
            name,
            f"{_percent(float(cycles.sum()), total)} of the time goes into transfers with {where}",
            f"The longest is {_step_name(reader, worst)!r} with {int(cycles[worst]):,} cycles over "
            f"the run: {hint}.",
            int(cycles.sum()) // 2,
            0,
            {"step": worst, "cycles": int(cycles.sum())},
            "execution",
            {"step": worst},
        )


@rule
def float_partials(reader: ReportReader) -> Iterator[Insight]:
    """Large 32-bit temporaries that could be 16-bit."""
    variables = reader.table("variables")
    named = zip(variables["type"], variables["name"], strict=True)
    is_partial = np.array([t.lower() == "float" and "partial" in n.lower() for t, n in named], bool)
    n_bytes = int((variables["largest_on_tile"] * is_partial).max(initial=0))
    if n_bytes < 0.05 * int(reader.info["available_bytes"]):
        return
    largest = int((variables["largest_on_tile"] * is_partial).argmax())
    yield Insight(
        "float_partials",
        "Partial sums are 32-bit floats",
        f"{variables['name'][largest]!r} takes {n_bytes:,} bytes on a tile; with half partials it "
        "would take half of that, and exchange half as much.",
        0,
        n_bytes // 2,
        {"variable": largest, "bytes": n_bytes, "n_variables": int(is_partial.sum())},
        "memory",
        {"variable": largest},
    )


@rule
def placeholder_costs(reader: ReportReader) -> Iterator[Insight]:
    """How far the figures can be trusted."""
    cycles: dict[str, int] = reader.info.get("standing_cycles") or {}
    total = sum(cycles.values())
    guessed = cycles.get("placeholder", 0)
    if not total or guessed < 0.05 * total:
        return
    yield Insight(
        "placeholder_costs",
        f"{_percent(guessed, total)} of vertex cycles are guesses",
        "Costs of some codelets are placeholders. Compare reports with each other rather than "
        "with a real machine, or give those codelets a cycles method.",
        0,
        0,
        {"placeholder": guessed, "total": total},
        "summary",
        {},
    )
