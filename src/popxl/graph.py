"""popxl.graph: graphs."""

from tremula.frontends.popxl.core.graph import Graph
