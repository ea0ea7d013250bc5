"""Even packs: where nodes and edges both bind, every pack gets large and small graphs alike.

Best fit puts the largest graphs into the first packs. Those have more edges for each node, so
the first packs lack edges and the last ones nodes. Dealt in turn, the largest graph that is left to
the pack that has least, packs are all alike, and as full as the totals allow.
"""

from collections.abc import Sequence

import numpy as np

_N_STEPS = 200  # numbers of packs that are tried differ by one part of this many


def even_packs(
    sizes: Sequence[np.ndarray], limits: Sequence[int], n_most_graphs: int, n_fewer_than: int
) -> np.ndarray | None:
    """The pack of each graph, in fewer packs than a number; None if that many are needed.

    `sizes`: of each graph, in nodes and in edges; `limits`: of a pack, in the same.
    """
    n_packs = least_packs(sizes, limits, n_most_graphs)
    while n_packs < n_fewer_than:
        packs = _dealt(sizes, limits, n_packs)
        if packs is not None:
            return packs
        n_packs += max(1, n_packs // _N_STEPS)
    return None


def least_packs(sizes: Sequence[np.ndarray], limits: Sequence[int], n_most_graphs: int) -> int:
    """How many packs the totals need."""
    needs = [-(-len(sizes[0]) // n_most_graphs)]
    needs += [
        -(-int(size.sum()) // max(limit, 1)) for size, limit in zip(sizes, limits, strict=True)
    ]
    return max(1, *needs)


def _dealt(sizes: Sequence[np.ndarray], limits: Sequence[int], n_packs: int) -> np.ndarray | None:
    """Rounds of one graph for each pack; None if a pack is too full."""
    shares = [size / max(limit, 1) for size, limit in zip(sizes, limits, strict=True)]
    share = np.sum(shares, axis=0)
    order = np.argsort(-share, kind="stable")
    load = np.zeros(n_packs)
    packs = np.empty(len(order), np.int64)
    for begin in range(0, len(order), n_packs):
        graphs = order[begin : begin + n_packs]
        packs[graphs] = np.argsort(load, kind="stable")[: len(graphs)]
        load[packs[graphs]] += share[graphs]
    totals = (np.bincount(packs, size, minlength=n_packs) for size in sizes)
    fits = all((total <= limit).all() for total, limit in zip(totals, limits, strict=True))
    return packs if fits else None
