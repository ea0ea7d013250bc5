"""popops: element-wise operations, expressions, reductions, slices, rearrangements."""

from tremula.poplibs.popops import element_registry, elementwise, expr, reduce_entries
from tremula.poplibs.popops.cast import cast, cast_with_output
from tremula.poplibs.popops.elementwise import *  # noqa: F403 - its names are in its __all__
from tremula.poplibs.popops.fill import fill, zero
from tremula.poplibs.popops.map import map, map_in_place, map_with_output  # noqa: A004
from tremula.poplibs.popops.reduce import Reduction, reduce, reduce_many, reduce_with_output
from tremula.poplibs.popops.scaled_add import scaled_add_to, scaled_subtract_from, scaled_sum_to

__all__ = [
    # expressions
    "element_registry", "expr", "map", "map_in_place", "map_with_output",
    # types and values
    "cast", "cast_with_output", "fill", "zero",
    # reductions
    "reduce_entries", "Reduction", "reduce", "reduce_many", "reduce_with_output",
    # scaled sums
    "scaled_add_to", "scaled_subtract_from", "scaled_sum_to",
]  # fmt: skip
__all__ += elementwise.__all__
