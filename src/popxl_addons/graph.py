"""Graphs with named arguments.

Names only, made by tools/redirect_modules.py; code is in tremula.frontends.
"""

from tremula.frontends.popxl_addons.graphs.graph import (
    BoundGraph,
    GraphWithNamedArgs,
)

__all__ = [
    "BoundGraph",
    "GraphWithNamedArgs",
]
