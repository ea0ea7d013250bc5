"""A whole graph put into a loop.

Names only, made by tools/redirect_modules.py; code is in tremula.frontends.
"""

from tremula.frontends.popxl_addons.transforms.repeat_graph import (
    repeat_graph,
)

__all__ = [
    "repeat_graph",
]
