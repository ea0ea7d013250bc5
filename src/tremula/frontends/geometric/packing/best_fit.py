"""Best fit, longest first: sizes of graphs into packs, in native code."""

import numpy as np

from tremula.codelets.native.stored_code import jit

# How many packs with the same room are tried: those that lack edges or graphs are at the end.
N_TRIED = 16


@jit(nogil=True)
def best_fit(order, nodes, edges, n_of_class, n_graphs, n_nodes, n_edges, slot_pack, slot_class):
    """Classes in order, each graph into the pack with the least room that is enough.

    Open packs with r nodes of room are a chain: head[r] is one, behind[p] the next.
    """
    head = np.full(n_nodes + 1, -1, np.int64)
    behind = np.empty(len(slot_pack), np.int64)
    edges_left = np.empty(len(slot_pack), np.int64)
    graphs_left = np.empty(len(slot_pack), np.int64)
    n_packs = slot = 0
    for kind in order:
        size, n_own_edges = nodes[kind], edges[kind]
        for _ in range(n_of_class[kind]):
            pack, room = -1, 0
            for room in range(size, n_nodes + 1):
                previous, candidate = -1, head[room]
                for _try in range(N_TRIED):
                    if candidate < 0:
                        break
                    if edges_left[candidate] >= n_own_edges:
                        pack = candidate
                        break
                    previous, candidate = candidate, behind[candidate]
                if pack >= 0:
                    if previous < 0:
                        head[room] = behind[pack]
                    else:
                        behind[previous] = behind[pack]
                    break
            if pack < 0:
                pack, room = n_packs, n_nodes
                edges_left[pack], graphs_left[pack] = n_edges, n_graphs
                n_packs += 1
            edges_left[pack] -= n_own_edges
            graphs_left[pack] -= 1
            slot_pack[slot], slot_class[slot] = pack, kind
            slot += 1
            if graphs_left[pack] > 0:
                behind[pack] = head[room - size]
                head[room - size] = pack
    return n_packs
