"""What of a function's ranges belongs to some of its calls only.

A function's steps are in the instruction table once, so whatever is live across any of its calls is
live there. But its calls come one after another: what is live across one call may be dead by the
next, and the two are never in memory together.

    x is live ──────── call f ────┐                y is live ── call f ──┐
                           └ in the rows of f: x and y, though each call has only one of them
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from tremula.compiler.file.codec import record

Ints = np.ndarray


@record
@dataclass(frozen=True, slots=True)
class FunctionCalls:
    """Functions of which every call lacks something that another call has.

    Function f is rows begin[f] … end[f] - 1; its calls are call_start[f] … call_start[f + 1] - 1.
    Variables absent[absent_start[c]:absent_start[c + 1]] are in all rows of its function, and not
    live during call c.
    """

    begin: Ints
    end: Ints
    call_start: Ints
    absent_start: Ints
    absent: Ints

    def absent_in(self, function: int) -> Iterator[Ints]:
        """The variables that each call of a function lacks."""
        for call in range(self.call_start[function], self.call_start[function + 1]):
            yield self.absent[self.absent_start[call] : self.absent_start[call + 1]]

    def absent_in_fullest(self, function: int, n_bytes: Ints) -> Ints:
        """The variables that a function's fullest call lacks, by int64[n_variables] bytes."""
        return min(self.absent_in(function), key=lambda variables: int(n_bytes[variables].sum()))

    def row_of(self, n_instructions: int) -> Ints:
        """int64[n_instructions]: 1 more than the function of each instruction; 0 for others."""
        result = np.zeros(n_instructions, np.int64)
        for function, (begin, end) in enumerate(zip(self.begin, self.end, strict=True)):
            result[begin:end] = function + 1
        return result


def calls_of(
    functions: dict[tuple[int, int], list[int]], occupied: Ints, touched: Ints
) -> FunctionCalls | None:
    """Of functions, rows from begin to end, by the instructions of their calls; None if all agree.

    `occupied` uint64[n_instructions, n_words] are sets of variables that need memory, `touched`
    of those that a step reads or writes.
    """
    at_once = _TouchedByCalls(functions, touched)
    differing, absent = [], []
    for (begin, end), calls in functions.items():
        passing = np.bitwise_and.reduce(occupied[begin:end], axis=0) & ~at_once.of(begin, end)
        lacking = [members(passing & ~occupied[call]) for call in calls]
        if all(map(len, lacking)):
            differing.append((begin, end, len(calls)))
            absent += lacking
    if not differing:
        return None
    begin, end, n_calls = np.array(differing, np.int64).T
    return FunctionCalls(
        begin, end, np.append(0, np.cumsum(n_calls)),
        np.cumsum([0, *map(len, absent)]), np.concatenate(absent),
    )  # fmt: skip


class _TouchedByCalls:
    """What functions touch, with all that they call."""

    def __init__(self, functions: dict[tuple[int, int], list[int]], touched: Ints):
        self.touched = touched
        self.called = [(call, rows) for rows, calls in functions.items() for call in calls]
        self.known: dict[int, Ints] = {}

    def of(self, begin: int, end: int) -> Ints:
        if begin not in self.known:
            result = np.bitwise_or.reduce(self.touched[begin:end], axis=0)
            for rows in {rows for call, rows in self.called if begin <= call < end}:
                result = result | self.of(*rows)
            self.known[begin] = result
        return self.known[begin]


def members(words: Ints) -> Ints:
    """The members of a set, uint64[n_words]."""
    return np.flatnonzero(membership(words))


def membership(words: Ints) -> Ints:
    """bool[64 * n_words]: what is in a set, uint64[n_words]."""
    return np.unpackbits(words.astype("<u8").view(np.uint8), bitorder="little").astype(bool)


def without_rows(
    ranges: tuple[Ints, Ints, Ints], variables: Ints, begin: int, end: int
) -> tuple[Ints, Ints, Ints]:
    """Ranges (variable, first, last) without instructions begin … end - 1 for some variables."""
    variable, first, last = ranges
    is_cut = np.isin(variable, variables) & (first < end) & (last >= begin)
    columns = [(variable[~is_cut], first[~is_cut], last[~is_cut])]
    variable, first, last = variable[is_cut], first[is_cut], last[is_cut]
    before, behind = first < begin, last >= end
    columns.append((variable[before], first[before], np.full(before.sum(), begin - 1)))
    columns.append((variable[behind], np.full(behind.sum(), end), last[behind]))
    variable, first, last = (np.concatenate(parts) for parts in zip(*columns, strict=True))
    order = np.argsort(first, kind="stable")
    return variable[order], first[order], last[order]
