"""A timeline: what ran when, any range of it on demand, and its critical path.

Only checkpoints are stored, a walk's state every 16,384 entries; the walk continues from there.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from tremula.compiler.report.report import RunTaken, StepHistory
from tremula.vision.report.recent_values import RecentValues
from tremula.vision.report.timeline import walk as w
from tremula.vision.report.timeline.tiers import walk, walk_back

Ints = np.ndarray

ENTRIES_PER_PART = 1 << 14
# Entries × chips of a timeline that is not folded, and entries of any.
MOST_UNFOLDED, MOST_ENTRIES = 1 << 26, 1 << 24
_MOST_PARTS = 8
_ROWS_PER_WALK = 1 << 16


def run_rows(runs: Sequence[RunTaken]) -> Ints:
    """int64[n, N_RUN_COLUMNS] as a walk reads and fills them.

    After the first run that is not known as a whole, nothing is known.
    """
    known = next((i + 1 for i, run in enumerate(runs) if not run.is_whole), len(runs))
    rows = np.zeros((known, w.N_RUN_COLUMNS), np.int64)
    for row, run in zip(rows, runs, strict=False):
        can_fold = run.is_whole and run.is_done
        row[: w.CAN_FOLD + 1] = (run.program, run.n_steps, run.n_events, run.times, can_fold)
    return rows


@dataclass(frozen=True, slots=True)
class TimelineEntries:
    """A range of a timeline: entry i is `times[i]` executions of `step[i]`.

    Chips that take no part in a step have an empty interval where they are.
    """

    step: Ints  # int64[n]
    times: Ints  # int64[n]
    start: Ints  # int64[n, n_chips]
    end: Ints
    place: Ints  # int64[n]
    last: Ints  # int64[n]: the chip that came last where chips join, else -1
    stage: Ints  # int64[n], -1: none
    micro_batch: Ints


def _entries(rows: Ints, first: int, last: int) -> TimelineEntries:
    part = rows[first:last]
    n_chips = (rows.shape[1] - w.N_ROW_COLUMNS) // 2
    start = part[:, w.N_ROW_COLUMNS : w.N_ROW_COLUMNS + n_chips]
    end = part[:, w.N_ROW_COLUMNS + n_chips :]
    columns = (w.STEP, w.N_TIMES, w.PLACE, w.LAST, w.STAGE, w.MICRO_BATCH)
    step, times, *others = (part[:, column] for column in columns)
    return TimelineEntries(step, times, start, end, *others)


@dataclass(frozen=True)
class Timeline:
    """Everything that ran, in order."""

    script: Ints
    runs: Ints  # int64[n, N_RUN_COLUMNS]
    events: Ints
    is_folded: bool
    checkpoints: Ints  # int64[n_parts, n_words]
    n_entries: int
    _parts: RecentValues[int, Ints] = field(
        default_factory=lambda: RecentValues(_MOST_PARTS), repr=False
    )

    @property
    def n_chips(self) -> int:
        return int(self.script[w.N_CHIPS])

    def _rows(self, number: int) -> Ints:
        return self._parts.get(number, lambda: self._walked(number))

    def _walked(self, number: int) -> Ints:
        rows = new_rows(ENTRIES_PER_PART, self.n_chips)
        state = self.checkpoints[number].copy()
        runs = self.runs.copy()  # a walk fills in what is known already
        n = walk(self.script, runs, self.events, state, self.is_folded, False, rows)
        return rows[:n]

    def entries(self, first: int, last: int) -> TimelineEntries:
        """Entries first … last - 1."""
        first, last = max(0, first), min(self.n_entries, last)
        parts = [
            _entries(
                self._rows(number),
                max(0, first - number * ENTRIES_PER_PART),
                min(ENTRIES_PER_PART, last - number * ENTRIES_PER_PART),
            )
            for number in range(first // ENTRIES_PER_PART, -(-last // ENTRIES_PER_PART))
        ]
        if len(parts) == 1:
            return parts[0]
        if not parts:
            return _entries(new_rows(0, self.n_chips), 0, 0)
        names = TimelineEntries.__slots__
        return TimelineEntries(
            *(np.concatenate([getattr(p, name) for p in parts]) for name in names)
        )

    def rows(self) -> Iterator[Ints]:
        """All entries as a walk leaves them, part by part."""
        for number in range(-(-self.n_entries // ENTRIES_PER_PART)):
            yield self._rows(number)


def new_rows(n: int, n_chips: int) -> Ints:
    """For entries with start and end on each chip; of no chips, without."""
    return np.empty((n, w.N_ROW_COLUMNS + 2 * n_chips), np.int64)


def new_state(script: Ints) -> Ints:
    return np.zeros(script[w.N_STATE_WORDS], np.int64)


def timeline_of(script: Ints, history: StepHistory) -> Timeline:
    """Walk a history once, and keep checkpoints."""
    runs = run_rows(history.runs)
    n_executions = int((runs[:, w.N_STEPS] * runs[:, w.TIMES]).sum())
    folds = n_executions * int(script[w.N_CHIPS]) > MOST_UNFOLDED
    state, checkpoints, rows = new_state(script), [], new_rows(ENTRIES_PER_PART, 0)
    filled = ENTRIES_PER_PART
    while filled == ENTRIES_PER_PART and state[w.ENTRY] < MOST_ENTRIES:
        checkpoints.append(state.copy())
        filled = walk(script, runs, history.events, state, folds, False, rows)
    n_entries = int(state[w.ENTRY])
    return Timeline(script, runs, history.events, folds, np.stack(checkpoints), n_entries)


# -- the critical path -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class CriticalPath:
    """Every cycle up to `total`, once: int64[n_steps, n_chips, 5] and int64[n_places, 5].

    `busy_of_place` int64[n_places, 5] is what all chips together spend, on the path or not.
    """

    of_step: Ints
    of_place: Ints
    busy_of_place: Ints
    total: int


def critical_path(script: Ints, phases: Ints, history: StepHistory, n_places: int) -> CriticalPath:
    """Walk forwards, loops folded, then back from the chip that ends last."""
    walked, clocks = _walked(script, run_rows(history.runs), history.events)
    of_step, of_place = np.zeros(phases.shape, np.int64), np.zeros((n_places, 10), np.int64)
    chip = int(clocks.argmax())
    for rows, n in reversed(walked):
        chip = walk_back(script, phases, history.events, rows[:n], chip, of_step, of_place)
    return CriticalPath(of_step, of_place[:, :5], of_place[:, 5:], int(clocks.max()))


def _walked(script: Ints, runs: Ints, events: Ints) -> tuple[list[tuple[Ints, int]], Ints]:
    """Everything that ran, loops folded: rows with how many are filled; and the chips' clocks."""
    state, walked, n = new_state(script), [], _ROWS_PER_WALK
    while n == _ROWS_PER_WALK and state[w.ENTRY] < MOST_ENTRIES:
        rows = new_rows(_ROWS_PER_WALK, 0)
        n = walk(script, runs, events, state, True, True, rows)
        walked.append((rows, n))
    at = script[w.CLOCKS]
    return walked, state[at : at + script[w.N_CHIPS]]


def end_of(script: Ints, runs: Ints, events: Ints) -> int:
    """The clock when everything has run: the total of other costs on the same history."""
    return int(_walked(script, runs.copy(), events)[1].max())
