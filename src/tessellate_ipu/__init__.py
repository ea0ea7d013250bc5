"""`import tessellate_ipu`: tiles programmed from JAX, on the computer you have (Tremula)."""

from tessellate_ipu import core, lax, linalg, utils
from tessellate_ipu.utils import IpuDevice, IpuTargetType, is_ipu_model
from tremula.frontends.jax.backend import add_platform
from tremula.frontends.jax.tessellate.arrays import (
    TileShardedArray,
    tile_barrier,
    tile_constant_replicated,
    tile_constant_sharded,
    tile_data_barrier,
    tile_gather,
    tile_put_replicated,
    tile_put_sharded,
)
from tremula.frontends.jax.tessellate.mapping import (
    create_ipu_tile_primitive,
    create_ipu_tile_primitive_v2,
    declare_ipu_tile_primitive,
    ipu_cycle_count,
    ipu_hw_cycle_count,
    register_ipu_tile_primitive,
    tile_map,
    tile_map_primitive,
)

__all__ = [
    "IpuDevice", "IpuTargetType", "TileShardedArray", "__version__", "core",
    "create_ipu_tile_primitive", "create_ipu_tile_primitive_v2", "declare_ipu_tile_primitive",
    "ipu_cycle_count", "ipu_hw_cycle_count", "is_ipu_model", "lax", "linalg",
    "register_ipu_tile_primitive", "tile_barrier", "tile_constant_replicated",
    "tile_constant_sharded", "tile_data_barrier", "tile_gather", "tile_map", "tile_map_primitive",
    "tile_put_replicated", "tile_put_sharded", "utils",
]  # fmt: skip

__version__ = "0.2.0"  # of the API that this is

add_platform()  # the platform "ipu" of JAX
