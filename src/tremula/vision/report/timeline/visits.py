"""Pipelines over time: visits of stages, and what chips wait for.

A chip that waits is blamed on what the chip it waits for does meanwhile, not on what that chip did
last. Chips meet where a step joins them and where a run ends; the chip that comes last to a meeting
has worked without a pause since the meeting before. So a wait is cut into pieces where the stage on
that chip changes, and the pieces are the whole wait.
"""

from dataclasses import dataclass

import numpy as np

from tremula.vision.report.timeline import walk as w
from tremula.vision.report.timeline.tiers import Twin
from tremula.vision.report.timeline.timeline import Timeline

Ints = np.ndarray

MOST_VISITS, MOST_WAITS = 1 << 16, 1 << 17
# Of the file's columns `stages.visits` and `stages.waits`. A *pass* is what runs until the
# pipeline is left. `for_stage` is what the awaited chip does in this piece of a wait.
VISIT_COLUMNS = ("stage", "micro_batch", "pass", "ipu", "begin", "end", "busy", "times")
WAIT_COLUMNS = ("ipu", "begin", "end", "for_ipu", "for_stage", "pass")
# In place of a stage: steps of the pipeline between stages, and steps outside of it.
BETWEEN_STAGES, OUTSIDE = -1, -2
_FIRST_PIECES = 64  # of a chip's work between two meetings; more are made room for
# What continues from part to part: see `_note`.
_OPEN, _PASS, _IS_OUTSIDE, _N_VISITS, _N_WAITS, _N_CARRIED = range(6)
# Of a chip: its clock in the walk; its work since the last meeting, loops not stretched; in how
# many pieces that work is.
_END, _WORK, _N_PIECES, _N_CHIP_COLUMNS = range(4)


@dataclass(frozen=True, slots=True)
class StageVisits:
    """All visits and waits of a timeline, in order; int64 columns as named above."""

    visits: Ints  # int64[n, 8]
    waits: Ints  # int64[n, 6]
    # int64[n_stages + 2, n_chips]: cycles that a chip waits for a stage; the last row is
    # BETWEEN_STAGES, the one before OUTSIDE. All rows together are all waiting.
    blame: Ints
    n_left_out: int  # visits and waits there was no room for


def _meet(chips, pieces, carried, times, blame, waits):
    """All chips wait for the last of them, `times` times; then their work begins again at 0."""
    last = 0
    for chip in range(1, len(chips)):
        if chips[chip, _WORK] > chips[last, _WORK]:
            last = chip
    for chip in range(len(chips)):
        own, before = chips[chip, _WORK], np.int64(0)
        for i in range(chips[last, _N_PIECES]):
            after = pieces[last, i, 1]
            begin = max(before, own)
            if after > begin:
                stage = pieces[last, i, 0]
                blame[stage, chip] += times * (after - begin)
                at = carried[_N_WAITS]
                if not carried[_IS_OUTSIDE]:
                    carried[_N_WAITS] += 1
                if not carried[_IS_OUTSIDE] and at < len(waits):
                    waits[at, 0], waits[at, 3], waits[at, 4] = chip, last, stage
                    waits[at, 1] = chips[chip, _END] + times * (begin - own)
                    waits[at, 2] = chips[chip, _END] + times * (after - own)
                    waits[at, 5] = carried[_PASS]
            before = after
    for chip in range(len(chips)):
        chips[chip, _WORK] = 0
        chips[chip, _N_PIECES] = 0


