"""Neighbour lists of a whole data set, made once: edges between nodes within a distance."""

import numpy as np

from tremula.base.errors import InvalidOption, suggest
from tremula.frontends.geometric.feeding import copies
from tremula.frontends.geometric.feeding.columns import GraphColumns
from tremula.frontends.geometric.fixed_size.levels import NODE


def with_radius_graph(
    columns: GraphColumns, r: float, max_num_neighbors: int = 32, pos: str = "pos"
) -> GraphColumns:
    """Graphs whose edges join nodes within r of each other, sorted by target.

    As PyG's `radius_graph` without loops: each node gets its nearest `max_num_neighbors` others.
    `pos` is the attribute that holds the positions.
    """
    if pos not in columns.columns or columns.columns[pos].level != NODE:
        raise InvalidOption(
            f"there is no attribute {pos!r} of nodes to measure distances with.",
            hint=suggest(pos, columns.columns),
        )
    points = np.ascontiguousarray(columns.columns[pos].values, np.float32)
    n_graphs = len(columns)
    counts = np.zeros(n_graphs, np.int64)
    square = np.float32(r) * np.float32(r)

    def find(out: np.ndarray) -> int:
        return copies.near_pairs(
            points, columns.node_start, 0, n_graphs, square, max_num_neighbors, counts, out
        )

    edges = np.empty((2, find(np.empty((2, 0), np.int64))), np.int64)
    find(edges)
    return columns.with_edges(edges, np.concatenate([[0], np.cumsum(counts)]))
