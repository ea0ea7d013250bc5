"""Advice: rules that look at a report and say, in words, what would save most."""

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace

import numpy as np

from tremula.base.storage.strict_json import JsonObject
from tremula.base.wording import counted, plural, short_source
from tremula.vision.analysis.operations import operation_of_step
from tremula.vision.analysis.stages import stage_facts
from tremula.vision.report.reader import ReportReader
from tremula.vision.report.time_totals import total_cycles

Ints = np.ndarray


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
    result = [insight for each in RULES for insight in each(reader)]
    total = max(1, total_cycles(reader))
    available = max(1, int(reader.info["available_bytes"]))

    def weight(insight: Insight) -> float:
        urgency = 10.0 if insight.rule == "out_of_memory" else 0.0
        return urgency + insight.saves_cycles / total + 0.5 * insight.saves_bytes / available

    return [asdict(insight) for insight in sorted(result, key=weight, reverse=True)]


def _percent(part: float, whole: float) -> str:
    return f"{100 * part / max(whole, 1e-30):.1f} %"


def _tile(reader: ReportReader, tile: int) -> str:
    """A tile at the beginning of a sentence."""
    return reader.tile_name(tile).capitalize()


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
        f"{counted(n_full, 'tile')} {'is' if n_full == 1 else 'are'} out of memory",
        f"{_tile(reader, worst)} needs {int(over[worst]):,} bytes more than it has. Its largest "
        "variable is "
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
        f"{_tile(reader, fullest)} holds {used[fullest] / max(mean, 1):.1f} times the average",
        f"{_tile(reader, fullest)} needs {int(used[fullest]):,} bytes, a tile on average "
        f"{mean:,.0f}. Most "
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
    live_bytes = reader.matrix("always_live").rows(0, n) + reader.matrix("temporary").rows(0, n)
    more = live_bytes[:, tile] - live_bytes.mean(axis=1)
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
        f"{counted(int(always.sum()), 'variable')} with {total:,} bytes for the whole run, "
        "because the host "
        f"names them or a program reads them before it writes them. The largest is "
        f"{variables['name'][largest]!r}: if it is only needed in between, write it completely "
        "(or WriteUndef it) before its first use, and it can share memory.",
        0,
        gain,
        {"bytes": total, "n_variables": int(always.sum()), "largest": variables["name"][largest]},
        "memory",
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
    peak_steps = reader.table("tiles")["peak_step"]
    yield Insight(
        "peak_variable",
        f"{name!r} makes {_percent(n_bytes, temporary)} of the temporary peak",
        f"At its fullest moment {reader.tile_name(tile)} holds {temporary:,} temporary bytes, "
        f"{n_bytes:,} of "
        f"them {name!r} (made at {short_source(reader.table('variables')['source'][variable])}). "
        "Computing it "
        "again where it is used, in halves, or in smaller pieces lowers the peak.",
        0,
        n_bytes,
        {"tile": tile, "temporary": temporary, "bytes": n_bytes, "variable": name},
        "liveness",
        {"tile": tile, "variable": variable, "step": int(peak_steps[tile])},
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
        f"Exchange code takes {int(per_tile[tile]):,} bytes on {reader.tile_name(tile)}",
        "Code of exchanges grows with the number of contiguous pieces, not with bytes. Layouts "
        "that keep together what one tile reads need fewer pieces.",
        0,
        int(per_tile[tile]) // 2,
        {"tile": tile, "bytes": int(per_tile[tile]), "all_tiles": int(per_tile.sum())},
        "memory",
        {"tile": tile, "by": "category"},
    )


# -- cycles: nothing saves more than what is on the critical path --------------------------------


