"""What a run took, split in every way a report shows: computed here once, for files and What-if."""

from dataclasses import dataclass

import numpy as np

from tremula.compiler.passes.cost import StepCosts
from tremula.compiler.report.phases import step_phases
from tremula.compiler.report.report import ExecutedSteps, StepHistory, busy_phases
from tremula.vision.report.time_totals import apportioned
from tremula.vision.report.timeline.script import Routes
from tremula.vision.report.timeline.timeline import critical_path

Ints = np.ndarray


@dataclass(frozen=True)
class Measured:
    """Cycles; see docs/vision-design.md. Arrays end in the five phases."""

    script: Ints  # for walks
    phases: Ints  # int64[n_steps, n_chips, 5]: one execution
    busy: Ints  # the same of everything that ran
    of_step: Ints  # the same on the critical path
    of_place: Ints  # int64[n_places, 5]: on the critical path
    busy_of_place: Ints  # int64[n_places, 5]: all chips together, everything that ran
    total: int
    estimated: int  # of the total: divided as busy cycles are, because what ran was not recorded

    @property
    def of_chip(self) -> Ints:
        """int64[n_chips, 5]."""
        return self.busy.sum(axis=0)

    @property
    def waiting(self) -> Ints:
        """int64[n_chips]."""
        return self.total - self.of_chip.sum(axis=1)


def measure(routes: Routes, costs: StepCosts, execution: ExecutedSteps) -> Measured:
    """What ran; its total is the engine's clock."""
    history = execution.history or StepHistory((), np.zeros(0, np.int64))
    is_counted = costs.needs_count & history.counts_steps
    phases = step_phases(costs, execution.compute)
    script = routes.script(phases, costs.joins, costs.takes_part, is_counted)
    path = critical_path(script, phases, history, routes.n_places)
    total, busy = int(execution.cycles_of_chip.max()), busy_phases(costs, execution)
    of_step, of_place, rest = path.of_step, path.of_place, total - path.total
    if rest < 0:  # profiling was switched while a program ran
        of_step, of_place, rest = np.zeros_like(of_step), np.zeros_like(of_place), total
    if rest:
        more = apportioned(rest, busy)
        of_step = of_step + more
        np.add.at(of_place, routes.first_place, more.sum(axis=1))
    busy_of_place = _all_busy(routes, path.busy_of_place, busy.sum(axis=1))
    return Measured(script, phases, busy, of_step, of_place, busy_of_place, total, rest)


def _all_busy(routes: Routes, of_place: Ints, of_step: Ints) -> Ints:
    """Busy cycles of places; what was not recorded belongs to the first place of its step."""
    walked = np.zeros_like(of_step)
    np.add.at(walked, routes.step_of_place, of_place)
    result = of_place.copy()
    np.add.at(result, routes.first_place, of_step - walked)
    return result
