"""Pipelines over time: visits of stages, and what chips wait for."""

# Options of njit that its types do not name.
# pyright: reportCallIssue=false

from dataclasses import dataclass

import numpy as np
from numba import njit

from tremula.vision.report.timeline import walk as w
from tremula.vision.report.timeline.timeline import Timeline

Ints = np.ndarray

MOST_VISITS, MOST_WAITS = 1 << 16, 1 << 17
# Columns of visits and of waits. A *pass* is what runs until the pipeline is left.
VISIT_COLUMNS = ("stage", "micro_batch", "pass", "ipu", "begin", "end", "busy", "times")
WAIT_COLUMNS = ("ipu", "begin", "end", "for_ipu", "for_stage", "pass")
# What goes on from part to part: see `_note`.
_OPEN, _PASS, _IS_OUTSIDE, _N_VISITS, _N_WAITS, _N_CARRIED = range(6)


@dataclass(frozen=True, slots=True)
class StageVisits:
    """All visits and waits of a timeline, in order; int64 columns as named above."""

    visits: Ints  # int64[n, 8]
    waits: Ints  # int64[n, 6]
    n_left_out: int  # visits and waits there was no room for


@njit(
    "void(int64[::1], int64[:, ::1], int64[::1], int64[::1], int64[::1], int64[::1],"
    " int64[:, ::1], int64[:, ::1])",
    cache=True, nogil=True, boundscheck=True, no_cfunc_wrapper=True,
)  # fmt: skip
def _note(script, rows, chip_of_stage, carried, ends, stage_on, visits, waits):
    """Add the visits and waits of rows; `ends` is how far chips are, `stage_on` what ran there."""
    n_chips = script[w.N_CHIPS]
    for i in range(len(rows)):
        step, stage, last = rows[i, w.STEP], rows[i, w.STAGE], rows[i, w.LAST]
        is_outside = stage < 0 and not script[script[w.IN_PIPELINE] + step]
        if is_outside and not carried[_IS_OUTSIDE]:
            carried[_PASS] += 1
        carried[_IS_OUTSIDE] = is_outside
        for chip in range(n_chips):
            begin, end = rows[i, w.N_ROW_COLUMNS + chip], rows[i, w.N_ROW_COLUMNS + n_chips + chip]
            if begin > ends[chip] and last >= 0 and not is_outside:
                at = carried[_N_WAITS]
                if at < len(waits):
                    waits[at, 0], waits[at, 1], waits[at, 2] = chip, ends[chip], begin
                    waits[at, 3], waits[at, 4] = last, stage_on[last]
                    waits[at, 5] = carried[_PASS]
                carried[_N_WAITS] += 1
            if end > begin and stage >= 0:
                stage_on[chip] = stage
            elif is_outside:
                stage_on[chip] = -1
            ends[chip] = end
        if stage < 0:
            carried[_OPEN] = 0
            continue
        chip, at = chip_of_stage[stage], carried[_N_VISITS] - 1
        begin, end = rows[i, w.N_ROW_COLUMNS + chip], rows[i, w.N_ROW_COLUMNS + n_chips + chip]
        is_same = carried[_OPEN] and 0 <= at < len(visits)
        if is_same:
            is_same = visits[at, 0] == stage and visits[at, 1] == rows[i, w.MICRO_BATCH]
        if not is_same:
            at += 1
            carried[_N_VISITS] += 1
            if at < len(visits):
                visits[at, 0], visits[at, 1] = stage, rows[i, w.MICRO_BATCH]
                visits[at, 2], visits[at, 3], visits[at, 4] = carried[_PASS], chip, begin
                visits[at, 6], visits[at, 7] = 0, rows[i, w.N_TIMES]
        carried[_OPEN] = 1
        if at < len(visits):
            visits[at, 5] = end
            visits[at, 6] += end - begin


def stage_visits(timeline: Timeline, chip_of_stage: Ints) -> StageVisits:
    """One pass over all entries of a program with a pipeline."""
    script, n_chips = timeline.script, timeline.n_chips
    carried, ends = np.zeros(_N_CARRIED, np.int64), np.zeros(n_chips, np.int64)
    carried[_IS_OUTSIDE] = 1
    stage_on = np.full(n_chips, -1, np.int64)
    visits = np.zeros((MOST_VISITS, len(VISIT_COLUMNS)), np.int64)
    waits = np.zeros((MOST_WAITS, len(WAIT_COLUMNS)), np.int64)
    for rows in timeline.rows():
        _note(script, rows, chip_of_stage, carried, ends, stage_on, visits, waits)
    n_visits, n_waits = int(carried[_N_VISITS]), int(carried[_N_WAITS])
    n_left_out = max(0, n_visits - MOST_VISITS) + max(0, n_waits - MOST_WAITS)
    return StageVisits(visits[:n_visits], waits[:n_waits], n_left_out)