@dataclass(frozen=True)
class _Path:
    """What rules about cycles look at: steps on the critical path."""

    reader: ReportReader

    @property
    def total(self) -> int:
        return total_cycles(self.reader)

    @property
    def steps(self) -> JsonObject:
        return self.reader.table("steps")

    def cycles(self, phase: str) -> Ints:
        """int64[n_steps]: of one phase."""
        return self.steps[f"path_{phase}"]

    def on_path(self, name: str) -> Ints:
        """float64[n_steps]: a column of `steps_by_ipu` on the chips where the path is."""
        weight = self.reader.by_ipu("path_cycles")
        total = np.maximum(weight.sum(axis=1), 1)
        return (weight * self.reader.by_ipu(name)).sum(axis=1) / total

    def step(self, number: int) -> str:
        """A step as advice names it: with the user's line."""
        source = self.steps["source"][number]
        return repr(_step_name(self.reader, number)) + (
            f" ({short_source(source)})" if source else ""
        )

    def insight(self, rule: str, title: str, text: str, saved: Ints, **evidence: object) -> Insight:
        """Advice about steps; `saved` int64[n_steps] are cycles, the worst step is shown."""
        worst = int(saved.argmax())
        evidence = {"step": worst, "source": self.steps["source"][worst], **evidence}
        cycles = min(self.total, int(saved.sum()))
        select: dict[str, object] = {"step": worst}
        if "critical_tile" in evidence:
            select["tile"] = evidence["critical_tile"]
        return Insight(rule, title, text, cycles, 0, evidence, "execution", select)


def _is_worth(saved: Ints, path: _Path, share: float) -> bool:
    return bool(path.total) and saved.sum() >= max(1, share * path.total)


@rule
def uneven_compute(reader: ReportReader) -> Iterator[Insight]:
    """Steps that wait for one tile, of those that take part."""
    path = _Path(reader)
    balance = path.on_path("active_tile_balance")
    waste = (path.cycles("compute") * (1 - balance)).astype(np.int64)
    if not _is_worth(waste, path, 0.05):
        return
    worst = int(waste.argmax())
    tile = int(path.steps["critical_tile"][worst])
    yield path.insight(
        "uneven_compute",
        f"{_percent(float(waste.sum()), path.total)} of the time tiles wait for the slowest one",
        f"Worst is {path.step(worst)}: its tiles compute on average {100 * balance[worst]:.0f} % "
        f"as long as {reader.tile_name(tile)}. Spread its work evenly over them, and it takes up "
        "to "
        f"{int(waste[worst]):,} cycles less.",
        waste,
        critical_tile=tile,
        cycles=int(waste[worst]),
    )


@rule
def idle_tiles(reader: ReportReader) -> Iterator[Insight]:
    """Steps that use few tiles of their chip."""
    path = _Path(reader)
    n_active = path.on_path("active_tiles")
    share = n_active / reader.tiles_per_ipu
    few = (share < 0.5) & (n_active > 0)
    gain = (path.cycles("compute") * (1 - share) * few).astype(np.int64)
    if not _is_worth(gain, path, 0.02):
        return
    worst = int(gain.argmax())
    yield path.insight(
        "idle_tiles",
        f"{counted(int((gain > 0).sum()), 'step')} compute on less than half of their chip's tiles",
        f"{path.step(worst)} computes for {int(path.cycles('compute')[worst]):,} cycles on "
        f"{n_active[worst]:,.0f} of {reader.tiles_per_ipu:,} tiles. Spread over all of them it "
        f"could take {int(gain[worst]):,} cycles less.",
        gain,
        n_active_tiles=round(float(n_active[worst])),
    )


@rule
def exchange_bound(reader: ReportReader) -> Iterator[Insight]:
    """Steps that move data between tiles longer than they compute."""
    path = _Path(reader)
    moving, computing = path.cycles("exchange"), path.cycles("compute")
    excess = np.maximum(moving - computing, 0)
    if not _is_worth(excess, path, 0.1):
        return
    worst = int(excess.argmax())
    yield path.insight(
        "exchange_bound",
        f"{_percent(float(excess.sum()), path.total)} of the time goes into moving data",
        f"{counted(int((excess > 0).sum()), 'step')} that exchange longer than they compute. "
        "Worst is "
        f"{path.step(worst)}: {int(moving[worst]):,} cycles of exchange for "
        f"{int(computing[worst]):,} of compute. Map what it reads to the tiles that read it, or "
        "send halves.",
        excess,
        n_steps=int((excess > 0).sum()),
        bytes_in=int(path.steps["bytes_in"][worst]),
    )


