"""Tutorial 1: variables, constants and tile maps; copies, slices, host access and a stream."""

import numpy as np

import tremula as tr

device = tr.IPUModel("ipu2").create_device()
print("Using the IPU Model")
graph = tr.Graph(device)

# A variable has a type and a shape. Nothing decides for us where its elements live: we do.
v1 = graph.add_variable(tr.FLOAT, [4], "v1")
for i in range(4):
    graph.set_tile_mapping(v1[i], i)

# A constant needs a tile as well.
c1 = graph.add_constant(tr.FLOAT, [4], [1.0, 1.5, 2.0, 2.5], "c1", mapping=0)

# A program is a value that is built first and run later. PrintTensor prints on stderr.
program = tr.Sequence()
program.add(tr.Copy(c1, v1))
program.add(tr.PrintTensor("v1-debug", v1))

# The same elements on other tiles: this copy crosses the exchange.
v2 = graph.add_variable(tr.FLOAT, [4], "v2")
for i in range(4):
    graph.set_tile_mapping(v2[i], 4 + i)
program.add(tr.Copy(v1, v2))
program.add(tr.PrintTensor("v2-debug", v2))

# The host may write and read a variable that has a handle.
v3 = graph.add_variable(tr.FLOAT, [4, 4], "v3")
for i in range(4):
    graph.set_tile_mapping(v3[i], i)
graph.create_host_write("v3-write", v3)
graph.create_host_read("v3-read", v3)

# A slice is a view: it stores no data, and copying to it writes through to v3.
program.add(tr.Copy(v1.slice(0, 3), v3.slice([1, 1], [2, 4])))

# A stream moves ten numbers at a time, each copy the next ten.
in_stream = graph.add_host_to_device_fifo("v4-input-stream", tr.INT, 10)
v4 = graph.add_variable(tr.INT, [10], "v4")
for i in range(10):
    graph.set_tile_mapping(v4[i], i)
for name in ("v4-0", "v4-1"):
    program.add(tr.Copy(in_stream, v4))
    program.add(tr.PrintTensor(name, v4))

engine = tr.Engine(graph, program)
engine.connect_stream("v4-input-stream", np.arange(30, dtype=np.int32))
engine.load(device)

print("Running program")
engine.write_tensor("v3-write", np.zeros((4, 4), np.float32))
engine.run()
print("Program complete")

h3 = engine.read_tensor("v3-read")
print("h3 data:")
for row in h3:
    print(" ", *(f"{value:g}" for value in row))

expected = np.zeros((4, 4), np.float32)
expected[1, 1:] = [1.0, 1.5, 2.0]
assert np.array_equal(h3, expected)
