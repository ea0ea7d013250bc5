"""gcl: collectives between replicas, against NumPy over the replicas' values."""

from io import StringIO

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tremula as tr
from tremula.poplibs import gcl
from tremula.poplibs.gcl import ReplicaGroup, groups
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


@pytest.mark.parametrize(("n", "by_pairs"), [(2, True), (3, False), (4, False), (9, False)])
def test_reductions(n, by_pairs, monkeypatch):
    """Every reduction gives every replica the same, by pairs, around the ring, and in a loop."""
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
    result = run(graph, sequence, values, results)
    size = -(-15 // n)
    for operation, reduce in REDUCE.items():
        expected = reduce(values[operation][1], axis=0)
        for r in range(n):
            np.testing.assert_allclose(result[r][operation], expected, rtol=1e-5, atol=1e-6)
            np.testing.assert_array_equal(result[r][operation], result[0][operation])
            part = expected.ravel()[r * size : (r + 1) * size]
            got = result[r][f"{operation}/part"]
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
    result = run(graph, sequence, values, results)
    for name, (_, rows) in values.items():
        for r in range(n):
            np.testing.assert_array_equal(result[r][f"gather {name}"], rows)
            np.testing.assert_array_equal(result[r][f"root {name}"], rows[1])


def test_in_place_in_a_virtual_graph():
    """A part of the tiles reduces its tensor where it lies."""
    graph, sequence = replicated(2), tr.Sequence()
    part = graph.create_virtual_graph(1, 3)
    x = part.add_variable(tr.FLOAT, [6], "x", mapping="linear")
    gcl.all_reduce_in_place(part, x, sequence)
    rows = np.arange(12, dtype=np.float32).reshape(2, 6)
    result = run(graph, sequence, {"in": (x, rows)}, {"out": x})
    np.testing.assert_array_equal(result[1]["out"], rows.sum(axis=0))


@st.composite
def groupings(draw):
    """Replicas, and groups that cover them."""
    size, stride, n_more = (draw(st.integers(1, most)) for most in (4, 3, 2))
    return size * stride * n_more, ReplicaGroup(size, stride)


@settings(max_examples=8, deadline=None)
@given(groupings(), st.integers(0, 7), st.sampled_from(["ADD", "MAX"]))
def test_any_grouping(grouping, width, operation):
    """Within groups of any size and stride every collective is NumPy's over the members."""
    (n, group), (graph, sequence) = grouping, (replicated(grouping[0], n_tiles=2), tr.Sequence())
    size = group.size
    x = graph.add_variable(tr.FLOAT, [size, width], "x", mapping="linear")
    results = {
        "sum": gcl.all_reduce(graph, x, operation, sequence, group=group),
        "part": gcl.reduce_scatter(graph, x, operation, sequence, group=group),
        "all": gcl.all_gather(graph, x, sequence, group=group),
        "swapped": gcl.all_to_all(graph, x, sequence, group=group),
        "root": gcl.broadcast(graph, x, sequence, root=size - 1, group=group),
    }
    rows = np.random.default_rng(n).integers(-9, 9, (n, size, width)).astype(np.float32)
    result = run(graph, sequence, {"in": (x, rows)}, results)
    for r in range(n):
        m = r // group.stride % size
        theirs = rows[[r + (k - m) * group.stride for k in range(size)]]
        reduced = REDUCE[operation](theirs, axis=0)
        np.testing.assert_array_equal(result[r]["sum"], reduced)
        np.testing.assert_array_equal(result[r]["all"], theirs)
        np.testing.assert_array_equal(result[r]["swapped"], theirs[:, m])
        np.testing.assert_array_equal(result[r]["root"], theirs[-1])
        np.testing.assert_array_equal(result[r]["part"], reduced[m])


@pytest.mark.parametrize(("n", "width"), [(1, 3), (2, 5), (4, 7)])
def test_between_the_chips_of_a_graph(n, width):
    """Rows on the chips of one graph are reduced and gathered as NumPy does, each on its chip."""
    graph, sequence = tr.Graph(tr.IPUModel("ipu2", n, 2).create_device()), tr.Sequence()
    x = graph.add_variable(tr.FLOAT, [n, width], "x")
    for chip in range(n):
        graph.set_tile_mapping(x[chip], 2 * chip)
    rows = np.random.default_rng(n).normal(size=(n, width)).astype(np.float32)
    results = {
        "mean": gcl.all_reduce_between_chips(graph, x, "MEAN", sequence),
        "all": gcl.all_gather_between_chips(graph, x, sequence),
    }
    tiles = graph.get_tile_mapping(results["mean"][n - 1]).tile
    assert set((tiles // 2).tolist()) == {n - 1}
    (result,) = run(graph, sequence, {"in": (x, rows[None])}, results)
    np.testing.assert_allclose(result["mean"], np.tile(rows.mean(axis=0), (n, 1)), rtol=1e-5)
    np.testing.assert_array_equal(result["all"], np.tile(rows, (n, 1, 1)))


def test_both_directions_of_the_links_are_used():
    """Between the chips of a graph each link of the ring carries as much one way as the other."""
    graph, sequence = tr.Graph(tr.IPUModel("bow", 4, 4).create_device()), tr.Sequence()
    x = graph.add_variable(tr.FLOAT, [4, 64], "x")
    for chip in range(4):
        graph.set_tile_mapping(x[chip], 4 * chip)
    gcl.all_reduce_between_chips(graph, x, "ADD", sequence)
    engine = tr.Engine(graph, sequence).load()
    engine.run()
    links = engine.report().links
    assert len(links) == 8
    assert set(links.n_bytes.tolist()) == {6 * 8 * 4}
    assert links.bottleneck.startswith("IPU-Link chip ")
    engine.print_profile_summary(text := StringIO())
    assert links.bottleneck in text.getvalue()


def test_rings_of_rings(monkeypatch):
    """More replicas than a ring should have reduce in rings of neighbours, then across them."""
    monkeypatch.setattr(groups, "MAX_RING", 3)
    monkeypatch.setattr("tremula.poplibs.gcl.collectives.pairs_are_cheaper", lambda *_: False)
    assert groups.levels_of(ReplicaGroup(6, 2)) == (ReplicaGroup(3, 2), ReplicaGroup(2, 6))
    assert groups.levels_of(ReplicaGroup(5)) == (ReplicaGroup(5), None)
    graph, sequence = replicated(6, n_tiles=2), tr.Sequence()
    x = graph.add_variable(tr.FLOAT, [7], "x", mapping="linear")
    gcl.all_reduce_in_place(graph, x, sequence, operation="MEAN")
    rows = np.random.default_rng(0).normal(size=(6, 7)).astype(np.float32)
    result = run(graph, sequence, {"in": (x, rows)}, {"out": x})
    for r in range(6):
        np.testing.assert_allclose(result[r]["out"], rows.mean(axis=0), rtol=1e-5, atol=1e-6)
        np.testing.assert_array_equal(result[r]["out"], result[0]["out"])


def test_many_replicas_compile_like_few():
    """A collective over 64 replicas has no more steps than one over 12: its rounds are a loop."""
    n_steps = []
    for n in (12, 64):
        graph, sequence = replicated(n, n_tiles=2), tr.Sequence()
        x = graph.add_variable(tr.FLOAT, [60_000], "x", mapping="linear")
        gcl.all_reduce_in_place(graph, x, sequence)
        n_steps.append(len(tr.Engine(graph, sequence).executable.steps))
    assert n_steps[1] <= n_steps[0] + 2


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
    ring = groups.best_ring(graph, ReplicaGroup(8), 4 * n_elems // 8)
    assert groups.pairs_are_cheaper(graph, ring, 4 * n_elems) == (cycles[0] <= cycles[1])
    assert groups.pairs_are_cheaper(graph, ring, 4 * n_elems) == (n_elems == 64)
    assert not groups.pairs_are_cheaper(graph, groups.Ring(3, ReplicaGroup(3), False), 4)


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
    with pytest.raises(PoplibsError, match="expected a row for each of 2 replicas"):
        gcl.all_to_all(graph, x, sequence)
    with pytest.raises(PoplibsError, match="expected a row for each of 1 chips"):
        gcl.all_gather_between_chips(graph, x, sequence)
