"""Dictionaries, timing, names of graphs.

Names only, made by tools/redirect_modules.py; code is in tremula.frontends.
"""

from tremula.frontends.popxl_addons.utils import (
    OrderedDict,
    WeightsDict,
    duplicate_items,
    null_context,
    overrides,
    suffix_graph_name,
    timer,
)

__all__ = [
    "OrderedDict",
    "WeightsDict",
    "duplicate_items",
    "null_context",
    "overrides",
    "suffix_graph_name",
    "timer",
]
