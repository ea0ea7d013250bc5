"""Codelets of sorting: sort a block, and merge two sorted blocks and keep one end of the result.

Keys may carry values along; equal keys are ordered by them, so that places as values make a sort
stable. NaN counts as larger than all numbers.
"""

import numpy as np

from tremula.base.types import BOOL, Type
from tremula.codelets.flops import flops_per_element
from tremula.codelets.spec import CostView
from tremula.hardware import Chip
from tremula.poplibs.families import class_from_text, family

START_SLOTS = 25
# Derived from the loops: load, compare and branch of two children, load and store of a parent.
SIFT_SLOTS, SIFT_VALUE_SLOTS = 9, 2  # per element and level of the heap
MERGE_SLOTS, MERGE_VALUE_SLOTS = 8, 2  # per element: loads, compare, branch, store


def is_less(x, y):  # noqa: ANN001, ANN201 - compiled for several types
    """Whether x goes before y; NaN goes last."""
    return x < y or (x == x and y != y)  # noqa: PLR0124 - only NaN differs from itself


def is_tie(x, y):  # noqa: ANN001, ANN201
    return x == y or (x != x and y != y)  # noqa: PLR0124


_SORT = """
class SortBlock(Vertex):
    keys: Input[Vector[K]]
    out: Output[Vector[K]]
    values: Input[Vector[V]]  #v
    out_values: Output[Vector[V]]  #v
    descends: BOOL

    def compute(self):
        n = len(self.out)
        for i in range(n):
            self.out[i] = self.keys[i]
            self.out_values[i] = self.values[i]  #v
        # A heap is built from its last parent down to the root; then its root goes to the end.
        for step in range(n // 2 + n):
            if step < n // 2:
                root, last = n // 2 - 1 - step, n
                key = self.out[root]
                value = self.out_values[root]  #v
            else:
                root, last = 0, n - 1 - (step - n // 2)
                key = self.out[last]
                value = self.out_values[last]  #v
                self.out[last] = self.out[0]
                self.out_values[last] = self.out_values[0]  #v
            child = 2 * root + 1
            while child < last:
                if child + 1 < last:
                    x, y = self.out[child], self.out[child + 1]
                    is_later = is_less(y, x) if self.descends else is_less(x, y)
                    if is_tie(x, y):  #v
                        is_later = self.out_values[child] < self.out_values[child + 1]  #v
                    if is_later:
                        child += 1
                largest = self.out[child]
                is_done = not (is_less(largest, key) if self.descends else is_less(key, largest))
                if is_tie(key, largest):  #v
                    is_done = self.out_values[child] <= value  #v
                if is_done:
                    break
                self.out[root] = largest
                self.out_values[root] = self.out_values[child]  #v
                root = child
                child = 2 * root + 1
            self.out[root] = key
            self.out_values[root] = value  #v
"""

_MERGE = """
class MergeBlocks(Vertex):
    first: Input[Vector[K]]
    second: Input[Vector[K]]
    out: Output[Vector[K]]
    first_values: Input[Vector[V]]  #v
    second_values: Input[Vector[V]]  #v
    out_values: Output[Vector[V]]  #v
    takes_end: BOOL
    descends: BOOL

    def compute(self):
        n = len(self.out)
        if self.takes_end:
            i, j = len(self.first) - 1, len(self.second) - 1
            for k in range(n):
                takes_first = j < 0
                if i >= 0 and j >= 0:
                    x, y = self.first[i], self.second[j]
                    takes_first = is_less(x, y) if self.descends else is_less(y, x)
                    if is_tie(x, y):  #v
                        takes_first = self.first_values[i] > self.second_values[j]  #v
                place = n - 1 - k
                if takes_first:
                    self.out[place] = self.first[i]
                    self.out_values[place] = self.first_values[i]  #v
                    i -= 1
                else:
                    self.out[place] = self.second[j]
                    self.out_values[place] = self.second_values[j]  #v
                    j -= 1
        else:
            i, j = 0, 0
            for k in range(n):
                takes_first = j >= len(self.second)
                if i < len(self.first) and j < len(self.second):
                    x, y = self.first[i], self.second[j]
                    takes_first = not (is_less(x, y) if self.descends else is_less(y, x))
                    if is_tie(x, y):  #v
                        takes_first = self.first_values[i] <= self.second_values[j]  #v
                if takes_first:
                    self.out[k] = self.first[i]
                    self.out_values[k] = self.first_values[i]  #v
                    i += 1
                else:
                    self.out[k] = self.second[j]
                    self.out_values[k] = self.second_values[j]  #v
                    j += 1
"""


def heap_levels(n_elems: np.ndarray) -> np.ndarray:
    return np.ceil(np.log2(np.maximum(n_elems, 2))).astype(np.int64)


def sort_slots(n_elems: np.ndarray, has_values: bool) -> np.ndarray:
    """Worker slots of sorting n_elems: as many levels as the heap has, for each element."""
    per_level = SIFT_SLOTS + SIFT_VALUE_SLOTS * has_values
    return START_SLOTS + n_elems * heap_levels(n_elems) * per_level


def merge_slots(n_elems: np.ndarray, has_values: bool) -> np.ndarray:
    """Worker slots of a merge with n_elems results."""
    return START_SLOTS + n_elems * (MERGE_SLOTS + MERGE_VALUE_SLOTS * has_values)


_NAMES: dict[str, object] = {"BOOL": BOOL, "is_less": is_less, "is_tie": is_tie}


def _made(text: str, class_name: str, title: str, K: Type, V: Type | None) -> type:  # noqa: N803
    lines = [line for line in text.splitlines() if V is not None or not line.endswith("#v")]
    cls = class_from_text("\n".join(lines) + "\n", class_name, _NAMES | {"K": K, "V": V})
    cls.name = f"popops::{title}<{K}{'' if V is None else f',{V}'}>"
    cls.provenance = "derived"
    return cls


@family
def sort_vertex(K: Type, V: Type | None) -> type:  # noqa: N803
    """Heap-sorts a block in its output."""
    cls = _made(_SORT, "SortBlock", "SortBlock", K, V)

    def cycles(v: CostView, chip: Chip) -> np.ndarray:  # noqa: ARG001
        return sort_slots(v.sizes["out"], V is not None)

    def flops(v: CostView, chip: Chip) -> np.ndarray:  # noqa: ARG001
        # Each element at each level: which child is larger, and whether its parent is.
        return 2 * v.sizes["out"] * heap_levels(v.sizes["out"]) * K.is_floating

    cls.cycles, cls.flops = staticmethod(cycles), staticmethod(flops)
    return cls


@family
def merge_vertex(K: Type, V: Type | None) -> type:  # noqa: N803
    """The first or last elements of two sorted blocks: compare and swap, of whole blocks."""
    cls = _made(_MERGE, "MergeBlocks", "CompareAndSwapBlocks", K, V)

    def cycles(v: CostView, chip: Chip) -> np.ndarray:  # noqa: ARG001
        return merge_slots(v.sizes["out"], V is not None)

    cls.cycles, cls.flops = staticmethod(cycles), flops_per_element("out", 1, K)
    return cls
