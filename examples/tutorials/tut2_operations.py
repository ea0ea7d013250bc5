"""Tutorial 2: operations of popops: sums of tensors that lie on different tiles, and a view."""

import numpy as np

import tremula as tr
from tremula.poplibs import popops

device = tr.IPUModel("ipu2").create_device()
print("Using the IPU Model")
graph = tr.Graph(device)

v1 = graph.add_variable(tr.FLOAT, [2, 2], "v1")
v2 = graph.add_variable(tr.FLOAT, [2, 2], "v2")
for i in range(2):
    for j in range(2):
        graph.set_tile_mapping(v1[i, j], i * 2 + j)
        graph.set_tile_mapping(v2[i, j], 1)
c1 = graph.add_constant(tr.FLOAT, [2, 2], [4.0, 3.0, 2.0, 1.0], "c1", mapping=0)
c2 = graph.add_constant(tr.FLOAT, [2, 2], [1.0, 1.5, 2.0, 2.5], "c2", mapping=0)

program = tr.Sequence()
program.add(tr.Copy(c1, v1))
program.add(tr.Copy(c2, v2))

# An operation adds vertices to the graph and steps to the program; its result is a new tensor,
# mapped like the operand that is spread best. Where operands lie decides cost, never the result.
v3 = popops.add(graph, v1, v2, program, "Add")
program.add(tr.PrintTensor("v3", v3))

v4 = popops.add(graph, v3, v1, program, "Add")
program.add(tr.PrintTensor("v4", v4))

# A transposed operand is a view: nothing is moved until the addition reads it.
v5 = popops.add(graph, v2, v1.transpose(), program, "Add")
program.add(tr.PrintTensor("v5", v5))
for name, tensor in (("v3", v3), ("v4", v4), ("v5", v5)):
    graph.create_host_read(name, tensor)

engine = tr.Engine(graph, program)
engine.load(device)
print("Running program")
engine.run()
print("Program complete")

one, two = np.array([[4, 3], [2, 1]]), np.array([[1, 1.5], [2, 2.5]])
assert np.array_equal(engine.read_tensor("v3"), one + two)
assert np.array_equal(engine.read_tensor("v4"), one + two + one)
assert np.array_equal(engine.read_tensor("v5"), two + one.T)
