"""Remote buffers: two IPUs take turns with two buffers of off-chip memory, row by row.

    python remote_buffers.py [INTS_PER_ROW]

Row i of buffer 0 starts as i, row i of buffer 1 as 100 + i. In the first pass IPU 0 works on buffer
0 and IPU 1 on buffer 1, in the second they swap. Whoever has a row adds one and puts it back.
"""

import sys

import numpy as np

import tremula as tr

N_ROWS = 32
n_ints = int(sys.argv[1]) if len(sys.argv) > 1 else 20_000


class Increment(tr.Vertex):
    data: tr.InOut[tr.Vector[tr.int32]]

    def compute(self):
        for i in range(len(self.data)):
            self.data[i] += 1


def increment_all(graph: tr.Graph, tensor: tr.Tensor) -> tr.Program:
    """Add one to a tensor, each tile to the part it holds."""
    compute_set = graph.add_compute_set("increment")
    mapping = graph.get_tile_mapping(tensor)
    graph.add_vertices(
        compute_set,
        Increment,
        {"data": tr.Slices(tensor, mapping.begin, mapping.end)},
        tiles=mapping.tile,
    )
    return tr.Execute(compute_set)


device = tr.IPUModel("ipu2", n_ipus=2).create_device()
graph = tr.Graph(device)
buffers = [graph.add_remote_buffer(f"buffer{b}", tr.INT, n_ints, N_ROWS) for b in range(2)]

# A virtual graph is a view of some tiles with separate numbers: here one for each IPU.
tiles_per_ipu = graph.target.tiles_per_ipu
ipus = [graph.create_virtual_graph(i * tiles_per_ipu, (i + 1) * tiles_per_ipu) for i in range(2)]
blocks = [ipus[i].add_variable(tr.INT, [n_ints], f"block{i}", mapping="linear") for i in range(2)]
work = [increment_all(ipus[i], blocks[i]) for i in range(2)]

# The row number is data on the device, so that one copy program serves all rows.
row = graph.add_variable(tr.INT, [1], "row", mapping=0)
zero = graph.add_constant(tr.INT, [1], 0)
next_row = increment_all(graph, row)


def one_pass(is_swapped: bool) -> tr.Program:
    """Every row of both buffers once; IPU i uses buffer i, or the other one."""
    body = tr.Sequence()
    for i in range(2):
        body.add(tr.Copy(buffers[i ^ is_swapped], blocks[i], row))
    body.add(*work)  # different IPUs: the model lets these steps overlap
    for i in range(2):
        body.add(tr.Copy(blocks[i], buffers[i ^ is_swapped], row))
    body.add(next_row)
    return tr.Sequence(tr.Copy(zero, row), tr.Repeat(N_ROWS, body))


engine = tr.Engine(graph, {"straight": one_pass(False), "swapped": one_pass(True)})
engine.load(device)
for r in range(N_ROWS):
    engine.copy_to_remote_buffer(np.full(n_ints, r, np.int32), "buffer0", r)
    engine.copy_to_remote_buffer(np.full(n_ints, 100 + r, np.int32), "buffer1", r)

for n_passes, name in enumerate(("straight", "swapped"), 1):
    engine.run(name)
    for r in range(N_ROWS):
        assert np.all(engine.copy_from_remote_buffer("buffer0", r) == n_passes + r)
        assert np.all(engine.copy_from_remote_buffer("buffer1", r) == 100 + n_passes + r)
    print(f"{name}: row i holds i + {n_passes} and i + {100 + n_passes}")
print("Program complete")
