"""Compute sets that are alike share their analysis, and only those."""

from dataclasses import replace

import numpy as np
import pytest

import tremula as tr
from tremula import FLOAT, Input, Output, Vector, Vertex, float32
from tremula.compiler.lower.dedup import first_alike
from tremula.compiler.lower.lower import lower
from tremula.compiler.passes.cost import cost_steps
from tremula.compiler.passes.exchange import exchanges_of
from tremula.compiler.passes.liveness import analyse_liveness
from tremula.compiler.passes.memory import memory_of
from tremula.compiler.program_ir import LoweredPrograms
from tremula.poplibs import poputil


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
    """A difference in state, tiles of vertices or tile maps of data makes a separate set."""
    for change in ({"factor": 3.0}, {"shift": 1}, {"mapping": 2}):
        assert first_alike(layers(4, **change).graph).tolist() == [0, 1, 1, 3], change


def chips(n: int) -> LoweredPrograms:
    """Layers that do the same on one chip after another, copies between them, and one over all."""
    graph = tr.Graph(tr.IPUModel("bow", n, tiles_per_ipu=4).create_device())
    sequence = tr.Sequence()
    x = graph.add_variable(FLOAT, [4, 8], "x")
    graph.create_virtual_graph(0, 4).map_linearly(x)
    for number in range(n):
        chip = graph.create_virtual_graph(4 * number, 4 * number + 4)
        x = poputil.copy_to_ipu(graph, x, sequence, number)
        turned = chip.add_variable(FLOAT, [8, 4], "turned", mapping="linear").transpose()
        y = chip.add_variable(FLOAT, [4, 8], "y", mapping=2)
        sequence.add(tr.Copy(x, turned))
        compute_set = chip.add_compute_set(f"layer{number}")
        chip.add_vertices(compute_set, Scale, {"x": turned, "y": y, "factor": 2.0}, tiles=[1] * 4)
        sequence.add(tr.Execute(compute_set))
        x = y
    whole = graph.add_compute_set("whole")
    graph.add_vertices(whole, Scale, {"x": x, "y": turned, "factor": 2.0}, tiles=np.arange(4))
    sequence.add(tr.Execute(whole))
    return lower(graph, sequence)


def test_layers_on_other_chips_are_alike() -> None:
    """They differ in addresses and in the numbers of their tiles; what crosses chips is apart."""
    programs = chips(3)
    result = programs.graph.set_on_chips()
    assert result.first.tolist() == [0, 0, 0, 3]
    assert result.n_tiles.tolist() == [0, 4, 8, 0]
    turning = [c for c in programs.alike_copies if c.first_on_chips != c.first]
    assert [c.n_tiles for c in turning] == [4], "of the second and the third; the first lay evenly"


@pytest.mark.parametrize("make", [lambda: layers(5), lambda: chips(3)], ids=["layers", "chips"])
def test_sharing_changes_no_figure(make) -> None:
    """Costs, exchanges and memory are the same with and without looking for likeness."""
    shared = make()
    alone = replace(
        shared,
        graph=replace(shared.graph, first_alike=None, on_chips=None),
        alike_copies=tuple(
            replace(c, first=i, first_on_chips=i, n_tiles=0)
            for i, c in enumerate(shared.alike_copies)
        ),
    )
    figures = []
    for programs in (shared, alone):
        exchanges = exchanges_of(programs)
        costs = cost_steps(programs, exchanges)
        memory = memory_of(programs, analyse_liveness(programs), exchanges, costs.takes_part)
        steps = range(len(programs.steps))
        tiles = [costs.tile_compute(i) for i in steps] + [costs.tile_exchange(i) for i in steps]
        figures.append((costs.total, memory.always_live, memory.temporary, *tiles))
    for with_sharing, without in zip(*figures, strict=True):
        assert np.array_equal(with_sharing, without)
