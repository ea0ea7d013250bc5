"""A stream and its load or store at once.

Names only, made by tools/redirect_modules.py; code is in tremula.frontends.
"""

from tremula.frontends.popxl_addons.ops.streams import (
    host_load,
    host_store,
)

__all__ = [
    "host_load",
    "host_store",
]
