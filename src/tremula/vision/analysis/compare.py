"""Two reports against each other: rows paired by name and place, the largest causes in words."""

from collections import defaultdict
from collections.abc import Sequence
from difflib import SequenceMatcher
from itertools import takewhile

import numpy as np

from tremula.base.storage.strict_json import JsonObject
from tremula.base.wording import counted
from tremula.compiler.report.phases import PHASES
from tremula.vision.analysis.operations import operation_columns
from tremula.vision.analysis.summary import execution_totals, memory_totals
from tremula.vision.report.reader import ReportReader
from tremula.vision.report.time_totals import PARTS

Ints = np.ndarray
Facts = dict[str, object]
_N_CAUSES = 8
# Of operations: on the critical path, then what chips spend on them, all together.
_ON_PATH = tuple(f"path_{name}" for name in PHASES)
_SUMMED = ("cycles", *_ON_PATH, "busy_cycles", *PHASES)
# Longer lists of names are paired by name and occurrence alone: matching is quadratic at worst.
_MOST_MATCHED = 20_000


def align(before: Sequence[str], after: Sequence[str]) -> list[tuple[int, int]]:
    """Pairs of places with the same name; -1 where one side has none.

    Runs of equal names in the same order are paired first, so that the fifth of ten equal steps
    finds its partner even if a step was added before it; the rest is paired by name, in order.
    """
    pairs = []
    if max(len(before), len(after)) <= _MOST_MATCHED:
        for a, b, n in _matching_blocks(before, after):
            pairs += [(a + i, b + i) for i in range(n)]
    used_before, used_after = {a for a, _ in pairs}, {b for _, b in pairs}
    waiting: dict[str, list[int]] = defaultdict(list)
    for place in range(len(after) - 1, -1, -1):
        if place not in used_after:
            waiting[after[place]].append(place)
    for place, name in enumerate(before):
        if place not in used_before:
            pairs.append((place, waiting[name].pop() if waiting[name] else -1))
    pairs += [(-1, place) for places in waiting.values() for place in places]
    return sorted(pairs, key=lambda p: (p[0] < 0, p[0], p[1]))


def _matching_blocks(before: Sequence[str], after: Sequence[str]) -> list[tuple[int, int, int]]:
    """Runs of equal names: (place before, place after, length).

    The common head and tail are cheap to find; what is between them is for the matcher.
    """
    n_head = 0
    for a, b in zip(before, after, strict=False):
        if a != b:
            break
        n_head += 1
    most_tail = min(len(before), len(after)) - n_head
    n_tail = 0
    while n_tail < most_tail and before[-1 - n_tail] == after[-1 - n_tail]:
        n_tail += 1
    middle_before = list(before[n_head : len(before) - n_tail])
    middle_after = list(after[n_head : len(after) - n_tail])
    blocks = [(0, 0, n_head)]
    if middle_before and middle_after:
        matcher = SequenceMatcher(None, middle_before, middle_after, autojunk=False)
        blocks += [(a + n_head, b + n_head, n) for a, b, n in matcher.get_matching_blocks()]
    blocks.append((len(before) - n_tail, len(after) - n_tail, n_tail))
    return blocks


def compare(before: ReportReader, after: ReportReader) -> Facts:
    """Totals, aligned operations, steps, variables and categories, and the causes in words."""
    operations = _operations(before, after)
    variables = _variables(before, after)
    categories = _categories(before, after)
    return {
        "before": str(before.path),
        "after": str(after.path),
        "totals": _totals(before, after),
        "operations": operations,
        "steps": _steps(before, after),
        "variables": variables,
        "categories": categories,
        "causes": _causes(operations, variables, categories),
        "groups": cause_groups(before, after, operations),
    }


def _difference(before: float, after: float) -> Facts:
    return {"before": before, "after": after, "difference": after - before}


def _totals(before: ReportReader, after: ReportReader) -> Facts:
    rows: Facts = {}
    memories = memory_totals(before), memory_totals(after)
    for name in ("total", "always_live", "temporary", "largest"):
        rows[f"memory_{name}"] = _difference(*(m[name] for m in memories))  # pyright: ignore[reportArgumentType]
    runs = execution_totals(before), execution_totals(after)
    if runs[0] is not None and runs[1] is not None:
        for name in ("total_cycles", *PARTS):
            rows[name] = _difference(*(r[name] for r in runs))  # pyright: ignore[reportArgumentType, reportOptionalSubscript]
        joules = [reader.info.get("joules") for reader in (before, after)]
        if None not in joules:  # reports of earlier versions have none
            rows["energy_microjoules"] = _difference(*(round(1e6 * j) for j in joules))  # pyright: ignore[reportOperatorIssue]
    return rows


def _at(column: Ints, place: int) -> int:
    return int(column[place]) if place >= 0 else 0