def _note(
    script, rows, first, ended, chip_of_stage, carried, chips, pieces, blame, visits, waits
):  # fmt: skip
    """Add the visits and waits of rows from the first on; the row for which pieces have no room.

    `ended[i]`: before row i this many runs ended, all alike; 0: none.
    """
    n_chips = script[w.N_CHIPS]
    for i in range(first, len(rows)):
        for chip in range(n_chips):
            if chips[chip, _N_PIECES] >= pieces.shape[1]:
                return i
        step, stage, last = rows[i, w.STEP], rows[i, w.STAGE], rows[i, w.LAST]
        if ended[i] > 0:
            _meet(chips, pieces, carried, ended[i], blame, waits)
        if last >= 0:
            _meet(chips, pieces, carried, rows[i, w.N_TIMES], blame, waits)
        is_outside = stage < 0 and not script[script[w.IN_PIPELINE] + step]
        if is_outside and not carried[_IS_OUTSIDE]:
            carried[_PASS] += 1
        carried[_IS_OUTSIDE] = is_outside
        kind = stage if stage >= 0 else OUTSIDE if is_outside else BETWEEN_STAGES
        for chip in range(n_chips):
            begin, end = rows[i, w.N_ROW_COLUMNS + chip], rows[i, w.N_ROW_COLUMNS + n_chips + chip]
            chips[chip, _END] = end
            if end <= begin:
                continue
            chips[chip, _WORK] += (end - begin) // rows[i, w.N_TIMES]
            at = chips[chip, _N_PIECES]
            if at == 0 or pieces[chip, at - 1, 0] != kind:
                pieces[chip, at, 0] = kind
                at += 1
                chips[chip, _N_PIECES] = at
            pieces[chip, at - 1, 1] = chips[chip, _WORK]
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
    return len(rows)


NOTE = Twin(
    _note,
    "int64(int64[::1], int64[:, ::1], int64, int64[::1], int64[::1], int64[::1], int64[:, ::1],"
    " int64[:, :, ::1], int64[:, ::1], int64[:, ::1], int64[:, ::1])",
    (_meet,),
)


def stage_visits(timeline: Timeline, chip_of_stage: Ints) -> StageVisits:
    """One pass over all entries of a program with a pipeline."""
    script, n_chips = timeline.script, timeline.n_chips
    carried = np.zeros(_N_CARRIED, np.int64)
    carried[_IS_OUTSIDE] = 1
    chips = np.zeros((n_chips, _N_CHIP_COLUMNS), np.int64)
    pieces = np.zeros((n_chips, _FIRST_PIECES, 2), np.int64)
    blame = np.zeros((len(chip_of_stage) + 2, n_chips), np.int64)
    visits = np.zeros((MOST_VISITS, len(VISIT_COLUMNS)), np.int64)
    waits = np.zeros((MOST_WAITS, len(WAIT_COLUMNS)), np.int64)
    ends, times = _ends_of_runs(timeline)
    n_before = 0
    for rows in timeline.rows():
        first, ended = 0, np.zeros(len(rows), np.int64)
        mine = slice(*np.searchsorted(ends, (n_before, n_before + len(rows))))
        ended[ends[mine] - n_before] = times[mine]
        n_before += len(rows)
        note = NOTE.chosen(timeline.n_entries * n_chips)
        while first < len(rows):
            first = note(script, rows, first, ended, chip_of_stage, carried, chips, pieces, blame,
                         visits, waits)  # fmt: skip
            if first < len(rows):
                pieces = np.concatenate([pieces, np.zeros_like(pieces)], axis=1)
    if len(times):
        _meet(chips, pieces, carried, times[-1], blame, waits)
    n_visits, n_waits = int(carried[_N_VISITS]), int(carried[_N_WAITS])
    n_left_out = max(0, n_visits - MOST_VISITS) + max(0, n_waits - MOST_WAITS)
    return StageVisits(visits[:n_visits], waits[:n_waits], blame, n_left_out)


def _ends_of_runs(timeline: Timeline) -> tuple[Ints, Ints]:
    """Entries before which a run ends, the last one included, and how many runs end there.

    Equal runs are one row of `runs`: as many stretches of entries, or one if they are folded.
    """
    ends, times = [], []
    columns = (w.FIRST_ENTRY, w.N_ENTRIES, w.TIMES)
    for first, n, n_times in timeline.runs[:, columns].tolist():
        if not n:
            continue
        n_stretches = 1 if timeline.is_folded else n_times
        ends += [first + n * (i + 1) // n_stretches for i in range(n_stretches)]
        times += [n_times // n_stretches] * n_stretches
    return np.array(ends, np.int64), np.array(times, np.int64)
