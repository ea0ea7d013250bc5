"""Codelets of multi-updates: rows combined into a table, partial tables joined and applied."""

# Fields are annotated with values, and Numba decides what they hold.
# pyright: reportInvalidTypeForm=false, reportOperatorIssue=false, reportArgumentType=false
# ruff: noqa: C901 - a vertex's loops, on a tile and on a host, count as one function

from collections.abc import Callable
from typing import Any

import numpy as np

from tremula.base.types import FLOAT, HALF, INT, UNSIGNED_INT, Type, uint32
from tremula.codelets import InOut, Input, MultiVertex, Output, Vector
from tremula.codelets.flops import flops_per_element
from tremula.codelets.spec import CostView
from tremula.hardware import Chip
from tremula.poplibs.families import family
from tremula.poplibs.popops.elementwise.fill import memset_slots
from tremula.poplibs.popops.slicing.costs import (
    multi_update_cycles,
    partials_cycles,
    scaled_add_cycles,
)

NUMBERS = (FLOAT, HALF, INT, UNSIGNED_INT)
LINE_BYTES, FILL_BLOCK = 64, 4096  # of `fill`, in bytes and elements


def _set(old: float, new: float) -> float:  # noqa: ARG001
    return new


def _add(old: float, new: float) -> float:
    return old + new


def _max(old: float, new: float) -> float:
    return max(old, new)


def _mul(old: float, new: float) -> float:
    return old * new


COMBINE = {"set": _set, "add": _add, "max": _max, "mul": _mul}


def identity_of(operation: str, type: Type) -> float:
    """The operation's identity."""
    if operation == "max":
        return -np.inf if type.is_floating else np.iinfo(type.dtype).min
    return 1 if operation == "mul" else 0


def _row_combiner(P: Type, operation: str) -> Callable[..., None]:  # noqa: N803
    """A codelet's function that combines row `i` of the updates into a row of a table of P."""
    combine = COMBINE[operation]

    def combine_row(table: np.ndarray, row: int, updates: np.ndarray, i: int, width: int) -> None:
        # Plans often leave a tile two or four columns: a loop would cost more than its work. All
        # is read before anything is written, so that a row is loaded and stored in one piece.
        if width == 2:
            a = P(combine(table[2 * row], P(updates[2 * i])))
            b = P(combine(table[2 * row + 1], P(updates[2 * i + 1])))
            table[2 * row] = a
            table[2 * row + 1] = b
        elif width == 4:
            a = P(combine(table[4 * row], P(updates[4 * i])))
            b = P(combine(table[4 * row + 1], P(updates[4 * i + 1])))
            c = P(combine(table[4 * row + 2], P(updates[4 * i + 2])))
            d = P(combine(table[4 * row + 3], P(updates[4 * i + 3])))
            table[4 * row] = a
            table[4 * row + 1] = b
            table[4 * row + 2] = c
            table[4 * row + 3] = d
        else:
            old = table[row * width : (row + 1) * width]
            new = updates[i * width : (i + 1) * width]
            for j in range(width):
                old[j] = P(combine(old[j], P(new[j])))

    return combine_row


def _table_filler(P: Type, operation: str) -> Callable[..., None]:  # noqa: N803
    """A codelet's function that fills a table of P with the operation's identity."""
    identity, per_line = identity_of(operation, P), LINE_BYTES // P.n_bytes

    def fill(table: np.ndarray) -> None:
        # The code of a vertex that fills is estimated from these loops: other ones are another
        # estimate. A host fills in one go.
        for begin in range(0, len(table), FILL_BLOCK):
            block = table[begin : min(len(table), begin + FILL_BLOCK)]
            for i in range(0, len(block), per_line):
                block[i] = P(identity)
            for i in range(len(block)):
                block[i] = P(identity)

    return fill


@family
def multi_update_codelet(T: Type, P: Type, operation: str, starts: bool = False) -> type:  # noqa: N803
    """table[index] = operation(table[index], update) for the rows of a block, in index order.

    Updates are T, the table is P: the same, or float for sums of halves. One that `starts` a
    partial table first fills it with the identity.
    """
    combine_row, fill = _row_combiner(P, operation), _table_filler(P, operation)
    identity = identity_of(operation, P)
    Table = Output if starts else InOut  # noqa: N806

    class MultiUpdateOp(MultiVertex):
        name = f"popops::{'Starting' * starts}MultiUpdateOp<{T},{P},{operation}>"
        provenance = "derived" if starts else "published"  # two published vertices as one
        indices: Input[Vector[uint32]]
        updates: Input[Vector[T]]
        table: Table[Vector[P]]
        first_row: uint32
        n_columns: uint32
        n_entries: uint32
        is_sorted: uint32

        def compute(self: Any, worker_id: int) -> None:
            # Workers own different rows, so one pass in index order gives their result.
            if worker_id == 0:
                width, first = int(self.n_columns), int(self.first_row)
                n_rows = len(self.table) // width
                if starts:
                    fill(self.table)
                for i in range(len(self.indices)):
                    row = int(self.indices[i]) - first
                    if 0 <= row < n_rows:
                        combine_row(self.table, row, self.updates, i, width)

        def compute_on_host(self: Any) -> None:
            width, first, table = int(self.n_columns), int(self.first_row), self.table
            n_rows = len(table) // width
            if starts:
                for i in range(len(table)):
                    table[i] = P(identity)
            for i in range(len(self.indices)):
                row = int(self.indices[i]) - first
                if 0 <= row < n_rows:
                    combine_row(table, row, self.updates, i, width)

        @staticmethod
        def cycles(v: CostView, chip: Chip) -> np.ndarray:
            update = _update_cycles(v, P, operation, chip)
            if not starts:
                return update
            # PopLibs fills partial tables in a step before, with a copy of a constant.
            return update + chip.n_workers * memset_slots(v.sizes["table"], P.n_bytes, chip)

        @staticmethod
        def flops(v: CostView, chip: Chip) -> np.ndarray:  # noqa: ARG004
            return _update_flops(v, P, int(operation != "set"))

    return MultiUpdateOp


