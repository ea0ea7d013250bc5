"""poputil: tile maps, regions, broadcasting and replay, shared by all operations."""

from tremula.base.names.argument_types import explain_arguments_of as _explain_arguments_of
from tremula.poplibs.poputil.broadcast import (
    Pattern,
    broadcast_shape,
    broadcast_to_match,
    broadcast_view,
    can_broadcast_to_match,
    cut_rows,
    expand_to_match_ranks,
    pattern_of,
)
from tremula.poplibs.poputil.clones import (
    clone_and_expand_aliasing,
    clone_in_memory,
    clone_to_graph,
    clone_to_ipu,
    copy_to_ipu,
    create_ipu_copy,
    duplicate,
)
from tremula.poplibs.poputil.graph_functions import (
    TensorFunction,
    VoidFunction,
    created_arg,
    inout_arg,
    input_arg,
    output_arg,
)
from tremula.poplibs.poputil.host_values import (
    cast_to_device_half_value,
    check_accuracy_when_cast,
    create_constant_metadata_tensor,
    create_variable_metadata_tensor,
    factor_dims,
    flatten_index,
    template_vertex,
    unfactor_dims,
    unflatten_index,
)
from tremula.poplibs.poputil.intervals import (
    balanced_partition,
    calculate_unshuffling_intervals,
    flatten_intervals,
    interval_sequence_num_elements,
    merge_adjacent_regions,
    split_columns,
    split_regions,
    split_regions_between_workers,
)
from tremula.poplibs.poputil.layout import (
    clone_in_order,
    distinct_part,
    factored,
    in_memory_order,
    is_writeable,
    memory_order,
    repeats_elements,
    simplified,
)
from tremula.poplibs.poputil.memory_order import layout_key
from tremula.poplibs.poputil.quarter_views import as_quarter
from tremula.poplibs.poputil.regions import (
    TileRegions,
    WorkerSlices,
    split_between_workers,
    tile_regions,
)
from tremula.poplibs.poputil.replay import replayed, tiles_of_variable
from tremula.poplibs.poputil.tile_mapping import (
    calc_linear_tile_mapping,
    calc_linear_tile_mapping_and_new_offset,
    choose_mapping_offset,
    dim_is_split_over_ipus,
    dim_is_split_over_tiles,
    get_tile_imbalance,
    inv_transform_tile_index,
    map_tensor_linearly,
    map_tensor_linearly_with_offset,
    tensor_tile_imbalance,
    transform_tile_index,
)
from tremula.poplibs.poputil.use_tracker import (
    MappingMethod,
    TensorUseTracker,
    create_broadcast_operand,
    tiles_by_use,
)
from tremula.poplibs.poputil.var_structure import (
    create_partitionable_tensor,
    detect_dim_groupings,
    detect_innermost_grouping,
)

__all__ = [
    # broadcasting
    "Pattern", "broadcast_shape", "broadcast_to_match", "broadcast_view", "can_broadcast_to_match",
    "cut_rows", "expand_to_match_ranks", "pattern_of",
    # clones
    "clone_and_expand_aliasing", "clone_in_memory", "clone_in_order", "clone_to_graph",
    "clone_to_ipu", "copy_to_ipu",
    "create_ipu_copy", "duplicate",
    # functions
    "TensorFunction", "VoidFunction", "created_arg", "inout_arg", "input_arg", "output_arg",
    # the host
    "as_quarter", "cast_to_device_half_value", "check_accuracy_when_cast",
    "create_constant_metadata_tensor",
    "create_variable_metadata_tensor", "factor_dims", "flatten_index", "template_vertex",
    "unfactor_dims", "unflatten_index",
    # intervals
    "balanced_partition", "calculate_unshuffling_intervals", "flatten_intervals",
    "interval_sequence_num_elements", "merge_adjacent_regions", "split_columns", "split_regions",
    "split_regions_between_workers",
    # layout
    "create_partitionable_tensor", "detect_dim_groupings", "detect_innermost_grouping",
    "distinct_part", "factored", "in_memory_order", "is_writeable", "layout_key", "memory_order",
    "repeats_elements", "simplified",
    # regions
    "TileRegions", "WorkerSlices", "split_between_workers", "tile_regions",
    # replay
    "replayed", "tiles_of_variable",
    # tile maps
    "MappingMethod", "TensorUseTracker", "calc_linear_tile_mapping",
    "calc_linear_tile_mapping_and_new_offset", "choose_mapping_offset", "create_broadcast_operand",
    "dim_is_split_over_ipus", "dim_is_split_over_tiles", "get_tile_imbalance",
    "inv_transform_tile_index", "map_tensor_linearly", "map_tensor_linearly_with_offset",
    "tensor_tile_imbalance", "tiles_by_use", "transform_tile_index",
]  # fmt: skip

_explain_arguments_of(globals(), __all__)