def _pairs(
    names: tuple[Sequence[str], Sequence[str]], columns: tuple[dict, dict], keys: Sequence[str]
) -> list[Facts]:
    """Aligned rows that differ somewhere or exist on one side only."""
    rows = []
    for a, b in align(*names):
        row: Facts = {"name": names[0][a] if a >= 0 else names[1][b], "before_id": a, "after_id": b}
        differs = a < 0 or b < 0
        for key in keys:
            pair = _difference(_at(columns[0][key], a), _at(columns[1][key], b))
            differs = differs or bool(pair["difference"])
            row[key] = pair
        if differs:
            rows.append(row)
    return rows


def _operations(before: ReportReader, after: ReportReader) -> list[Facts]:
    columns = operation_columns(before), operation_columns(after)
    names = columns[0]["name"], columns[1]["name"]
    keys = (*_SUMMED, "n_flops", "n_vertices")
    return _pairs(names, columns, keys)  # pyright: ignore[reportArgumentType]


def _steps(before: ReportReader, after: ReportReader) -> list[Facts]:
    columns = before.table("steps"), after.table("steps")
    names = tuple(
        [f"{kind} {path}" for kind, path in zip(c["kind"], c["path"], strict=True)] for c in columns
    )
    keys = ("total_cycles", *PHASES, "busy_cycles", "executed", "temporary_bytes")
    return _pairs(names, columns, keys)  # pyright: ignore[reportArgumentType]


def _variables(before: ReportReader, after: ReportReader) -> list[Facts]:
    columns = before.table("variables"), after.table("variables")
    keys = ("n_bytes", "n_tiles", "largest_on_tile", "always_live")
    return _pairs((columns[0]["name"], columns[1]["name"]), columns, keys)


def _categories(before: ReportReader, after: ReportReader) -> list[Facts]:
    columns = before.table("categories"), after.table("categories")
    return _pairs((columns[0]["name"], columns[1]["name"]), columns, ("always_live", "temporary"))


def cause_groups(
    before: ReportReader, after: ReportReader, operations: Sequence[JsonObject]
) -> list[Facts]:
    """Why the totals differ, largest first: parts of the program, each with its phases.

    Operations of one part (the first name of their paths that tells parts apart) form a group;
    differences of groups add up to the difference of the totals, for cycles are those on the
    critical path. Empty if a report has no execution.
    """
    if not (before.has_run and after.has_run):
        return []
    names = [row["name"] for row in operations]
    n_shared = _n_shared([name.split("/")[:-1] for name in names])
    groups: dict[str, JsonObject] = {}
    for row in operations:
        name = "/".join(row["name"].split("/")[: n_shared + 1])
        group = groups.setdefault(name, {"name": name, "operations": [], **dict.fromkeys(_SUMMED)})
        group["operations"].append(row["name"])
        for key in _SUMMED:
            sums = group[key] or dict.fromkeys(row[key], 0)
            group[key] = {side: sums[side] + n for side, n in row[key].items()}
    result = [group for group in groups.values() if group["cycles"]["difference"]]
    result.sort(key=lambda group: -abs(group["cycles"]["difference"]))
    return result


def _n_shared(paths: Sequence[Sequence[str]]) -> int:
    """How many names all paths begin with."""
    columns = zip(*paths, strict=False)
    return sum(1 for _ in takewhile(lambda column: len(set(column)) == 1, columns))


def _causes(operations: list[dict], variables: list[dict], categories: list[dict]) -> list[str]:
    """The largest differences in words, cycles first."""
    texts = []
    for rows, key, unit in ((operations, "cycles", "cycles"), (variables, "n_bytes", "bytes")):
        differing = [row for row in rows if row[key]["difference"]]
        differing.sort(key=lambda row, key=key: -abs(row[key]["difference"]))
        texts += [_in_words(row[key]["difference"], row, unit) for row in differing[:_N_CAUSES]]
    moved = [
        (row["always_live"]["difference"] + row["temporary"]["difference"], row["name"])
        for row in categories
        if row["name"] not in ("Variables", "Constants")
    ]
    moved.sort(key=lambda pair: -abs(pair[0]))
    texts += [f"{n:+,} bytes: {name} on all tiles" for n, name in moved[:3] if n]
    return texts


def _in_words(difference: int, row: dict, unit: str) -> str:
    name = row["name"] or "(unnamed)"
    if row["before_id"] < 0:
        return f"{difference:+,} {unit}: {name} is new"
    if row["after_id"] < 0:
        return f"{difference:+,} {unit}: {name} is gone"
    if unit == "bytes":
        tiles = row["n_tiles"]
        where = f"on {counted(tiles['after'], 'tile')}"
        if tiles["difference"]:
            where += f" instead of {tiles['before']:,}"
        return f"{difference:+,} bytes: {name}, {where}"
    parts = {part: row[f"path_{part}"]["difference"] for part in PHASES}
    part = max(parts, key=lambda p: abs(parts[p]))
    percent = 100 * difference / max(1, row["cycles"]["before"])
    return f"{difference:+,} cycles: {name} ({percent:+.1f} %), most of it {part} {parts[part]:+,}"
