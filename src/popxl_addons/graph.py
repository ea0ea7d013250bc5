"""Graphs with named arguments."""

from tremula.frontends.popxl_addons.graphs.graph import (
    BoundGraph,
    GraphWithNamedArgs,
)

__all__ = [
    "BoundGraph",
    "GraphWithNamedArgs",
]
