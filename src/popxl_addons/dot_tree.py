"""Trees of things by dotted names."""

from tremula.frontends.popxl_addons.named.dot_tree import (
    DotTree,
    sanitise,
    to_mapping,
)

__all__ = [
    "DotTree",
    "sanitise",
    "to_mapping",
]