@rule
def rearrangements(reader: ReportReader) -> Iterator[Insight]:
    """Copies between computations, within a chip."""
    path = _Path(reader)
    is_copy = np.array([kind == "DoExchange" for kind in path.steps["type"]], bool)
    cycles = path.steps["total_cycles"] * is_copy
    if not _is_worth(cycles, path, 0.05):
        return
    worst = int(cycles.argmax())
    yield path.insight(
        "rearrangements",
        f"Copies take {_percent(float(cycles.sum()), path.total)} of the time",
        f"{counted(int((cycles > 0).sum()), 'copy')} for rearranging data alone. The longest, "
        f"{path.step(worst)}, "
        f"takes {int(cycles[worst]):,} cycles over the run. Let the operation that makes the data "
        "lay it out as the next one wants it.",
        cycles,
        n_copies=int((cycles > 0).sum()),
        cycles=int(cycles.sum()),
    )


@rule
def small_steps(reader: ReportReader) -> Iterator[Insight]:
    """Compute sets so small that sync dominates them."""
    path = _Path(reader)
    sync, computing = path.cycles("sync"), path.cycles("compute")
    lost = sync * ((sync > computing) & (computing > 0))
    if not _is_worth(lost, path, 0.02):
        return
    worst = int(lost.argmax())
    yield path.insight(
        "small_steps",
        f"{counted(int((lost > 0).sum()), 'step')} with more sync than compute",
        f"Together they spend {int(lost.sum()):,} cycles in sync. {path.step(worst)} runs "
        f"{counted(int(path.steps['executed'][worst]), 'time')}, each time computing "
        f"{int(path.steps['compute'][worst]):,} cycles: put independent compute sets into one, or "
        "fuse operations.",
        lost,
        n_steps=int((lost > 0).sum()),
        cycles=int(lost.sum()),
    )


@rule
def host_bound(reader: ReportReader) -> Iterator[Insight]:
    """Runs whose chips wait for the host."""
    path = _Path(reader)
    cycles = path.cycles("host")
    if not _is_worth(cycles, path, 0.1):
        return
    worst, share = int(cycles.argmax()), float(cycles.sum()) / path.total
    title = f"{_percent(share, 1)} of the time goes into transfers with the host"
    yield path.insight(
        "host_bound",
        f"Host-bound: {title}" if share > 0.5 else title,
        f"The longest is {path.step(worst)} with {int(cycles[worst]):,} cycles over "
        f"{counted(int(path.steps['executed'][worst]), 'transfer')}. Let the device do more "
        "between two of "
        "them: in PopTorch more deviceIterations, in Poplar a Repeat around the steps, so that "
        "one transfer carries what several do now.",
        cycles // 2,
        cycles=int(cycles.sum()),
        share=share,
    )


@rule
def link_bound(reader: ReportReader) -> Iterator[Insight]:
    """Time spent on the links between chips."""
    path = _Path(reader)
    cycles = path.cycles("links")
    if not _is_worth(cycles, path, 0.1):
        return
    worst = int(cycles.argmax())
    links = reader.info.get("busiest_links") or ()
    busiest = f"The busiest link is {links[0]['name']}. " if links else ""
    yield path.insight(
        "link_bound",
        f"{_percent(float(cycles.sum()), path.total)} of the time goes into links between chips",
        f"The longest is {path.step(worst)} with {int(cycles[worst]):,} cycles: it moves "
        f"{int(path.steps['bytes_in'][worst]):,} bytes each time. {busiest}Keep what exchanges "
        "much on one chip, or put the border between chips where less data crosses it.",
        cycles // 2,
        cycles=int(cycles.sum()),
        bytes_in=int(path.steps["bytes_in"][worst]),
    )


