"""Pipelines: what their stages take, what chips wait for, and how full passes are."""

from itertools import pairwise

import numpy as np

from tremula.compiler.report.phases import PHASES
from tremula.vision.report.reader import ReportReader
from tremula.vision.report.timeline.visits import VISIT_COLUMNS, WAIT_COLUMNS

Ints = np.ndarray
Facts = dict[str, object]

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
    blame, cycles = _blame(reader, n_stages, waits), _cycles(reader, n_stages)
    return {
        "stages": [
            {**_stage(stage, visits, cycles[stage]), "awaited_cycles": int(blame[stage].sum())}
            for stage in range(n_stages)
        ],
        # Waiting that no stage is blamed for: see `timeline/visits.py`.
        "awaited_between_stages": int(blame[-1].sum()),
        "awaited_outside": int(blame[-2].sum()),
        "waiting": int(blame.sum()),
        "passes": _passes(visits, waits, n_stages, reader.n_ipus),
        "n_left_out": int(reader.info.get("n_visits_left_out") or 0),
    }


def _blame(reader: ReportReader, n_stages: int, waits: dict[str, Ints]) -> Ints:
    """int64[n_stages + 2, n_chips]: cycles that each chip waits for each stage.

    The last row is for what runs between stages, the one before for what runs outside. Files of
    version 2.0 have only the waits inside passes, by the stage that ended them.
    """
    if reader.has_column("stages.blame"):
        return reader.column("stages.blame")
    result = np.zeros((n_stages + 2, reader.n_ipus), np.int64)
    np.add.at(result, (waits["for_stage"], waits["ipu"]), waits["end"] - waits["begin"])
    return result


def _cycles(reader: ReportReader, n_stages: int) -> Ints:
    """int64[n_stages, 2, 5]: phases on the critical path, and of all chips together."""
    if reader.has_column("stages.cycles"):
        return reader.column("stages.cycles")
    steps, result = reader.table("steps"), np.zeros((n_stages, 2, len(PHASES)), np.int64)
    busy = reader.busy_of_steps.sum(axis=1)
    for stage in range(n_stages):
        mine = steps["stage"] == stage
        result[stage, 0] = [steps[f"path_{name}"][mine].sum() for name in PHASES]
        result[stage, 1] = busy[mine].sum(axis=0)
    return result


def _stage(stage: int, visits: dict[str, Ints], cycles: Ints) -> Facts:
    """Of one stage: its chip, what a visit takes, what chips spend on it."""
    mine = visits["stage"] == stage
    length = (visits["end"] - visits["begin"])[mine]
    path, busy = cycles.tolist()
    return {
        "stage": stage,
        "ipu": int(visits["ipu"][mine][0]) if mine.any() else -1,
        "n_visits": int((visits["times"][mine]).sum()),
        "cycles_per_visit": int(np.median(length // visits["times"][mine])) if mine.any() else 0,
        "path_cycles": sum(path),
        "busy_cycles": sum(busy),
        **{f"path_{name}": n for name, n in zip(PHASES, path, strict=True)},
        **{f"busy_{name}": n for name, n in zip(PHASES, busy, strict=True)},
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
