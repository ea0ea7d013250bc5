"""Frames: which function each variable belongs to, so that functions can share memory.

A function's variables are needed while it runs, so they form a frame, as locals of C do, and frames
of functions that do not call each other may lie at the same place. What the caller needs during
a call must lie elsewhere: above the frame.

    program   |  x  …………………… |  y  ………         x is live across a call of f, y across one of g
    f         |  a   b |                        f's frame: a, b
    g                             | c |         g's frame: c

A variable belongs to the innermost function without which none of the functions runs that touch it,
and within whose calls it lives. All programs count as one function, which nothing calls.
"""

from dataclasses import dataclass

import numpy as np

from tremula.compiler.file.codec import record
from tremula.compiler.passes.calls import membership

Ints = np.ndarray
Rows = tuple[int, int]


@record
@dataclass(frozen=True, slots=True)
class Frames:
    """Functions, those that are called before those that call them; the last are all programs.

    Functions of a level call only those of lower ones. Variable v belongs to `owner[v]`, -1 for
    none, and is live there, or during its calls, from instruction first[v] to last[v].
    Function `caller[k]` calls `callee[k]` at instruction `call[k]`.
    """

    level: Ints
    owner: Ints
    first: Ints
    last: Ints
    caller: Ints
    callee: Ints
    call: Ints


def frames_of(
    functions: dict[Rows, list[int]], occupied: Ints, touched: Ints,
    ranges: tuple[Ints, Ints, Ints], n_variables: int,
) -> Frames:  # fmt: skip
    """Frames of functions, rows from begin to end, by the instructions of their calls.

    `occupied` uint64[n_instructions, n_words] are sets of variables that need memory, and `ranges`
    (variable, first, last) the same; `touched` are those that a step reads or writes. Functions lie
    behind all programs.
    """
    n_rows = min((begin for begin, _ in functions), default=len(occupied))
    graph = _CallGraph([(0, n_rows), *functions], functions)
    is_live, is_used = (
        np.stack([_union(sets[slice(*r)], n_variables) for r in graph.rows])
        for sets in (occupied, touched)
    )
    both = np.packbits(np.concatenate((is_live, is_used)), axis=0)
    _, examples, kind = np.unique(both, axis=1, return_index=True, return_inverse=True)
    owners = [graph.owner(is_live[:, v], is_used[:, v]) for v in examples.tolist()]
    owner = np.array(owners, np.int64)[kind.reshape(-1)]
    return Frames(graph.levels, owner, *graph.spans(owner, ranges, is_used), *graph.edges)


class _CallGraph:
    """Which functions call which; number 0 … n - 1, those that are called first."""

    def __init__(self, rows: list[Rows], calls: dict[Rows, list[int]]):
        at = [(call, rows) for rows, places in calls.items() for call in places]
        callees = {r: [(f, c) for c, f in at if r[0] <= c < r[1]] for r in rows}
        level: dict[Rows, int] = {}

        def visit(region: Rows) -> int:
            if region not in level:
                level[region] = 1 + max((visit(f) for f, _ in callees[region]), default=-1)
            return level[region]

        self.rows = sorted(rows, key=visit)
        number = {region: n for n, region in enumerate(self.rows)}
        self.levels = np.array([level[region] for region in self.rows], np.int64)
        edges = [(number[r], number[f], call) for r in self.rows for f, call in callees[r]]
        self.edges = tuple(np.array(edges, np.int64).reshape(-1, 3).T)
        self.inside = [{n} for n in range(len(rows))]
        for caller, callee, _ in edges:
            self.inside[caller] |= self.inside[callee]
        # Functions without which each does not run: those of all its callers, and itself.
        self.needs = [{n} for n in range(len(rows))]
        for n in reversed(range(len(rows) - 1)):
            callers = [self.needs[caller] for caller, callee, _ in edges if callee == n]
            self.needs[n] |= set.intersection(*callers)

    def owner(self, is_live: Ints, is_used: Ints) -> int:
        """The innermost function that everything needs that touches a variable; -1 if nothing."""
        if not is_live.any():
            return -1
        users, places = np.flatnonzero(is_used).tolist(), set(np.flatnonzero(is_live).tolist())
        common = set.intersection(*(self.needs[n] for n in users or places))
        return min(n for n in common if places <= self.inside[n])

    def spans(
        self, owner: Ints, ranges: tuple[Ints, Ints, Ints], is_used: Ints
    ) -> tuple[Ints, Ints]:
        """int64[n_variables] each: the first and last instruction of what is live in its owner."""
        variable, begin, end = ranges
        low, high = np.array(self.rows, np.int64)[owner[variable]].T
        is_here = (begin < high) & (end >= low)
        first, last = np.full(len(owner), np.iinfo(np.int64).max), np.full(len(owner), -1)
        np.minimum.at(first, variable[is_here], np.maximum(begin, low)[is_here])
        np.maximum.at(last, variable[is_here], np.minimum(end, high - 1)[is_here])
        used = is_used.copy()
        for caller, callee, call in zip(*self.edges, strict=True):
            used[caller] |= used[callee]
            mine = np.flatnonzero((owner == caller) & used[callee])
            first[mine] = np.minimum(first[mine], call)
            last[mine] = np.maximum(last[mine], call)
        return first, last


def _union(sets: Ints, n: int) -> Ints:
    """bool[n]: the members of any of some sets."""
    return membership(np.bitwise_or.reduce(sets, axis=0))[:n]
