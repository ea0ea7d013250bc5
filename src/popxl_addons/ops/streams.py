"""A stream and its load or store at once."""

from tremula.frontends.popxl_addons.ops.streams import (
    host_load,
    host_store,
)

__all__ = [
    "host_load",
    "host_store",
]
