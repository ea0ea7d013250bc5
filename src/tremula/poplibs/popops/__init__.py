"""popops: element-wise operations, expressions, reductions, slices, rearrangements."""

from typing import TYPE_CHECKING

from tremula.base.names.argument_types import explain_arguments_of as _explain_arguments_of
from tremula.poplibs.popops.elementwise import expr
from tremula.poplibs.popops.elementwise import functions as elementwise
from tremula.poplibs.popops.elementwise.cast import cast, cast_with_output
from tremula.poplibs.popops.elementwise.element_op import ElementOp, VectorCost
from tremula.poplibs.popops.elementwise.fill import fill, zero
from tremula.poplibs.popops.elementwise.functions import *  # noqa: F403 - its names are in its __all__
from tremula.poplibs.popops.elementwise.map import map, map_in_place, map_with_output  # noqa: A004
from tremula.poplibs.popops.elementwise.register import register_element_op, remove_element_op
from tremula.poplibs.popops.elementwise.scaled_add import (
    scaled_add_to,
    scaled_subtract_from,
    scaled_sum_to,
)
from tremula.poplibs.popops.iota import encode_one_hot, iota
from tremula.poplibs.popops.loops import add_loop_counter_step, counted_for_loop, counted_loop
from tremula.poplibs.popops.pad import pad
from tremula.poplibs.popops.reduction.all_true import all_true
from tremula.poplibs.popops.reduction.histogram import histogram
from tremula.poplibs.popops.reduction.nan_check import has_nan, has_nan_or_inf
from tremula.poplibs.popops.reduction.operations import ReduceOp
from tremula.poplibs.popops.reduction.reduce import (
    Reduction,
    reduce,
    reduce_many,
    reduce_with_output,
)
from tremula.poplibs.popops.reduction.register import register_reduction, remove_reduction
from tremula.poplibs.popops.reduction.scan import cumulative_product, cumulative_sum, scan
from tremula.poplibs.popops.rows import (
    normalise_image,
    select_scalar_from_rows,
    update_scalar_in_rows,
)
from tremula.poplibs.popops.slicing import samples as _slicing_samples  # noqa: F401 - registers
from tremula.poplibs.popops.slicing.circ_buf import CircBuf
from tremula.poplibs.popops.slicing.dynamic_slice import dynamic_slice, dynamic_update
from tremula.poplibs.popops.slicing.embedding_plan import SlicePlan
from tremula.poplibs.popops.slicing.embedding_plan import plan as plan_embedding
from tremula.poplibs.popops.slicing.gather_scatter import create_gather_input, gather, scatter
from tremula.poplibs.popops.slicing.layout import (
    create_indices_tensor,
    create_slice_tensor,
    create_sliceable_tensor,
)
from tremula.poplibs.popops.slicing.multi_slice import grouped_multi_slice, multi_slice
from tremula.poplibs.popops.slicing.multi_update import (
    grouped_multi_update,
    grouped_multi_update_add,
    multi_update,
    multi_update_add,
    multi_update_max,
    multi_update_mul,
)
from tremula.poplibs.popops.slicing.sequence_slice import sequence_slice
from tremula.poplibs.popops.sorting.arg_max import (
    arg_max,
    arg_min,
    max_and_arg_max,
    min_and_arg_min,
)
from tremula.poplibs.popops.sorting.sort import (
    sort,
    sort_in_place,
    sort_key_value,
    sort_key_value_in_place,
)
from tremula.poplibs.popops.sorting.top_k import (
    create_top_k_input,
    top_k,
    top_k_key_value,
    top_k_with_permutation,
)
from tremula.poplibs.popops.transpose import (
    Grouping,
    add_transpose_vertices,
    can_use_fast_transpose,
    innermost_grouping,
    partial_transpose,
    regroup_if_beneficial,
    regroup_tensor,
)

__all__ = [
    # slices
    "SlicePlan", "create_gather_input", "create_indices_tensor", "create_slice_tensor",
    "create_sliceable_tensor", "dynamic_slice", "dynamic_update", "gather", "grouped_multi_slice",
    "grouped_multi_update", "grouped_multi_update_add", "multi_slice", "multi_update",
    "multi_update_add", "multi_update_max", "multi_update_mul", "plan_embedding", "scatter",
    # expressions
    "expr", "map", "map_in_place", "map_with_output",
    "ElementOp", "VectorCost", "register_element_op", "remove_element_op",
    # types and values
    "cast", "cast_with_output", "fill", "zero",
    # reductions
    "Reduction", "reduce", "reduce_many", "reduce_with_output",
    "ReduceOp", "register_reduction", "remove_reduction",
    "all_true", "histogram", "cumulative_product", "cumulative_sum", "scan",
    "encode_one_hot", "iota", "normalise_image", "has_nan", "has_nan_or_inf",
    "select_scalar_from_rows", "update_scalar_in_rows",
    # loops and rings
    "CircBuf", "add_loop_counter_step", "counted_for_loop", "counted_loop",
    # order
    "arg_max", "arg_min", "max_and_arg_max", "min_and_arg_min", "sort", "sort_in_place",
    "sort_key_value", "sort_key_value_in_place", "create_top_k_input", "top_k", "top_k_key_value",
    "top_k_with_permutation",
    # rearrangement
    "Grouping", "add_transpose_vertices", "can_use_fast_transpose", "innermost_grouping", "pad",
    "partial_transpose", "regroup_if_beneficial", "regroup_tensor", "sequence_slice",
    # scaled sums
    "scaled_add_to", "scaled_subtract_from", "scaled_sum_to",
]  # fmt: skip
__all__ += elementwise.__all__

_explain_arguments_of(globals(), __all__)

if not TYPE_CHECKING:  # so that type checkers still know which names there are

    def __getattr__(name: str) -> object:
        """Functions of element-wise operations registered since this package was imported."""
        if name in elementwise.__all__:
            return getattr(elementwise, name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
