"""Native copies from columns to batches; they hold no lock of Python, so threads run in parallel.

A call's batches are *packs* of graphs: pack p has the graphs pack_start[p] to pack_start[p + 1] of
a list of graph numbers. Outputs have the rows of one pack after those of the other.
"""

import numpy as np

from tremula.codelets.native.stored_code import jit


@jit(nogil=True)
def place_rows(pack_start, graphs, start, n_rows, out_row, n_used):
    """Where the rows of each graph go, and how many each pack has; the first pack that is too full.

    Returns -1 if all fit.
    """
    for p in range(len(pack_start) - 1):
        row = p * n_rows
        for j in range(pack_start[p], pack_start[p + 1]):
            out_row[j] = row
            row += start[graphs[j] + 1] - start[graphs[j]]
        n_used[p] = row - p * n_rows
        if n_used[p] > n_rows:
            return p
    return -1


@jit(nogil=True)
def place_graphs(pack_start, n_graphs, out_row):
    """Copies of an attribute that has one row per graph."""
    for p in range(len(pack_start) - 1):
        for j in range(pack_start[p], pack_start[p + 1]):
            out_row[j] = p * n_graphs + j - pack_start[p]


@jit(nogil=True)
def copy_rows(source, start, graphs, out_row, width, out, n_used, n_rows, padding):
    """Rows of all graphs to their places, and the pad value behind those of each pack.

    Arrays are flat, with `width` words per row.
    """
    for j in range(len(graphs)):
        begin = start[graphs[j]] * width
        n = start[graphs[j] + 1] * width - begin
        to = out_row[j] * width
        for i in range(n):
            out[to + i] = source[begin + i]
    for p in range(len(n_used)):
        for i in range((p * n_rows + n_used[p]) * width, (p + 1) * n_rows * width):
            out[i] = padding


@jit(nogil=True)
def fill_structure(
    pack_start, graphs, node_start, n_nodes, n_graphs, batch, ptr, node_mask, graph_mask
):
    """The graph of each node, where graphs begin, which nodes and graphs are real."""
    for p in range(len(pack_start) - 1):
        n_real = pack_start[p + 1] - pack_start[p]
        n_padding = n_graphs - n_real
        node = n_left = 0
        ptr[p * (n_graphs + 1)] = 0
        for g in range(n_graphs):
            graph_mask[p * n_graphs + g] = g < n_real
            if g < n_real:
                graph = graphs[pack_start[p] + g]
                n = node_start[graph + 1] - node_start[graph]
            else:
                if g == n_real:
                    n_left = n_nodes - node
                n = n_left // n_padding + (1 if g - n_real < n_left % n_padding else 0)
            for i in range(p * n_nodes + node, p * n_nodes + node + n):
                batch[i] = g
                node_mask[i] = g < n_real
            node += n
            ptr[p * (n_graphs + 1) + g + 1] = node


@jit(nogil=True)
def fill_edges(pack_start, graphs, edge_start, edge_index, ptr, n_edges, n_graphs, out, edge_mask):
    """edge_index of all packs, [2 · packs, edges]: real edges, then rings in the padding graphs."""
    for p in range(len(pack_start) - 1):
        n_real = pack_start[p + 1] - pack_start[p]
        place = p * (n_graphs + 1)
        edge = 0
        for g in range(n_real):
            begin = edge_start[graphs[pack_start[p] + g]]
            n = edge_start[graphs[pack_start[p] + g] + 1] - begin
            first = ptr[place + g]
            for i in range(n):
                out[2 * p, edge + i] = edge_index[0, begin + i] + first
                out[2 * p + 1, edge + i] = edge_index[1, begin + i] + first
            edge += n
        for i in range(n_edges):
            edge_mask[p * n_edges + i] = i < edge
        n_left = n_edges - edge
        n_rings = 0  # padding graphs that have nodes come first
        for g in range(n_real, n_graphs):
            if ptr[place + g + 1] > ptr[place + g]:
                n_rings += 1
        for g in range(n_rings):
            n = n_left // n_rings + (1 if g < n_left % n_rings else 0)
            first = ptr[place + n_real + g]
            n_nodes = ptr[place + n_real + g + 1] - first
            for i in range(n):
                target = i * n_nodes // n
                out[2 * p, edge + i] = first + (target + 1) % n_nodes
                out[2 * p + 1, edge + i] = first + target
            edge += n


@jit(nogil=True)
def near_pairs(pos, node_start, graphs_from, graphs_to, square, limit, counts, out):
    """Pairs of one graph within a distance, by target, nearest first; counted if `out` is empty."""
    n_found = 0
    n_most = 1
    for g in range(graphs_from, graphs_to):
        n_most = max(n_most, node_start[g + 1] - node_start[g])
    nearest = np.empty(min(limit, n_most), np.int64)
    distances = np.empty(min(limit, n_most), np.float32)
    for g in range(graphs_from, graphs_to):
        begin, end = node_start[g], node_start[g + 1]
        before = n_found
        for target in range(begin, end):
            n_own = 0
            for source in range(begin, end):
                if source == target:
                    continue
                total = np.float32(0)
                for axis in range(pos.shape[1]):
                    offset = pos[source, axis] - pos[target, axis]
                    total += offset * offset
                if total <= square:
                    n_own = _insert(nearest, distances, n_own, source - begin, total)
            for i in range(n_own):
                if out.shape[1]:
                    out[0, n_found] = nearest[i]
                    out[1, n_found] = target - begin
                n_found += 1
        counts[g] = n_found - before
    return n_found


@jit(nogil=True)
def _insert(nearest, distances, n, place, distance):
    """Put a place into a list sorted by distance, if it is near enough; the list's new length."""
    if n == len(nearest) and (n == 0 or distance >= distances[n - 1]):
        return n
    at = min(n, len(nearest) - 1)
    while at > 0 and distances[at - 1] > distance:
        nearest[at], distances[at] = nearest[at - 1], distances[at - 1]
        at -= 1
    nearest[at], distances[at] = place, distance
    return min(n + 1, len(nearest))
