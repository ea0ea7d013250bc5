"""`tessellate_ipu.core`: arrays over tiles, `tile_map`, and how vertices are described."""

from tremula.frontends.jax.tessellate.arrays import (  # noqa: F401 - re-exported
    TileShardedArray,
    tile_barrier,
    tile_constant_replicated,
    tile_constant_sharded,
    tile_data_barrier,
    tile_gather,
    tile_put_replicated,
    tile_put_sharded,
)
from tremula.frontends.jax.tessellate.equations import (  # noqa: F401 - the same
    IpuTileMapEquation,
    IpuVertexAttributeF32,
    IpuVertexAttributeI32,
    IpuVertexIOInfo,
    IpuVertexIOType,
    make_ipu_vertex_attributes,
    make_ipu_vertex_constant_info,
    make_ipu_vertex_in_info,
    make_ipu_vertex_inout_info,
    make_ipu_vertex_inputs,
    make_ipu_vertex_io_info,
    make_ipu_vertex_name_templated,
    make_ipu_vertex_out_info,
    make_ipu_vertex_outputs,
)
from tremula.frontends.jax.tessellate.ipu_types import (  # noqa: F401
    IpuType,
    from_ipu_type_to_numpy_dtype,
    from_numpy_dtype_to_ipu_type,
    get_ipu_type_name,
    make_ipu_shaped_array,
)
from tremula.frontends.jax.tessellate.mapping import (  # noqa: F401 - the same
    create_ipu_tile_primitive,
    create_ipu_tile_primitive_v2,
    declare_ipu_tile_primitive,
    get_ipu_tile_primitive_translation,
    ipu_cycle_count,
    ipu_cycle_count_overhead,
    ipu_hw_cycle_count,
    register_ipu_tile_primitive,
    tile_map,
    tile_map_primitive,
)
from tremula.frontends.jax.tessellate.primitives import (  # noqa: F401 - the same
    cycle_count_p as hw_cycle_count_p,
)
from tremula.frontends.jax.tessellate.workers import (  # noqa: F401
    make_ipu_vector1d_worker_offsets,
    make_ipu_vector1d_worker_offsets_and_sizes,
    make_num_elements_per_worker,
)
