"""A tree of values by dotted names.

Names only, made by tools/redirect_modules.py; code is in tremula.frontends.
"""

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
