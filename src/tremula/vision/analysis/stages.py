"""Pipelines: what their stages take, what chips wait for, and how full passes are."""

from itertools import pairwise

import numpy as np

from tremula.vision.report.reader import ReportReader
from tremula.vision.report.time_totals import PHASES

Ints = np.ndarray
Facts = dict[str, object]

# Of the file's columns `stages.visits` and `stages.waits`.
VISIT_COLUMNS = ("stage", "micro_batch", "pass", "ipu", "begin", "end", "busy", "times")
WAIT_COLUMNS = ("ipu", "begin", "end", "for_ipu", "for_stage", "pass")
_MOST_PASSES = 1_024


def _columns(reader: ReportReader, name: str, names: tuple[str, ...]) -> dict[str, Ints]:
    rows = reader.column(f"stages.{name}")
    return {column: rows[:, i] for i, column in enumerate(names)}


def stage_facts(reader: ReportReader) -> Facts:
    """Stages and passes of a report's pipelines; both are empty if there are none."""
    n_stages = int(reader.info["timeline"]["n_stages"])
    if not n_stages or not reader.has_run:
        return {"stages": [], "passes": [], "n_left_out": 0}
    visits = _columns(reader, "visits", VISIT_COLUMNS)
    waits = _columns(reader, "waits", WAIT_COLUMNS)
    return {
        "stages": [_stage(reader, stage, visits, waits) for stage in range(n_stages)],
        "passes": _passes(visits, waits, n_stages, reader.n_ipus),
        "n_left_out": int(reader.info.get("n_visits_left_out") or 0),
    }


def _stage(
    reader: ReportReader, stage: int, visits: dict[str, Ints], waits: dict[str, Ints]
) -> Facts:
    """Of one stage: its chip, what a visit takes, what it keeps others waiting for."""
    mine = visits["stage"] == stage
    steps = reader.table("steps")
    is_mine = steps["stage"] == stage
    length = (visits["end"] - visits["begin"])[mine]
    is_blamed = waits["for_stage"] == stage
    return {
        "stage": stage,
        "ipu": int(visits["ipu"][mine][0]) if mine.any() else -1,
        "n_visits": int((visits["times"][mine]).sum()),
        "cycles_per_visit": int(np.median(length // visits["times"][mine])) if mine.any() else 0,
        "cycles": int(steps["total_cycles"][is_mine].sum()),
        "busy_cycles": int(steps["busy_cycles"][is_mine].sum()),
        **{name: int(steps[f"path_{name}"][is_mine].sum()) for name in PHASES},
        "awaited_cycles": int((waits["end"] - waits["begin"])[is_blamed].sum()),
    }


def _passes(
    visits: dict[str, Ints], waits: dict[str, Ints], n_stages: int, n_ipus: int
) -> list[Facts]:
    """When each pass fills, is full and flushes, and how long chips wait in it."""
    result: list[Facts] = []
    for number in np.unique(visits["pass"])[:_MOST_PASSES].tolist():
        mine = visits["pass"] == number
        stage, begin, end = (visits[name][mine] for name in ("stage", "begin", "end"))
        last, first = stage == n_stages - 1, stage == 0
        begins, ends = int(begin.min()), int(end.max())
        fill_end = int(begin[last].min()) if last.any() else ends
        flush_begin = max(fill_end, int(end[first].max())) if first.any() else ends
        waiting = waits["pass"] == number
        bubbles = _waiting_in(
            waits["begin"][waiting], waits["end"][waiting], (begins, fill_end, flush_begin, ends)
        )
        result.append(
            {
                "begin": begins,
                "fill_end": fill_end,
                "flush_begin": flush_begin,
                "end": ends,
                "n_micro_batches": int(visits["micro_batch"][mine].max()) + 1,
                "bubbles": dict(zip(("fill", "main", "flush"), bubbles, strict=True)),
                "bubble_share": sum(bubbles) / max(1, n_ipus * (ends - begins)),
            }
        )
    return result


def _waiting_in(begin: Ints, end: Ints, edges: tuple[int, ...]) -> list[int]:
    """Chip-cycles of waits that lie between neighbouring edges."""
    return [
        int(np.clip(np.minimum(end, after) - np.maximum(begin, before), 0, None).sum())
        for before, after in pairwise(edges)
    ]
