"""Reduce-scatters of groups with a stride.

Names only, made by tools/redirect_modules.py; code is in tremula.frontends.
"""

from tremula.frontends.popxl_addons.ops.tensor_parallel import (
    replicated_reduce_scatter_strided,
)

__all__ = [
    "replicated_reduce_scatter_strided",
]