# -- pipelines -------------------------------------------------------------------------------------


@rule
def uneven_stages(reader: ReportReader) -> Iterator[Insight]:
    """A chip whose stages take longer than those of others, which wait for it each time."""
    stages: list[JsonObject] = stage_facts(reader)["stages"]  # pyright: ignore[reportAssignmentType]
    path = _Path(reader)
    if not stages or not path.total:
        return
    per_chip = np.zeros(reader.n_ipus, np.int64)
    for stage in stages:
        per_chip[stage["ipu"]] += stage["cycles_per_visit"]
    used = per_chip > 0
    slowest, mean = int(per_chip.argmax()), float(per_chip[used].mean())
    mine = [stage for stage in stages if stage["ipu"] == slowest]
    gain = int(sum(stage["path_cycles"] for stage in mine) * (1 - mean / max(1, per_chip[slowest])))
    if gain < 0.02 * path.total:
        return
    worst = max(mine, key=lambda stage: stage["path_cycles"])["stage"]
    least = int(np.where(used, per_chip, per_chip.max() + 1).argmin())
    saved = path.steps["total_cycles"] * (path.steps["stage"] == worst)
    names, operation = operation_of_step(reader)
    largest = int(np.bincount(operation, saved, len(names)).argmax())
    step = int((saved * (operation == largest)).argmax())
    numbers = " and ".join(str(stage["stage"]) for stage in mine)
    yield replace(
        path.insight(
            "uneven_stages",
            f"Chip {slowest} takes {per_chip[slowest] / max(mean, 1):.1f} times as long as the "
            "average chip of the pipeline",
            f"For each micro-batch its {plural(len(mine), 'stage')} ({numbers}) take "
            f"{int(per_chip[slowest]):,} cycles, chip {least} takes {int(per_chip[least]):,}, and "
            "all wait for the slowest. Most of "
            f"stage {worst} is {names[largest]!r} ({short_source(path.steps['source'][step])}): "
            "move BeginBlock "
            f"(or its ipu_id) so that a part of it runs on chip {least}. Evenly divided, the "
            f"pipeline takes up to {gain:,} cycles less.",
            saved,
            stage=worst,
            ipu=slowest,
            cycles_per_micro_batch=per_chip.tolist(),
        ),
        saves_cycles=min(gain, path.total),
        view="stages",
        select={"stage": worst, "step": step},
    )


@rule
def pipeline_bubbles(reader: ReportReader) -> Iterator[Insight]:
    """Chips that wait while a pipeline fills and flushes."""
    passes: list[JsonObject] = stage_facts(reader)["passes"]  # pyright: ignore[reportAssignmentType]
    path = _Path(reader)
    if not passes or not path.total:
        return
    idle = sum(one["bubbles"]["fill"] + one["bubbles"]["flush"] for one in passes)
    lost = int(idle / reader.n_ipus)  # as if all chips waited at the same time
    if lost < 0.05 * path.total:
        return
    n = max(one["n_micro_batches"] for one in passes)
    gain = min(lost // 2, path.total)
    yield Insight(
        "pipeline_bubbles",
        f"{_percent(lost, path.total)} of the time chips wait while the pipeline fills and flushes",
        f"{counted(n, 'micro-batch')} in each update, and then the pipeline is empty. "
        f"With {2 * n} (options.Training.gradientAccumulation({2 * n}), or more deviceIterations "
        f"for inference) the same data leaves half as many bubbles: up to {gain:,} cycles less "
        "for as much work.",
        gain,
        0,
        {"n_micro_batches": n, "cycles": lost, "passes": len(passes)},
        "stages",
        {"from": passes[0]["begin"], "to": passes[0]["end"]},
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
        {"card": "trust"},
    )
