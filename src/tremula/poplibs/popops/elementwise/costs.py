"""Cycles of element-wise vertices from the sizes of their fields, with PopLibs' constants."""

from dataclasses import dataclass

import numpy as np

from tremula.base.types import Type
from tremula.codelets.spec import CostView
from tremula.hardware import PUBLISHED_DATA_PATH_BYTES, Chip
from tremula.poplibs.counts import ceil_div
from tremula.poplibs.popops.elementwise.element_op import VectorCost
from tremula.poplibs.popops.elementwise.operations import ELEMENT_OPS

# Supervisor cycles to start the workers. Published; unary and binary vertices differ.
LAUNCH_CYCLES = {1: 20, 2: 11, 3: 11}
ROW_LAUNCH_CYCLES = 13
# Slots of a worker before its loop. Published: float and half binary vertices, in place and not.
BINARY_SLOTS = {"FLOAT": 29, "HALF": 26}
BINARY_IN_PLACE_SLOTS = 58
# Published (PopLibs' popopsCycleEstimators.cpp): in place, sums, differences and products of floats
# and halves can take a loop that loads both operands together, a slot less, if these lie in
# different elements of memory. Costs assume that they do (docs/caveats.md).
FAST_IN_PLACE = ("add", "sub", "mul")
FAST_PATH_SLOTS = 1
UNARY_SLOTS, UNARY_IN_PLACE_SLOTS = 17, 55
TERNARY_SLOTS = 11
SCALAR_SLOTS, OUTER_SLOTS, INNER_SLOTS = 20, 15, 19
FUSED_MULTI_SLOTS, FUSED_SLOTS = 20, 13
OUTER_ROW_SLOTS = 7  # published: per row of an outer broadcast
INNER_COLUMN_SLOTS = 8  # published: per vector of columns of an inner broadcast
SUB_VECTOR_SLOTS = 11  # derived: a 2D vertex fetches pointers and restarts its loop


