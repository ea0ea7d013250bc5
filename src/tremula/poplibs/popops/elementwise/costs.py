"""Cycles of element-wise vertices from the sizes of their fields, with PopLibs' constants."""

from dataclasses import dataclass

import numpy as np

from tremula.base.types import Type
from tremula.codelets.spec import CostView
from tremula.poplibs.counts import ceil_div
from tremula.poplibs.popops.elementwise.element_op import VectorCost
from tremula.poplibs.popops.elementwise.operations import ELEMENT_OPS

DATA_PATH_BYTES = 8
# Supervisor cycles to start the workers. Published; unary and binary vertices differ.
LAUNCH_CYCLES = {1: 20, 2: 11, 3: 11}
ROW_LAUNCH_CYCLES = 13
# Slots of a worker before its loop. Published: float and half binary vertices, in place and not.
BINARY_SLOTS = {"FLOAT": 29, "HALF": 26}
BINARY_IN_PLACE_SLOTS = 58
UNARY_SLOTS, UNARY_IN_PLACE_SLOTS = 17, 55
TERNARY_SLOTS = 11
SCALAR_SLOTS, OUTER_SLOTS, INNER_SLOTS = 20, 15, 19
FUSED_MULTI_SLOTS, FUSED_SLOTS = 20, 13
OUTER_ROW_SLOTS = 7  # published: per row of an outer broadcast
INNER_COLUMN_SLOTS = 8  # published: per vector of columns of an inner broadcast
SUB_VECTOR_SLOTS = 11  # derived: a 2D vertex fetches pointers and restarts its loop


@dataclass(frozen=True, slots=True)
class LoopCost:
    """Launch cycles, slots before the loop, and slots per vector of `width` elements."""

    launch: int
    start: int
    slots: int
    width: int


def single_cost(op: str, element: Type, form: str, is_in_place: bool, is_multi: bool) -> LoopCost:
    """The cost of one operation as its PopLibs vertex; `form` is "", "scalar", "inner", "outer"."""
    entry = ELEMENT_OPS[op]
    vector = entry.cost_of(element, has_scalar=bool(form))
    start = {"scalar": SCALAR_SLOTS, "inner": INNER_SLOTS, "outer": OUTER_SLOTS}.get(form)
    if start is None:
        start = _plain_start(entry.n_operands, element, is_in_place)
    launch = ROW_LAUNCH_CYCLES if form == "inner" else LAUNCH_CYCLES[entry.n_operands]
    return LoopCost(launch if is_multi else 0, start, vector.slots, vector.width)


def _plain_start(n_operands: int, element: Type, is_in_place: bool) -> int:
    if n_operands == 1:
        return UNARY_IN_PLACE_SLOTS if is_in_place else UNARY_SLOTS
    if n_operands == 2:
        plain = BINARY_SLOTS.get(element.name, BINARY_SLOTS["FLOAT"])
        return BINARY_IN_PLACE_SLOTS if is_in_place else plain
    return TERNARY_SLOTS


def fused_cost(
    ops: tuple[tuple[str, Type], ...], types: tuple[Type, ...], n_vectors: int, is_multi: bool
) -> LoopCost:
    """The cost of a generated vertex: all operations without loads and stores, then these.

    Two loads and a store, or a load and a store, share the slots that single vertices show.
    """
    width = max(1, DATA_PATH_BYTES // max(t.n_bytes for t in types))
    slots = sum(_arithmetic_slots(op, element, width) for op, element in ops)
    slots += (n_vectors + 2) // 2
    start = FUSED_MULTI_SLOTS if is_multi else FUSED_SLOTS
    return LoopCost(LAUNCH_CYCLES[2] if is_multi else 0, start, max(slots, 1), width)


def _arithmetic_slots(op: str, element: Type, width: int) -> int:
    vector: VectorCost = ELEMENT_OPS[op].cost_of(element)
    memory = 2 if ELEMENT_OPS[op].n_operands > 1 else 1
    return max(1, -(-(vector.slots - memory) * width // vector.width))


def flat_multi_cycles(n_elems: np.ndarray, cost: LoopCost, n_workers: int) -> np.ndarray:
    """Tile cycles of a MultiVertex over one region."""
    n_vectors = ceil_div(ceil_div(n_elems, n_workers), cost.width)
    return cost.launch + n_workers * (cost.start + n_vectors * cost.slots)


def flat_cycles(n_elems: np.ndarray, n_subs: np.ndarray, cost: LoopCost) -> np.ndarray:
    """Worker cycles over several regions; each may end with a partial vector."""
    n_vectors = (n_elems + n_subs * (cost.width - 1)) // cost.width
    return cost.start + n_subs * SUB_VECTOR_SLOTS + n_vectors * cost.slots


def row_slots(
    n_rows: np.ndarray, n_cols: np.ndarray, cost: LoopCost, has_inner: bool
) -> np.ndarray:
    """Slots for rows × columns; an inner broadcast loops over columns outside, as PopLibs does."""
    n_vectors = ceil_div(n_cols, cost.width)
    if has_inner:
        return n_vectors * (INNER_COLUMN_SLOTS + n_rows * cost.slots)
    return n_rows * (OUTER_ROW_SLOTS + n_vectors * cost.slots)


def row_multi_cycles(
    n_elems: np.ndarray, n_rows: np.ndarray, cost: LoopCost, has_inner: bool, n_workers: int
) -> np.ndarray:
    """Tile cycles over rows × columns: workers share the longer side."""
    n_cols = n_elems // np.maximum(n_rows, 1)
    is_by_rows = n_rows >= n_cols
    rows = np.where(is_by_rows, ceil_div(n_rows, n_workers), n_rows)
    cols = np.where(is_by_rows, n_cols, ceil_div(n_cols, n_workers))
    return cost.launch + n_workers * (cost.start + row_slots(rows, cols, cost, has_inner))


def row_cycles(
    n_elems: np.ndarray, n_rows: np.ndarray, n_subs: np.ndarray, cost: LoopCost, has_inner: bool
) -> np.ndarray:
    """Worker cycles over several regions of n_rows rows in all."""
    n_cols = ceil_div(n_elems, np.maximum(n_rows, 1))
    slots = row_slots(n_rows, n_cols, cost, has_inner)
    return cost.start + n_subs * SUB_VECTOR_SLOTS + slots


def n_rows_of(v: CostView, out: str, vector: str, is_inner: bool) -> np.ndarray:
    """Rows of a vertex, from the length of a broadcast operand (over all regions)."""
    if not is_inner:
        return v.sizes[vector]
    n_subs = v.n_subs.get(vector, np.ones(v.n_rows, np.int64))
    return ceil_div(v.sizes[out] * n_subs, np.maximum(v.sizes[vector], 1))
