"""popops: element-wise operations, expressions, reductions, slices, rearrangements."""

from tremula.poplibs.popops import expr
from tremula.poplibs.popops.elementwise import FUNCTIONS
from tremula.poplibs.popops.map import map, map_in_place, map_with_output

# Every element-wise function of the table, in its three forms: add, add_in_place, add_with_output, …
globals().update(FUNCTIONS)

__all__ = [
    "expr", "map", "map_in_place", "map_with_output",
    *FUNCTIONS,
]  # fmt: skip
