"""`import tessellate_ipu`: tiles programmed from JAX, on the computer you have (Tremula).

Its modules are made from the table in `tremula.frontends.jax.tessellate.names`.
"""

from tremula.base.libraries.redirects import add_modules
from tremula.frontends.jax.backend import add_platform
from tremula.frontends.jax.device import IpuDevice, IpuTargetType, is_ipu_model
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
    tile_map,
    tile_map_primitive,
)
from tremula.frontends.jax.tessellate.names import MODULES
from tremula.frontends.jax.tessellate.registry import register_ipu_tile_primitive

__all__ = [
    "IpuDevice", "IpuTargetType", "TileShardedArray", "__version__", "core",
    "create_ipu_tile_primitive", "create_ipu_tile_primitive_v2", "declare_ipu_tile_primitive",
    "ipu_cycle_count", "ipu_hw_cycle_count", "is_ipu_model", "lax", "linalg",
    "register_ipu_tile_primitive", "tile_barrier", "tile_constant_replicated",
    "tile_constant_sharded", "tile_data_barrier", "tile_gather", "tile_map", "tile_map_primitive",
    "tile_put_replicated", "tile_put_sharded", "utils",
]  # fmt: skip

__version__ = "0.2.0"  # of the API that this is

_modules = add_modules(__name__, MODULES)
for _name, _module in _modules.items():
    _package, _, _own = _name.rpartition(".")
    if _package:
        setattr(_modules[_package], _own, _module)
core, lax, lib, linalg, utils = (_modules[_name] for _name in "core lax lib linalg utils".split())
add_platform()  # the platform "ipu" of JAX
