"""Collectives of groups with a stride."""

from tremula.frontends.popxl_addons.ops.tensor_parallel import (
    replicated_all_gather_strided,
    replicated_all_reduce_strided,
    replicated_reduce_scatter_strided,
)

__all__ = [
    "replicated_all_gather_strided",
    "replicated_all_reduce_strided",
    "replicated_reduce_scatter_strided",
]
