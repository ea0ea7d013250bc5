"""gcl: collectives between replicas, against NumPy over the replicas' values."""

import numpy as np
import pytest

import tremula as tr
from tremula.poplibs import gcl
from tremula.poplibs.gcl import rings
from tremula.poplibs.registry import PoplibsError

REDUCE = {"ADD": np.sum, "MEAN": np.mean, "MUL": np.prod, "MIN": np.min, "MAX": np.max}


def replicated(n: int, n_tiles: int = 4) -> tr.Graph:
    return tr.Graph(tr.IPUModel("ipu2", n, n_tiles).create_device(), replication_factor=n)


def run(graph: tr.Graph, sequence: tr.Sequence, values: dict, results: dict) -> list[dict]:
    """Give each replica its row of the values; the results of each replica."""
    n = graph.replication_factor
    for name, (tensor, _) in values.items():
        graph.create_host_write(name, tensor)
    for name, tensor in results.items():
        graph.create_host_read(name, tensor)
    engine = tr.Engine(graph, sequence).load()
    for name, (_, rows) in values.items():
        for r in range(n):
            engine.write_tensor(name, rows[r], replica=r)
    engine.run()
    return [{name: engine.read_tensor(name, replica=r) for name in results} for r in range(n)]


@pytest.mark.parametrize("n", [2, 3, 4])
@pytest.mark.parametrize("by_pairs", [True, False])
def test_reductions(n, by_pairs, monkeypatch):
    """Every reduction gives every replica the same, by pairs or around the ring."""
    if by_pairs and n == 3:
        pytest.skip("pairs need a power of two")
    monkeypatch.setattr("tremula.poplibs.gcl.collectives.pairs_are_cheaper", lambda *_: by_pairs)
    graph, sequence = replicated(n), tr.Sequence()
    random = np.random.default_rng(n)
    values, results, scattered = {}, {}, {}
    for operation in REDUCE:
        x = graph.add_variable(tr.FLOAT, [5, 3], f"x{operation}", mapping="linear")
        values[operation] = (x, random.normal(size=(n, 5, 3)).astype(np.float32))
        scattered[operation] = gcl.reduce_scatter(graph, x, operation, sequence)
        results[operation] = gcl.all_reduce(graph, x, operation, sequence)
    results |= {f"{k}/part": v for k, v in scattered.items()}
    found = run(graph, sequence, values, results)
    size = -(-15 // n)
    for operation, reduce in REDUCE.items():
        expected = reduce(values[operation][1], axis=0)
        for r in range(n):
            np.testing.assert_allclose(found[r][operation], expected, rtol=1e-5, atol=1e-6)
            np.testing.assert_array_equal(found[r][operation], found[0][operation])
            part = expected.ravel()[r * size : (r + 1) * size]
            got = found[r][f"{operation}/part"]
            np.testing.assert_allclose(got[: len(part)], part, rtol=1e-5, atol=1e-6)
            assert got.shape == (size,)


@pytest.mark.slow
def test_gather_broadcast_and_types():
    """Gathered rows are in the order of replicas; broadcast is the root's, in any type."""
    graph, sequence, n = replicated(3), tr.Sequence(), 3
    random = np.random.default_rng(0)
    values, results = {}, {}
    for type in (tr.FLOAT, tr.HALF, tr.INT, tr.UNSIGNED_INT):
        x = graph.add_variable(type, [2, 5], f"x{type}", mapping="linear")
        values[str(type)] = (x, random.integers(0, 99, (n, 2, 5)).astype(type.dtype))
        results[f"gather {type}"] = gcl.all_gather(graph, x, sequence)
        results[f"root {type}"] = gcl.broadcast(graph, x, sequence, root=1)
    found = run(graph, sequence, values, results)
    for name, (_, rows) in values.items():
        for r in range(n):
            np.testing.assert_array_equal(found[r][f"gather {name}"], rows)
            np.testing.assert_array_equal(found[r][f"root {name}"], rows[1])


def test_in_place_in_a_virtual_graph():
    """A part of the tiles reduces its tensor where it lies."""
    graph, sequence = replicated(2), tr.Sequence()
    part = graph.create_virtual_graph(1, 3)
    x = part.add_variable(tr.FLOAT, [6], "x", mapping="linear")
    gcl.all_reduce_in_place(part, x, sequence)
    rows = np.arange(12, dtype=np.float32).reshape(2, 6)
    found = run(graph, sequence, {"in": (x, rows)}, {"out": x})
    np.testing.assert_array_equal(found[1]["out"], rows.sum(axis=0))


@pytest.mark.parametrize(("size", "stride"), [(1, 1), (2, 1), (2, 2), (2, 4), (4, 1), (4, 2)])
def test_groups_of_replicas(size, stride):
    """Within a group every replica gets the sum of its members, to the bit."""
    n, (graph, sequence) = 8, (replicated(8, n_tiles=2), tr.Sequence())
    x = graph.add_variable(tr.FLOAT, [3], "x", mapping="linear")
    gcl.all_reduce_in_groups_in_place(graph, x, size, stride, sequence)
    rows = np.random.default_rng(0).normal(size=(n, 3)).astype(np.float32)
    found = run(graph, sequence, {"in": (x, rows)}, {"out": x})
    for r in range(n):
        first = r - (r // stride % size) * stride
        members = [first + m * stride for m in range(size)]
        np.testing.assert_allclose(found[r]["out"], rows[members].sum(axis=0), rtol=1e-5)
        np.testing.assert_array_equal(found[r]["out"], found[first]["out"])


@pytest.mark.parametrize("n_elems", [64, 60_000])
def test_the_cheaper_way_is_taken(n_elems, monkeypatch):
    """Pairs of eight replicas win while syncs weigh more than bytes; else the ring does."""
    cycles = []
    for by_pairs in (True, False):
        monkeypatch.setattr(
            "tremula.poplibs.gcl.collectives.pairs_are_cheaper", lambda *_, p=by_pairs: p
        )
        graph, sequence = replicated(8, n_tiles=8), tr.Sequence()
        x = graph.add_variable(tr.FLOAT, [n_elems], "x", mapping="linear")
        gcl.all_reduce_in_place(graph, x, sequence)
        report = tr.Engine(graph, sequence).report()
        cycles.append(report.link_exchange.max(axis=1).sum())
    assert rings.pairs_are_cheaper(graph, 4 * n_elems) == (cycles[0] <= cycles[1])
    assert rings.pairs_are_cheaper(graph, 4 * n_elems) == (n_elems == 64)
    assert not rings.pairs_are_cheaper(replicated(3), 4 * n_elems)


def test_errors():
    """Unknown operations and types, and roots that do not exist, are refused."""
    graph, sequence = replicated(2), tr.Sequence()
    x = graph.add_variable(tr.FLOAT, [4], "x", mapping=0)
    bits = graph.add_variable(tr.BOOL, [4], "bits", mapping=0)
    whole = graph.add_variable(tr.INT, [4], "whole", mapping=0)
    with pytest.raises(PoplibsError, match=r"does not know operation 'MEEN'[\s\S]*'MEAN'"):
        gcl.all_reduce(graph, x, "MEEN", sequence)
    with pytest.raises(PoplibsError, match="all_reduce of ADD does not work on bool"):
        gcl.all_reduce(graph, bits, "ADD", sequence)
    with pytest.raises(PoplibsError, match="MEAN does not work on int, only on float, half"):
        gcl.all_reduce(graph, whole, "MEAN", sequence)
    with pytest.raises(PoplibsError, match="broadcast got root 2, expected 0 to 1"):
        gcl.broadcast(graph, x, sequence, root=2)
    with pytest.raises(PoplibsError, match="groups of 3 of 2 replicas, 1 apart"):
        gcl.all_reduce_in_groups_in_place(graph, x, 3, 1, sequence)
