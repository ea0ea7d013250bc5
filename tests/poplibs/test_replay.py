"""Replayed operations: the same graph as if each had been built by itself."""

from collections.abc import Callable

import numpy as np
import pytest

import tremula as tr
from tremula.compiler.executable import Executable
from tremula.poplibs import poplin, popnn, popops
from tremula.poplibs.popops.expr import _1, _2
from tremula.poplibs.poputil import replay
from tremula.poplibs.poputil.layout_key import NotReplayable

N_TILES = 8


def small_graph() -> tr.Graph:
    return tr.Graph(tr.IPUModel("bow", tiles_per_ipu=N_TILES).create_device())


def net(graph: tr.Graph, sequence: tr.Sequence) -> tuple[list[tr.Tensor], tr.Tensor]:
    """Layers whose layouts settle after the first, so that later ones are replayed."""
    x = graph.add_variable(tr.FLOAT, [12, 16], "x", mapping="linear")
    inputs, y = [x], x
    for layer in range(4):
        shapes = (12, 16), (16, 16)
        w = poplin.create_mat_mul_input_rhs(graph, tr.FLOAT, *shapes, f"layer{layer}/w")
        inputs.append(w)
        y = poplin.mat_mul(graph, y, w, sequence, f"layer{layer}/product")
        popops.add_in_place(graph, y, x, sequence, f"layer{layer}/add")
        y = popnn.relu(graph, y, sequence, f"layer{layer}/relu")
        total = popops.reduce(graph, y, [1], "ADD", sequence)
        y = popops.map(graph, _1 / (_2 + 1.0), [y, total.expand([1])], sequence)
        y = popnn.softmax(graph, y, sequence, f"layer{layer}/softmax")
    return inputs, y


def compiled(build: Callable) -> tuple[tr.Engine, list[str]]:
    graph, sequence = small_graph(), tr.Sequence()
    inputs, result = build(graph, sequence)
    for number, tensor in enumerate(inputs):
        graph.create_host_write(f"in{number}", tensor)
    graph.create_host_read("result", result)
    return tr.Engine(graph, sequence).load(), [f"in{i}" for i in range(len(inputs))]


def assert_same(a: Executable, b: Executable) -> None:
    """Equal but for nothing: addresses, names, vertices, programs."""
    assert a.variables.names == b.variables.names
    assert np.array_equal(a.variables.base_bytes, b.variables.base_bytes)
    assert np.array_equal(a.code, b.code)
    assert [(s.kind, s.name, s.path) for s in a.steps] == [
        (s.kind, s.name, s.path) for s in b.steps
    ]
    for one, other in zip(a.compute_sets, b.compute_sets, strict=True):
        assert (one.name, one.source) == (other.name, other.source)
        for left, right in zip(one.tables, other.tables, strict=True):
            assert left.codelet == right.codelet
            assert np.array_equal(left.tile, right.tile)
            for x, y in zip(left.columns, right.columns, strict=True):
                assert np.array_equal(x, y)
        assert_same_copies(one.gathers + one.scatters, other.gathers + other.scatters)
    assert_same_copies(a.copies, b.copies)


def assert_same_copies(left: tuple, right: tuple) -> None:
    for one, other in zip(left, right, strict=True):
        assert (one.n_bytes, one.overlaps) == (other.n_bytes, other.overlaps)
        columns = (*one.source, *one.destination), (*other.source, *other.destination)
        for x, y in zip(*columns, strict=True):
            assert np.array_equal(x, y)


def plain(monkeypatch: pytest.MonkeyPatch) -> None:
    """Build everything by itself from now on."""

    def refuse(*_: object) -> None:
        raise NotReplayable

    monkeypatch.setattr(replay, "_call_of", refuse)


def test_replayed_net_is_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """An executable of replayed layers equals one whose layers were built one by one."""
    replayed, names = compiled(net)
    plain(monkeypatch)
    built, _ = compiled(net)
    assert_same(replayed.executable, built.executable)
    for engine in (replayed, built):
        for name in names:
            shape = [12, 16] if name == "in0" else [16, 16]
            engine.write_tensor(name, np.random.default_rng(len(name)).random(shape, np.float32))
        engine.run()
    assert np.array_equal(replayed.read_tensor("result"), built.read_tensor("result"))
