"""All-gathers of groups with a stride.

Names only, made by tools/redirect_modules.py; code is in tremula.frontends.
"""

from tremula.frontends.popxl_addons.ops.tensor_parallel import (
    replicated_all_gather_strided,
)

__all__ = [
    "replicated_all_gather_strided",
]
