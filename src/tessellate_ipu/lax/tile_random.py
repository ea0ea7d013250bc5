"""`tessellate_ipu.lax.tile_random`: random numbers of the hardware, and their seeds."""

from tremula.frontends.jax.tessellate.random import (
    get_ipu_num_worker_contexts,
    tile_get_hw_seeds,
    tile_random_normal,
    tile_random_uniform,
    tile_set_hw_seeds,
)

__all__ = [
    "get_ipu_num_worker_contexts", "tile_get_hw_seeds", "tile_random_normal",
    "tile_random_uniform", "tile_set_hw_seeds",
]  # fmt: skip
