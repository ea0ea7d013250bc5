"""Data sets in memory as columns, and neighbour lists made once for all graphs."""

from tremula.frontends.geometric.feeding.columns import Column, GraphColumns
from tremula.frontends.geometric.feeding.radius import with_radius_graph

__all__ = ["Column", "GraphColumns", "with_radius_graph"]
