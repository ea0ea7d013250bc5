"""Unstructured neighbours: nodes with any connections, by tables of indices and A/B buffers.

Each node becomes the mean of itself and its neighbours, again and again. Nodes are dealt to tiles;
a tile's vertex reads the nodes it owns and those they are connected with, wherever these live.
Which ones is known beforehand, so they are a view; a table in the vertex says who is whose
neighbour.
"""

import numpy as np

import tremula as tr

N_TILES = 16
N_NODES = 400
N_STEPS = 6


class MeanOfNeighbours(tr.Vertex):
    """`values` are own nodes first, then foreign ones; node i's neighbours are at start[i] …"""

    values: tr.Input[tr.Vector[tr.float32]]
    out: tr.Output[tr.Vector[tr.float32]]
    start: tr.Vector[tr.int32]  # state: the connectivity, as local indices
    neighbour: tr.Vector[tr.int32]

    def compute(self):
        for i in range(len(self.out)):
            total = self.values[i]
            for k in range(self.start[i], self.start[i + 1]):
                total += self.values[self.neighbour[k]]
            self.out[i] = total / (1 + self.start[i + 1] - self.start[i])


def random_neighbours() -> list[np.ndarray]:
    """Node i is connected with i + 1, and with some others anywhere."""
    random = np.random.default_rng(18)
    connected = random.random((N_NODES, N_NODES)) < 3 / N_NODES
    connected[np.arange(N_NODES), (np.arange(N_NODES) + 1) % N_NODES] = True
    connected |= connected.T
    np.fill_diagonal(connected, False)
    return [np.flatnonzero(row) for row in connected]


def add_step(
    graph: tr.Graph, source: tr.Tensor, destination: tr.Tensor, neighbours: list[np.ndarray]
) -> tr.Program:
    compute_set = graph.add_compute_set("mean of neighbours")
    for tile, nodes in enumerate(np.array_split(np.arange(N_NODES), N_TILES)):
        begin, end = int(nodes[0]), int(nodes[-1]) + 1
        needed = np.concatenate([neighbours[i] for i in nodes])
        foreign = np.setdiff1d(needed, nodes)
        views = [source[begin:end], *(source[i : i + 1] for i in foreign.tolist())]
        local = {node: k for k, node in enumerate([*nodes.tolist(), *foreign.tolist()])}
        fields = {
            "values": tr.concat(views),
            "out": destination[begin:end],
            "start": np.cumsum([0, *(len(neighbours[i]) for i in nodes)]),
            "neighbour": [local[node] for node in needed.tolist()],
        }
        graph.add_vertex(compute_set, MeanOfNeighbours, fields, tile=tile)
    return tr.Execute(compute_set)


def add_nodes(graph: tr.Graph, name: str) -> tr.Tensor:
    tensor = graph.add_variable(tr.FLOAT, [N_NODES], name)
    for tile, nodes in enumerate(np.array_split(np.arange(N_NODES), N_TILES)):
        graph.set_tile_mapping(tensor[int(nodes[0]) : int(nodes[-1]) + 1], tile)
    return tensor


neighbours = random_neighbours()
print(f"{N_NODES} nodes, {sum(map(len, neighbours)) // 2} connections, {N_TILES} tiles")
device = tr.IPUModel("bow", tiles_per_ipu=N_TILES).create_device()
graph = tr.Graph(device)

# With one buffer, a vertex would read what another one writes. Two take turns: A → B, B → A.
a, b = add_nodes(graph, "a"), add_nodes(graph, "b")
graph.create_host_write("a", a)
graph.create_host_read("a", a)
both = tr.Sequence(add_step(graph, a, b, neighbours), add_step(graph, b, a, neighbours))
engine = tr.Engine(graph, tr.Repeat(N_STEPS // 2, both))

start = np.random.default_rng(19).random(N_NODES, np.float32)
engine.load(device)
engine.write_tensor("a", start)
engine.run()
result = engine.read_tensor("a")

expected = start.astype(np.float64)
for _ in range(N_STEPS):
    expected = np.array([expected[[i, *neighbours[i]]].mean() for i in range(N_NODES)])
print(f"values spread over {np.ptp(start):.3f}, after {N_STEPS} steps over {np.ptp(result):.3f}")
assert np.allclose(result, expected, rtol=1e-5)
print("Program complete")