@dataclass(frozen=True, slots=True)
class LoopCost:
    """Launch cycles, slots before the loop, and slots per vector of `width` elements.

    Slots and widths are those of the published chips; the methods give them for another chip.
    """

    launch: int
    start: int
    slots: int
    width: int = 1
    n_accesses: int = 0  # loads and stores of a vector that `slots` leaves out
    stored_bytes: int = 0  # of an element, in a loop of nothing but stores: these set its width
    is_vector: bool = True  # else the elements are handled one by one in an unrolled loop

    def width_on(self, chip: Chip) -> int:
        """Elements of a vector on a chip."""
        if self.stored_bytes:
            return max(1, chip.store_bytes_per_cycle // self.stored_bytes)
        return chip.published_width(self.width) if self.is_vector else self.width

    def slots_on(self, chip: Chip) -> int:
        """Slots of a vector on a chip, whose loads may be wider than its data path."""
        n_at_once = max(1, chip.load_bytes_per_cycle // chip.data_path_bytes)
        return self.slots + -(-self.n_accesses // n_at_once)

    def loop_slots(
        self, n_vectors: np.ndarray, n_loops: np.ndarray | int, chip: Chip
    ) -> np.ndarray:
        """Slots of all vectors of several equal loops.

        A loop longer than the hardware can repeat is restarted.
        """
        per_loop = ceil_div(n_vectors, np.maximum(n_loops, 1))
        n_restarts = n_loops * (np.maximum(per_loop - 1, 0) // chip.rpt_count_max)
        return n_vectors * self.slots_on(chip) + n_restarts * SUB_VECTOR_SLOTS


def single_cost(op: str, element: Type, form: str, is_in_place: bool, is_multi: bool) -> LoopCost:
    """The cost of one operation as its PopLibs vertex; `form` is "", "scalar", "inner", "outer"."""
    entry = ELEMENT_OPS[op]
    vector = entry.cost_of(element, has_scalar=bool(form))
    start = {"scalar": SCALAR_SLOTS, "inner": INNER_SLOTS, "outer": OUTER_SLOTS}.get(form)
    if start is None:
        start = _plain_start(entry.n_operands, element, is_in_place)
    launch = ROW_LAUNCH_CYCLES if form == "inner" else LAUNCH_CYCLES[entry.n_operands]
    is_fast = is_in_place and not form and op in FAST_IN_PLACE and element.is_floating
    slots = vector.slots - FAST_PATH_SLOTS * is_fast
    return LoopCost(launch if is_multi else 0, start, slots, vector.width)


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
    """The cost of a generated vertex: its operations, then a load per vector and a store.

    Two loads and a store, or a load and a store, share the slots that single vertices show.
    """
    width = max(1, PUBLISHED_DATA_PATH_BYTES // max(t.n_bytes for t in types))
    slots = sum(_arithmetic_slots(op, element, width) for op, element in ops)
    start = FUSED_MULTI_SLOTS if is_multi else FUSED_SLOTS
    launch = LAUNCH_CYCLES[2] if is_multi else 0
    return LoopCost(launch, start, slots, width, n_accesses=n_vectors + 1)


def _arithmetic_slots(op: str, element: Type, width: int) -> int:
    vector: VectorCost = ELEMENT_OPS[op].cost_of(element)
    memory = 2 if ELEMENT_OPS[op].n_operands > 1 else 1
    return max(1, -(-(vector.slots - memory) * width // vector.width))


def flat_multi_cycles(n_elems: np.ndarray, cost: LoopCost, chip: Chip) -> np.ndarray:
    """Tile cycles of a MultiVertex over one region."""
    n_vectors = ceil_div(ceil_div(n_elems, chip.n_workers), cost.width_on(chip))
    return cost.launch + chip.n_workers * (cost.start + cost.loop_slots(n_vectors, 1, chip))


def flat_cycles(n_elems: np.ndarray, n_subs: np.ndarray, cost: LoopCost, chip: Chip) -> np.ndarray:
    """Worker cycles over several regions; each may end with a partial vector."""
    width = cost.width_on(chip)
    n_vectors = (n_elems + n_subs * (width - 1)) // width
    return cost.start + n_subs * SUB_VECTOR_SLOTS + cost.loop_slots(n_vectors, n_subs, chip)


def row_slots(
    n_rows: np.ndarray, n_cols: np.ndarray, cost: LoopCost, has_inner: bool, chip: Chip
) -> np.ndarray:
    """Slots for rows × columns; an inner broadcast loops over columns outside, as PopLibs does."""
    n_vectors = ceil_div(n_cols, cost.width_on(chip))
    if has_inner:
        return n_vectors * (INNER_COLUMN_SLOTS + cost.loop_slots(n_rows, 1, chip))
    return n_rows * (OUTER_ROW_SLOTS + cost.loop_slots(n_vectors, 1, chip))


def row_multi_cycles(
    n_elems: np.ndarray, n_rows: np.ndarray, cost: LoopCost, has_inner: bool, chip: Chip
) -> np.ndarray:
    """Tile cycles over rows × columns: workers share the longer side."""
    n_cols = n_elems // np.maximum(n_rows, 1)
    is_by_rows = n_rows >= n_cols
    rows = np.where(is_by_rows, ceil_div(n_rows, chip.n_workers), n_rows)
    cols = np.where(is_by_rows, n_cols, ceil_div(n_cols, chip.n_workers))
    slots = row_slots(rows, cols, cost, has_inner, chip)
    return cost.launch + chip.n_workers * (cost.start + slots)


def row_cycles(
    n_elems: np.ndarray, n_rows: np.ndarray, n_subs: np.ndarray, cost: LoopCost, has_inner: bool,
    chip: Chip,
) -> np.ndarray:  # fmt: skip
    """Worker cycles over several regions of n_rows rows in all."""
    n_cols = ceil_div(n_elems, np.maximum(n_rows, 1))
    slots = row_slots(n_rows, n_cols, cost, has_inner, chip)
    return cost.start + n_subs * SUB_VECTOR_SLOTS + slots


def n_rows_of(v: CostView, out: str, vector: str, is_inner: bool) -> np.ndarray:
    """Rows of a vertex, from the length of a broadcast operand (over all regions)."""
    if not is_inner:
        return v.sizes[vector]
    n_subs = v.n_subs.get(vector, np.ones(v.n_rows, np.int64))
    return ceil_div(v.sizes[out] * n_subs, np.maximum(v.sizes[vector], 1))
