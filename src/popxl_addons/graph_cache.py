"""Graphs that were made before."""

from tremula.frontends.popxl_addons.graphs.cache import (
    GraphCache,
)

__all__ = [
    "GraphCache",
]
