"""Memory in kernels: loops over vectors of the arena are vectorised where they may be."""

import re

import numpy as np

import tremula as tr
from tremula.base.types import float32
from tremula.codelets import InOut, Input, Vector, Vertex, codelet_of
from tremula.codelets.kernel.build import _in_memory


class ShiftBeside(Vertex):
    """Changes x in place from its right neighbours, and reads another vector."""

    x: InOut[Vector[float32]]
    least: Input[Vector[float32]]

    def compute(self):
        x, least = self.x, self.least
        for i in range(len(x) - 1):
            x[i] = max(x[i + 1] * float32(0.5) + x[i], least[i])


def test_vectors_are_objects_of_their_own():
    """A loop that reads x[i + 1] and writes x[i] beside another vector computes several at once."""
    text = codelet_of(ShiftBeside).kernel_text()
    code = _in_memory("vectorised", text).kernel.inspect_llvm()
    assert re.search(r"fmul .*<\d+ x float>", code)


def test_the_neighbour_is_read_before_it_is_written():
    """Several at once give what one after another gives, also if both fields are one vector."""
    random = np.random.default_rng(0)
    for is_same in (False, True):
        graph = tr.Graph(tr.IPUModel("bow", tiles_per_ipu=1).create_device())
        x = graph.add_variable(tr.FLOAT, [37], "x", mapping=0)
        least = graph.add_variable(tr.FLOAT, [37], "least", mapping=0)
        step = graph.add_compute_set("step")
        fields = {"x": x, "least": x if is_same else least}
        graph.add_vertex(step, ShiftBeside, fields, tile=0)
        for name, tensor in (("x", x), ("least", least)):
            graph.create_host_write(name, tensor)
        graph.create_host_read("x", x)
        engine = tr.Engine(graph, tr.Execute(step)).load()
        start, other = random.standard_normal((2, 37)).astype(np.float32)
        engine.write_tensor("x", start)
        engine.write_tensor("least", other)
        engine.run()
        expected = start.copy()
        floor = start if is_same else other
        expected[:-1] = np.maximum(start[1:] * np.float32(0.5) + start[:-1], floor[:-1])
        assert np.array_equal(engine.read_tensor("x"), expected)
