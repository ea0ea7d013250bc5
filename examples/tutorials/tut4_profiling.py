"""Tutorial 4: two matrix products and their profile; and a program too large for its chip."""

import numpy as np

import tremula as tr
from tremula.poplibs import poplin

SHAPES = (900, 600), (600, 300), (300, 200)
TOO_LARGE = (9000, 7500), (7500, 9000)


def chained_products(graph, shapes):
    """((m1 · m2) · m3 …): the program, the inputs and the result."""
    program, inputs = tr.Sequence(), []
    result = graph.add_variable(tr.FLOAT, shapes[0], "m1", mapping="linear")
    inputs.append(result)
    for number, shape in enumerate(shapes[1:], start=2):
        name = f"m{number}"
        right = poplin.create_mat_mul_input_rhs(graph, tr.FLOAT, result.shape, shape, name)
        inputs.append(right)
        result = poplin.mat_mul(graph, result, right, program, f"product{number - 1}")
    return program, inputs, result


device = tr.IPUModel("ipu2").create_device()
print("Using the IPU Model")
graph = tr.Graph(device)
program, inputs, result = chained_products(graph, SHAPES)
for number, tensor in enumerate(inputs, start=1):
    graph.create_host_write(f"m{number}", tensor)
graph.create_host_read("result", result)

engine = tr.Engine(graph, program, {"debug.retainDebugInformation": "true"})
engine.load(device)
random = np.random.default_rng(0)
matrices = [random.random(shape, np.float32) for shape in SHAPES]
for number, matrix in enumerate(matrices, start=1):
    engine.write_tensor(f"m{number}", matrix)
print("Running program")
engine.run()
print("Program complete")
expected = matrices[0] @ matrices[1] @ matrices[2]
assert np.allclose(engine.read_tensor("result"), expected, rtol=1e-4)

# The profile: memory by category and tile, cycles by vertex type, and with the option each step.
engine.print_profile_summary(show_execution_steps=True)
report = engine.report()
print(f"{report.n_compute_sets} compute sets on {report.target.n_tiles} tiles")
print(f"fullest tile: {report.tiles.n_bytes.max()} bytes")

# What the planner thought, and why.
print(poplin.plan_report(poplin.mat_mul_plan(graph, tr.FLOAT, *SHAPES[:2])))

# 9000 x 7500 times 7500 x 9000: operands and result alone are 864 MB of the chip's 919 MB.
# The compiler says which tiles are out of memory, and of what.
large = tr.Graph(device)
program, _, _ = chained_products(large, TOO_LARGE)
try:
    tr.compile_graph(large, program)
except tr.errors.GraphMemoryAllocationError as error:
    print("Out of memory, as expected:")
    print(error)
    # The error still has the full report: where the memory went.
    memory = error.report.bytes_by_category()
    most = sorted(memory, key=lambda name: -memory[name].max())[:3]
    print("largest categories:", ", ".join(most))
