"""What ran, in order: programs, the branches that data decided, what counted steps took.

Everything else about the order follows from the instructions, so a run without branches on data
is a single row, whatever it took. `vision/report/timeline` walks the instructions again.
"""

from dataclasses import dataclass, field, replace

import numpy as np

from tremula.compiler.report.report import RunTaken, StepHistory

Ints = np.ndarray

# Branches and counted steps (one number for each chip) that are kept, at most.
MOST_EVENTS = 1 << 22
# What the interpreter records before it comes back.
EVENTS_PER_RETURN = 1 << 16
# Runs that are recorded separately, even equal ones, unless the engine's options say otherwise.
_APART = 2


@dataclass(slots=True)
class HistoryRecorder:
    """Rows of runs, and one list of events of all of them."""

    n_apart: int = _APART
    runs: list[RunTaken] = field(default_factory=list)
    n_runs: int = 0
    events: list[Ints] = field(default_factory=list)
    n_events: int = 0
    _is_missed: bool = False  # of the run that is under way, a part is not recorded
    _began_at: int = 0  # events before it

    @property
    def is_full(self) -> bool:
        return self.n_events >= MOST_EVENTS

    def forget(self) -> None:
        """Start again; a run that is under way is then incomplete."""
        self.runs, self.n_runs, self.events, self.n_events = [], 0, [], 0
        self._is_missed, self._began_at = True, 0

    def miss(self) -> None:
        """Something of the run that is under way is not recorded."""
        self._is_missed = True

    def begin_run(self) -> None:
        self._is_missed, self._began_at = False, self.n_events

    def add(self, events: Ints) -> None:
        """What happened next; nothing any more once there is too much."""
        if len(events) and not self.is_full:
            self.events.append(np.array(events, np.int64))
            self.n_events += len(events)

    def end_run(
        self, program: int, n_steps: int, host_us: tuple[int, int], *, is_done: bool
    ) -> None:
        """A run is over; one like the last, without events, makes that row stand for one more.

        A run that was recorded in part only counts as not recorded.
        """
        self.n_runs += 1
        n_steps = 0 if self._is_missed else n_steps
        is_whole = not (self._is_missed or self.is_full)
        n_events = self.n_events - self._began_at
        run = RunTaken(program, n_steps, n_events, 1, is_whole, is_done, *host_us)
        last = self.runs[-1] if len(self.runs) > self.n_apart else None
        if last is not None and _is_alike(last, run):
            self.runs[-1] = replace(last, times=last.times + 1, host_end_us=run.host_end_us)
        elif len(self.runs) < MOST_EVENTS:
            self.runs.append(run)

    def history(self) -> StepHistory:
        """Everything so far. Runs after the first incomplete one are left out."""
        return StepHistory(tuple(self.runs), np.concatenate([np.zeros(0, np.int64), *self.events]))


def _is_alike(last: RunTaken, run: RunTaken) -> bool:
    return (
        last.is_whole
        and run.is_whole
        and last.is_done
        and run.is_done
        and (last.program, last.n_steps) == (run.program, run.n_steps)
        and not (last.n_events or run.n_events)
    )
