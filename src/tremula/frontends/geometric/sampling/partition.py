"""A partition of a graph into parts of about the same size with few edges between them.

Breadth-first order cut into pieces, then nodes move to the part that holds most of their neighbours
as long as parts stay balanced. Not as good as METIS, which PyG asks for, but always there.
"""

import numpy as np
import torch
from torch import Tensor

from tremula.codelets.native.stored_code import jit

N_PASSES = 8
IMBALANCE = 1.1  # the largest part against the mean


def partition(start: Tensor, neighbour: Tensor, n_parts: int) -> Tensor:
    """The part of each node; node i has the neighbours start[i] to start[i + 1]."""
    n_nodes = len(start) - 1
    if n_parts < 1:
        raise ValueError(f"a graph has at least one part: got num_parts={n_parts}.")
    first = np.ascontiguousarray(start.cpu().numpy(), np.int64)
    other = np.ascontiguousarray(neighbour.cpu().numpy(), np.int64)
    order = _breadth_first(first, other)
    part = np.empty(n_nodes, np.int64)
    part[order] = np.arange(n_nodes) * n_parts // max(n_nodes, 1)
    limit = int(np.ceil(IMBALANCE * n_nodes / n_parts))
    for _ in range(N_PASSES):
        if _move(first, other, part, n_parts, limit) == 0:
            break
    return torch.from_numpy(part).to(start.device)


@jit(nogil=True)
def _breadth_first(start, neighbour):  # noqa: ANN001, ANN202 — numba infers them
    n_nodes = len(start) - 1
    order = np.empty(n_nodes, np.int64)
    is_seen = np.zeros(n_nodes, np.bool_)
    n_seen = n_done = 0
    for root in range(n_nodes):
        if is_seen[root]:
            continue
        is_seen[root] = True
        order[n_seen] = root
        n_seen += 1
        while n_done < n_seen:
            node = order[n_done]
            n_done += 1
            for i in range(start[node], start[node + 1]):
                if not is_seen[neighbour[i]]:
                    is_seen[neighbour[i]] = True
                    order[n_seen] = neighbour[i]
                    n_seen += 1
    return order


@jit(nogil=True)
def _move(start, neighbour, part, n_parts, limit):  # noqa: ANN001, ANN202 — numba infers them
    """One pass over all nodes; the number of those that moved."""
    size = np.zeros(n_parts, np.int64)
    for own in part:
        size[own] += 1
    count = np.zeros(n_parts, np.int64)
    n_moved = 0
    for node in range(len(part)):
        for i in range(start[node], start[node + 1]):
            count[part[neighbour[i]]] += 1
        own = part[node]
        best = own
        for i in range(start[node], start[node + 1]):
            other = part[neighbour[i]]
            if count[other] > count[best] and size[other] < limit:
                best = other
        for i in range(start[node], start[node + 1]):
            count[part[neighbour[i]]] = 0
        if best != own and size[own] > 1:
            part[node] = best
            size[own] -= 1
            size[best] += 1
            n_moved += 1
    return n_moved