@family
def scaled_update_codelet(T: Type) -> type:  # noqa: N803
    """table[index] += scale * update for the rows of a block, in index order."""

    class ScaledMultiUpdateAdd(MultiVertex):
        name = f"popops::ScaledMultiUpdateOp<{T},add>"
        provenance = "published"
        indices: Input[Vector[uint32]]
        updates: Input[Vector[T]]
        table: InOut[Vector[T]]
        scale: Input[T]
        first_row: uint32
        n_columns: uint32
        n_entries: uint32
        is_sorted: uint32

        def compute(self: Any, worker_id: int) -> None:
            # Workers own different rows, so one pass in index order gives their result.
            if worker_id == 0:
                width, first, scale = int(self.n_columns), int(self.first_row), self.scale
                n_rows = len(self.table) // width
                for i in range(len(self.indices)):
                    row = int(self.indices[i]) - first
                    if 0 <= row < n_rows:
                        old = self.table[row * width : (row + 1) * width]
                        new = self.updates[i * width : (i + 1) * width]
                        for j in range(width):
                            old[j] += T(scale * new[j])

        @staticmethod
        def cycles(v: CostView, chip: Chip) -> np.ndarray:
            return _update_cycles(v, T, "add", chip)

        @staticmethod
        def flops(v: CostView, chip: Chip) -> np.ndarray:  # noqa: ARG004
            return _update_flops(v, T, 2)

    return ScaledMultiUpdateAdd


def _update_cycles(v: CostView, type: Type, operation: str, chip: Chip) -> np.ndarray:
    width = v.state["n_columns"].astype(np.int64)
    return multi_update_cycles(
        v.sizes["indices"],
        width,
        type.n_bytes,
        v.sizes["table"] // width,
        v.state["n_entries"].astype(np.int64),
        v.state["is_sorted"] != 0,
        operation,
        chip,
        v.n_rows,
    )


def _update_flops(v: CostView, type: Type, n_each: int) -> np.ndarray:
    """Which block has an index is data, so all blocks are charged an equal share."""
    n_elems = v.sizes["indices"] * v.sizes["table"] / v.state["n_entries"]
    return n_each * type.is_floating * n_elems


@family
def join_partials_codelet(T: Type, operation: str) -> type:  # noqa: N803
    """Combines corresponding elements of several partial tables, in order."""
    combine = COMBINE[operation]

    class JoinPartials(MultiVertex):
        name = f"popops::JoinPartials<{T},{operation}>"
        provenance = "published"
        partials: Vector[Input[Vector[T]]]
        out: Output[Vector[T]]

        def compute(self: Any, worker_id: int) -> None:
            # Workers own different elements: one pass over all of them reads partials in long runs.
            if worker_id == 0:
                out, first = self.out, self.partials[0]
                for i in range(len(out)):
                    out[i] = first[i]
                for k in range(1, len(self.partials)):
                    partial = self.partials[k]
                    for i in range(len(out)):
                        out[i] = T(combine(out[i], partial[i]))

        def compute_on_host(self: Any) -> None:
            # Four partials at once: the memory that they are in answers several reads together.
            out, first, n = self.out, self.partials[0], len(self.partials)
            for i in range(len(out)):
                out[i] = first[i]
            for k in range(1, n - 3, 4):
                a, b, c, d = (
                    self.partials[k], self.partials[k + 1],
                    self.partials[k + 2], self.partials[k + 3],
                )  # fmt: skip
                for i in range(len(out)):
                    of_two = T(combine(T(combine(out[i], a[i])), b[i]))
                    out[i] = T(combine(T(combine(of_two, c[i])), d[i]))
            for k in range(1 + (n - 1) // 4 * 4, n):
                partial = self.partials[k]
                for i in range(len(out)):
                    out[i] = T(combine(out[i], partial[i]))

        @staticmethod
        def cycles(v: CostView, chip: Chip) -> np.ndarray:
            return partials_cycles(v.sizes["out"], v.n_subs["partials"], T, chip)

        @staticmethod
        def flops(v: CostView, chip: Chip) -> np.ndarray:  # noqa: ARG004
            each = int(T.is_floating and operation != "set")
            return each * (v.n_subs["partials"] - 1) * v.sizes["out"]

    return JoinPartials


@family
def apply_updates_codelet(T: Type, P: Type, operation: str) -> type:  # noqa: N803
    """Table = operation(table, scale * update); the scale is 1 unless updates are added."""
    combine = COMBINE[operation]
    is_scaled = operation == "add"

    class ApplyUpdates(MultiVertex):
        name = f"popops::ApplyUpdates<{T},{P},{operation}>"
        provenance = "published"
        table: InOut[Vector[T]]
        updates: Input[Vector[P]]
        scale: Input[P]

        def compute(self: Any, worker_id: int) -> None:
            n, scale = len(self.table), self.scale
            begin, end = n * worker_id // self.n_workers, n * (worker_id + 1) // self.n_workers
            table, updates = self.table[begin:end], self.updates[begin:end]
            for i in range(len(table)):
                new = P(scale * updates[i]) if is_scaled else updates[i]
                table[i] = T(combine(P(table[i]), new))

        @staticmethod
        def cycles(v: CostView, chip: Chip) -> np.ndarray:
            return scaled_add_cycles(v.sizes["table"], P, chip)

        flops = flops_per_element("table", is_scaled + (operation != "set"), P)

    return ApplyUpdates
