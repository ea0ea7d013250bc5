"""Compute sets that are alike share their analysis, and only those."""

import numpy as np

import tremula as tr
from tremula import FLOAT, Input, Output, Vector, Vertex, float32
from tremula.compiler.lower.dedup import first_alike
from tremula.compiler.lower.lower import lower
from tremula.compiler.program_ir import LoweredPrograms


class Scale(Vertex):
    x: Input[Vector[float32]]
    y: Output[Vector[float32]]
    factor: float32

    def compute(self):
        for i in range(len(self.y)):
            self.y[i] = self.x[i] * self.factor


def layers(n: int, **last: float) -> LoweredPrograms:
    """n layers over fresh variables; `last` changes one thing in the last of them."""
    graph = tr.Graph(tr.IPUModel("bow", tiles_per_ipu=4).create_device())
    x = graph.add_variable(FLOAT, [4, 8], "x", mapping="linear")
    sequence = tr.Sequence()
    for layer in range(n):
        changes = last if layer == n - 1 else {}
        y = graph.add_variable(FLOAT, [4, 8], f"y{layer}", mapping=changes.get("mapping", 1))
        tiles = (np.arange(4) + int(changes.get("shift", 0))) % 4
        factor = changes.get("factor", 2.0)
        compute_set = graph.add_compute_set(f"layer{layer}")
        graph.add_vertices(compute_set, Scale, {"x": x, "y": y, "factor": factor}, tiles=tiles)
        sequence.add(tr.Execute(compute_set))
        x = y
    return lower(graph, sequence)


def test_repeated_layers_are_alike() -> None:
    """Layers 1, 2, … differ only in addresses; layer 0 reads a variable laid out otherwise."""
    assert first_alike(layers(4).graph).tolist() == [0, 1, 1, 1]


def test_any_difference_that_matters_is_seen() -> None:
    """State, tiles of vertices and tile maps of data each make a set of its own."""
    for change in ({"factor": 3.0}, {"shift": 1}, {"mapping": 2}):
        assert first_alike(layers(4, **change).graph).tolist() == [0, 1, 1, 3], change


def test_sharing_changes_no_figure() -> None:
    """Costs and memory are the same with and without looking for likeness."""
    from dataclasses import replace

    from tremula.compiler.passes.cost import cost_steps
    from tremula.compiler.passes.exchange import exchanges_of
    from tremula.compiler.passes.liveness import analyse_liveness
    from tremula.compiler.passes.memory import memory_of

    shared = layers(5)
    alone = replace(shared, graph=replace(shared.graph, first_alike=None))
    figures = []
    for programs in (shared, alone):
        exchanges = exchanges_of(programs)
        memory = memory_of(programs, analyse_liveness(programs), exchanges)
        figures.append((cost_steps(programs, exchanges).total, memory.always_live))
    for with_sharing, without in zip(*figures, strict=True):
        assert np.array_equal(with_sharing, without)
