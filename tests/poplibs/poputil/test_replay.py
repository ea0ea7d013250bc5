"""Replayed operations: the same graph as if each had been built by itself."""

from collections.abc import Callable

import numpy as np
import pytest

import tremula as tr
from tremula.compiler.executable.executable import Executable
from tremula.poplibs import poplin, popnn, popops
from tremula.poplibs.popops.elementwise.expr import _1, _2
from tremula.poplibs.poputil import replay
from tremula.poplibs.poputil.layout_key import NotReplayable
from tremula.poplibs.registry import PoplibsError

N_TILES = 8


def small_graph() -> tr.Graph:
    return tr.Graph(tr.IPUModel("bow", tiles_per_ipu=N_TILES).create_device())


Built = tuple[list[tr.Tensor], tr.Tensor]


def net(graph: tr.Graph, sequence: tr.Sequence) -> Built:
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


def norms_on_two_halves(graph: tr.Graph, sequence: tr.Sequence) -> Built:
    """Layer norms on virtual graphs of other tiles, over copies."""
    inputs, y = [], None
    for layer in range(6):
        first = layer % 2 * N_TILES // 2
        half = graph.create_virtual_graph(first, first + N_TILES // 2)
        x = half.add_variable(tr.FLOAT, [5, 12], f"x{layer}", mapping="linear")
        gamma, beta = (half.add_variable(tr.FLOAT, [12], mapping="linear") for _ in range(2))
        inputs += [gamma, beta]
        if y is None:
            inputs.append(x)
        else:
            sequence.add(tr.Copy(y, x))
        mean, inverse = popnn.layer_norm_statistics(half, x, sequence, epsilon=1e-5)
        y, _ = popnn.layer_normalise(half, x, gamma, beta, mean, inverse, sequence)
    assert y is not None
    return inputs, y


def convolutions(graph: tr.Graph, sequence: tr.Sequence) -> Built:
    params = poplin.ConvParams(
        type=tr.FLOAT, n_batch=1, field_shape=(5, 5), kernel_shape=(3, 3), n_in_chans=4,
        n_out_chans=4, padding_lower=(1, 1), padding_upper=(1, 1),
    )  # fmt: skip
    x = poplin.create_input(graph, params, "x")
    inputs, y = [x], x
    for layer in range(4):
        weights = poplin.create_weights(graph, params, f"w{layer}")
        inputs.append(weights)
        y = poplin.convolution(graph, y, weights, params, sequence, f"conv{layer}")
        popnn.relu_in_place(graph, y, sequence)
    return inputs, y


def unlike_operands(graph: tr.Graph, sequence: tr.Sequence) -> Built:
    """Calls of one operation that must not be taken for each other."""
    a, b = (graph.add_variable(tr.FLOAT, [6, 8], name, mapping="linear") for name in "ab")
    on_one_tile = graph.add_variable(tr.FLOAT, [6, 8], "c", mapping=3)
    constant = graph.add_constant(tr.FLOAT, [6, 8], np.arange(48.0), "d", mapping="linear")
    other = graph.add_constant(tr.FLOAT, [6, 8], np.arange(48.0, 96.0), "e", mapping="linear")
    pairs = [(a, a), (a, b), (b, a), (b, b), (a, on_one_tile), (a, constant), (a, other)]
    pairs += [(a, b.reshape([8, 6]).transpose()), (a, b[0:1]), (a, b[1:2]), (a, b[:, 2:3])]
    parts = [popops.sub(graph, x, y, sequence) for x, y in pairs]
    graph.set_tile_mapping(b, 5)
    parts += [popops.sub(graph, x, y, sequence) for x, y in pairs]
    joined = tr.concat(parts)
    parts += [popops.mul(graph, joined, joined, sequence, f"mul{i}") for i in range(2)]
    return [a, b, on_one_tile], tr.concat(parts)


PROGRAMS = [net, norms_on_two_halves, convolutions, unlike_operands]


def compiled(build: Callable[..., Built]) -> tuple[tr.Graph, tr.Engine, list[tr.Tensor]]:
    graph, sequence = small_graph(), tr.Sequence()
    inputs, result = build(graph, sequence)
    for number, tensor in enumerate(inputs):
        graph.create_host_write(f"in{number}", tensor)
    graph.create_host_read("result", result)
    return graph, tr.Engine(graph, sequence).load(), inputs


def assert_same(a: Executable, b: Executable) -> None:
    """Equal in everything: addresses, names, vertices, programs."""
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


def refuse_replays(monkeypatch: pytest.MonkeyPatch) -> None:
    """Build everything by itself from now on."""

    def refuse(*_: object) -> None:
        raise NotReplayable

    monkeypatch.setattr(replay, "_call_of", refuse)


def n_replayed_sets(graph: tr.Graph) -> int:
    """Compute sets that share the vertices of an earlier one."""
    templates = [cs.instance.template for cs in graph.state.compute_sets if cs.instance is not None]
    return len(templates) - len(set(templates))


def run(engine: tr.Engine, inputs: list[tr.Tensor]) -> np.ndarray:
    random = np.random.default_rng(0)
    for number, tensor in enumerate(inputs):
        engine.write_tensor(f"in{number}", random.random(tensor.shape, np.float32))
    engine.run()
    return engine.read_tensor("result")


@pytest.mark.slow
@pytest.mark.parametrize("build", PROGRAMS, ids=lambda build: build.__name__)
def test_replayed_programs_are_the_same(
    monkeypatch: pytest.MonkeyPatch, build: Callable[..., Built]
) -> None:
    """An executable of replayed operations equals one whose operations were built one by one."""
    graph, engine, inputs = compiled(build)
    assert n_replayed_sets(graph) > 0
    refuse_replays(monkeypatch)
    graph, plain, _ = compiled(build)
    assert n_replayed_sets(graph) == 0
    assert_same(engine.executable, plain.executable)
    assert engine.executable.analysis.costs.total.tolist() == (
        plain.executable.analysis.costs.total.tolist()
    )
    memory = [e.executable.analysis.memory for e in (engine, plain)]
    assert np.array_equal(memory[0].including_gaps, memory[1].including_gaps)
    assert np.array_equal(memory[0].always_live, memory[1].always_live)
    assert np.array_equal(run(engine, inputs), run(plain, inputs))


def test_replayed_sets_can_grow() -> None:
    """Vertices added to a compute set after its operation was recorded run with the others."""
    graph, sequence = small_graph(), tr.Sequence()
    x = graph.add_variable(tr.FLOAT, [6], "x", mapping="linear")
    for _ in range(2):
        popops.add_in_place(graph, x, x, sequence)
    first, second = graph.state.compute_sets
    assert (first.instance is not None, second.n_vertices) == (True, first.n_vertices)
    for grown in (first, second):
        n_vertices = grown.n_vertices
        y = graph.add_variable(tr.FLOAT, [4], mapping="linear")
        ((codelet, table),) = [(t.codelet, t) for t in grown.distinct_tables()]
        graph.add_vertices(
            grown,
            codelet.spec.name,
            {name: y.reshape([1, 4]) for name in table.edges},
            tiles=[7],
        )
        assert grown.n_vertices == n_vertices + 1
    graph.create_host_write("x", x)
    graph.create_host_read("x", x)
    engine = tr.Engine(graph, sequence).load()
    engine.write_tensor("x", np.arange(6, dtype=np.float32))
    engine.run()
    assert engine.read_tensor("x").tolist() == [0, 4, 8, 12, 16, 20]


@replay.replayed
def twice(graph: tr.Graph, x: tr.Tensor, sequence: tr.Sequence, name: str = "") -> list[tr.Tensor]:
    """An operation whose programs are nested, and whose result is a list."""
    inner = tr.Sequence()
    popops.add_in_place(graph, x, x, inner, name)
    graph.add_compute_set()
    sequence.add(inner)
    return [x]


def test_tapes_are_copies() -> None:
    """What a caller does to programs and lists he got is not replayed."""
    graph, sequence = small_graph(), tr.Sequence()
    x = graph.add_variable(tr.FLOAT, [6], "x", mapping="linear")
    first = twice(graph, x, sequence, "one")
    first.append(x)
    inner = sequence.steps[0]
    assert isinstance(inner, tr.Sequence)
    inner.add(tr.Sync())
    second = twice(graph, x, sequence, "other")
    repeated = sequence.steps[1]
    assert isinstance(repeated, tr.Sequence)
    assert (len(second), len(repeated.steps)) == (1, 1)
    assert [cs.name for cs in graph.state.compute_sets] == ["one", "cs1", "other", "cs3"]


def test_wrong_calls_say_so() -> None:
    """A wrong call of a replayed operation raises the operation's own error, each time."""
    graph, sequence = small_graph(), tr.Sequence()
    x = graph.add_variable(tr.FLOAT, [6], "x", mapping="linear")
    for _ in range(2):
        with pytest.raises(PoplibsError, match="same type"):
            popops.map(graph, _1 + _2, [x, x.reinterpret(tr.INT)], sequence)
    with pytest.raises(TypeError, match="missing"):
        popops.map(graph)  # pyright: ignore[reportCallIssue]
    assert sequence.is_empty


def test_calls_with_options_are_replayed() -> None:
    """Options of an operation belong to its key: equal ones are replayed, others are not."""
    graph, sequence = small_graph(), tr.Sequence()
    params = poplin.ConvParams(
        type=tr.HALF, n_batch=1, field_shape=(6,), kernel_shape=(1,), n_in_chans=16, n_out_chans=16,
    )  # fmt: skip
    acts = [poplin.create_input(graph, params, f"x{n}") for n in range(3)]
    weights = [poplin.create_weights(graph, params, f"w{n}") for n in range(3)]
    for x, w, partials in zip(acts, weights, (tr.HALF, tr.HALF, tr.FLOAT), strict=True):
        poplin.convolution(graph, x, w, params, sequence, partials_type=partials)
    of = [cs.instance.template for cs in graph.state.compute_sets if cs.instance is not None]
    first, second, third = (t for t in of if "ConvPartial" in t.tables[0].codelet.spec.name)
    assert first is second
    assert third.tables[0].codelet.spec.name != first.tables[0].codelet.spec.name
