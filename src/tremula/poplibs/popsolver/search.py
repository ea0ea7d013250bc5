"""Branch and bound: fix one variable after another, and give up whatever cannot be better."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from tremula.poplibs.popsolver.propagation import ONE, U, propagate

Call = Callable[[list[int]], int | None]


@dataclass
class SearchProblem:
    """Variables and constraints as columns, and the constraints of each variable."""

    low: np.ndarray
    high: np.ndarray
    kinds: np.ndarray
    starts: np.ndarray
    members: np.ndarray
    calls: dict[int, Call]  # by number of the constraint
    ranks: np.ndarray  # of variables: the least is fixed first
    watch_starts: np.ndarray = field(init=False)
    watchers: np.ndarray = field(init=False)

    def __post_init__(self) -> None:
        constraint_of = np.repeat(np.arange(len(self.kinds)), np.diff(self.starts))
        order = np.argsort(self.members, kind="stable")
        self.watchers = constraint_of[order]
        counts = np.bincount(self.members, minlength=len(self.low))
        self.watch_starts = np.concatenate([[0], np.cumsum(counts)])

    def of(self, constraint: int) -> np.ndarray:
        """The variables of a constraint."""
        return self.members[self.starts[constraint] : self.starts[constraint + 1]]


class Search:
    """Finds the least values of objectives, the first before the second, and so on."""

    def __init__(self, problem: SearchProblem, objectives: Sequence[int]):
        self.problem, self.objectives = problem, list(objectives)
        self.n_applied = 0
        self.best: np.ndarray | None = None
        n = max(1, len(problem.kinds))
        self._queue, self._waiting = np.zeros(n, np.int64), np.zeros(n, np.bool_)

    def run(self) -> np.ndarray | None:
        """The values of all variables in the best solution, or None."""
        low, high = self.problem.low.copy(), self.problem.high.copy()
        everything = np.arange(len(self.problem.kinds))
        if bool((low > high).any()) or not self._tighten(low, high, everything):
            return None
        # Each level of the stack: bounds from which a variable's next value is to be tried.
        stack = [(low, high)]
        while stack:
            low, high = stack.pop()
            if not self._cap(low, high):
                continue
            v = self._next(low, high)
            if v is None:
                self._keep(low)
                continue
            value = low[v]
            if value < high[v]:
                rest_low = low.copy()
                rest_low[v] = value + ONE
                rest_high = high.copy()
                if self._tighten(rest_low, rest_high, self._told(v)):
                    stack.append((rest_low, rest_high))
            low, high = low.copy(), high.copy()
            high[v] = value
            if self._tighten(low, high, self._told(v)):
                stack.append((low, high))
        return self.best

    def _told(self, v: int) -> np.ndarray:
        problem = self.problem
        return problem.watchers[problem.watch_starts[v] : problem.watch_starts[v + 1]]

    def _cap(self, low: np.ndarray, high: np.ndarray) -> bool:
        """Only what is better than the best so far; whether anything is left.

        An objective matters where those before it are as good as the best: the last one must then
        be smaller, the others no larger.
        """
        if self.best is None:
            return True
        for index, v in enumerate(self.objectives):
            best = self.best[v]
            is_last = index == len(self.objectives) - 1
            if is_last and best == 0:
                return False
            bound = best - ONE if is_last else best
            if low[v] > bound:
                return False
            if high[v] > bound:
                high[v] = bound
                if not self._tighten(low, high, self._told(v)):
                    return False
            if low[v] != best or high[v] != best:
                return True
        return False

    def _next(self, low: np.ndarray, high: np.ndarray) -> int | None:
        """The variable to fix: of the first group, the one with the fewest values."""
        is_open = low != high
        if not is_open.any():
            return None
        places = np.flatnonzero(is_open)
        ranks = self.problem.ranks[places]
        places = places[ranks == ranks.min()]
        return int(places[np.argmin(high[places] - low[places])])

    def _keep(self, values: np.ndarray) -> None:
        is_better = (
            self.best is None
            or values[self.objectives].tolist() < self.best[self.objectives].tolist()
        )
        if is_better:
            self.best = values.copy()

    def _tighten(self, low: np.ndarray, high: np.ndarray, told: np.ndarray) -> bool:
        """Propagate from constraints that hear of a change; Python's calls come in between."""
        problem = self.problem
        while True:
            waiting = np.unique(told)
            self._queue[: len(waiting)] = waiting
            self._waiting[waiting] = True
            result = propagate(
                low, high, problem.kinds, problem.starts, problem.members, problem.watch_starts,
                problem.watchers, self._queue, self._waiting, len(waiting),
            )  # fmt: skip
            self.n_applied += result if result >= 0 else -1 - result
            if result < 0:
                return False
            changed = self._call(low, high)
            if changed is None:
                return False
            if not changed:
                return True
            told = np.concatenate([self._told(v) for v in changed])

    def _call(self, low: np.ndarray, high: np.ndarray) -> list[int] | None:
        """Run calls whose arguments are known; the variables they fixed, None if one forbids."""
        changed = []
        for constraint, function in self.problem.calls.items():
            result, *arguments = self.problem.of(constraint).tolist()
            if any(low[v] != high[v] for v in arguments):
                continue
            value = function([int(low[v]) for v in arguments])
            self.n_applied += 1
            if value is None or not int(low[result]) <= value <= int(high[result]):
                return None
            if low[result] != high[result]:
                low[result] = high[result] = U(value)
                changed.append(result)
        return changed
