"""Random graphs for tests, from a seed: with and without types, small, empty and without edges."""

import torch
from hypothesis import strategies as st
from torch_geometric.data import Data, HeteroData

SEEDS = st.integers(0, 2**31)
TRIPLES = [("user", "buys", "item"), ("item", "near", "item")]


def random_graph(n_nodes, n_edges, generator, y=True):
    """A graph with attributes of all levels and several types."""

    def integers(high, shape):
        return torch.randint(max(high, 1), shape, generator=generator)

    graph = Data(
        x=torch.randn(n_nodes, 3, generator=generator),
        z=integers(9, (n_nodes,)),
        is_ring=integers(2, (n_nodes,)).bool(),
        edge_index=integers(n_nodes, (2, n_edges if n_nodes else 0)),
        fingerprint=torch.randn(1, 5, generator=generator),
        name=f"graph{int(integers(1000, (1,)))}",
    )
    graph.edge_attr = torch.randn(graph.num_edges, 2, generator=generator)
    if y:
        graph.y = torch.randn(1, generator=generator)
    return graph


def random_graphs(sizes, seed):
    generator = torch.Generator().manual_seed(seed)
    return [random_graph(n, m, generator) for n, m in sizes]


def random_hetero(sizes, seed):
    """Graphs of two types of nodes and of edges; sizes are (users, items, edges of each type)."""
    generator = torch.Generator().manual_seed(seed)
    graphs = []
    for n_users, n_items, n_buys, n_near in sizes:
        graph = HeteroData()
        graph["user"].x = torch.randn(n_users, 2, generator=generator)
        graph["item"].x = torch.randn(n_items, 3, generator=generator)
        graph["item"].price = torch.randn(n_items, generator=generator)
        graph.y = torch.randn(1, generator=generator)
        for (source, kind, target), n_edges in zip(TRIPLES, (n_buys, n_near), strict=True):
            counts = {"user": n_users, "item": n_items}
            n_edges = n_edges if counts[source] and counts[target] else 0
            ends = [
                torch.randint(max(counts[end], 1), (n_edges,), generator=generator)
                for end in (source, target)
            ]
            graph[source, kind, target].edge_index = torch.stack(ends)
            graph[source, kind, target].weight = torch.randn(n_edges, generator=generator)
        graphs.append(graph)
    return graphs


def graph_sizes(min_graphs=1, max_graphs=5, least_nodes=0):
    size = st.tuples(st.integers(least_nodes, 7), st.integers(0, 9))
    return st.lists(size, min_size=min_graphs, max_size=max_graphs)
