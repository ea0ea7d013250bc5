"""Parts of an all-reduce: cut where a tensor lies, and evenly where that is uneven."""

import numpy as np
import pytest

import tremula as tr
from tremula.poplar.tensors.tile_map import TileMapping
from tremula.poplibs import gcl
from tremula.poplibs.gcl import groups
from tremula.poplibs.gcl.parts import add_parts, by_tile, cut_where_it_lies

N_TILES = 4


def replicated(n: int) -> tr.Graph:
    return tr.Graph(tr.IPUModel("ipu2", n, N_TILES).create_device(), replication_factor=n)


def scattered(graph: tr.Graph, n_elems: int, piece: int, name: str = "x") -> tr.Tensor:
    """A tensor whose pieces are dealt to the tiles in turn, seen in another order."""
    begin = np.arange(0, n_elems, piece)
    end = np.minimum(begin + piece, n_elems)
    tile = np.arange(len(begin)) % N_TILES
    x = graph.add_variable(tr.FLOAT, [n_elems], name)
    graph.set_tile_mapping(x, TileMapping(begin, end, tile, N_TILES))
    return x.reshape([2, n_elems // 2]).transpose().flatten()


def places(graph: tr.Graph, x: tr.Tensor, n: int) -> tuple[np.ndarray, np.ndarray]:
    """The tile of each element, and of its place among the parts."""
    ring, order = groups.Ring(n, groups.ReplicaGroup(n), is_folded=False), by_tile(graph, x)
    _, whole = add_parts(graph, x.type, n, cut_where_it_lies(graph, ring, order), "parts")
    after = whole.slice(0, x.n_elems)
    before, after = (graph.get_tile_mapping(t) for t in (order.flat, after))
    return tuple(np.repeat(m.tile, m.end - m.begin) for m in (before, after))


@pytest.mark.parametrize(("n_elems", "n"), [(1280, 4), (1000, 2), (1000, 3), (730, 4)])
def test_elements_stay_on_their_tiles(n_elems, n):
    """All that a tile can divide by the parts in 64 bits stays there, whatever the tensor's order.

    At each of the borders between tiles no more than half a piece of every part moves.
    """
    graph = replicated(n)
    before, after = places(graph, scattered(graph, n_elems, 10), n)
    assert (before != after).sum() <= (N_TILES - 1) * n * 2 / 2 + n * 2
    if n_elems % (N_TILES * n * 2) == 0:
        np.testing.assert_array_equal(before, after)


def test_an_uneven_tensor_is_spread():
    """A tensor on one tile is cut evenly over all of them."""
    graph = replicated(4)
    x = graph.add_variable(tr.FLOAT, [20_000], "x", mapping=1)
    _, after = places(graph, x, 4)
    assert np.bincount(after, minlength=N_TILES).max() <= 5_100


@pytest.mark.parametrize("by_pairs", [True, False])
@pytest.mark.parametrize("n_elems", [26, 330])
def test_sums_of_scattered_tensors(n_elems, by_pairs, monkeypatch):
    """Tensors in any order of memory are summed element by element; equal ones share one plan."""
    monkeypatch.setattr("tremula.poplibs.gcl.collectives.pairs_are_cheaper", lambda *_: by_pairs)
    n, random = 4, np.random.default_rng(n_elems)
    graph, sequence = replicated(n), tr.Sequence()
    values = {}
    for name in ("first", "second", "third"):
        x = scattered(graph, n_elems, 7, name)
        gcl.all_reduce_in_place(graph, x, sequence, name, operation="ADD")
        values[name] = (x, random.normal(size=(n, n_elems)).astype(np.float32))
        graph.create_host_write(name, x)
        graph.create_host_read(f"{name}/sum", x)
    engine = tr.Engine(graph, sequence).load()
    for name, (_, rows) in values.items():
        for r in range(n):
            engine.write_tensor(name, rows[r], replica=r)
    engine.run()
    for name, (_, rows) in values.items():
        result = [engine.read_tensor(f"{name}/sum", replica=r) for r in range(n)]
        np.testing.assert_allclose(result[0], rows.sum(axis=0), rtol=1e-5, atol=1e-5)
        assert all((one == result[0]).all() for one in result)
    buffers = [name for name in graph.state.variables.names if name.endswith("/parts")]
    assert len(buffers) == (0 if by_pairs else 1)


def test_short_messages_come_from_fewer_tiles():
    """Tiles that send take turns: of short parts some tiles send what their neighbours have."""
    graph = tr.Graph(tr.IPUModel("bow", 64).create_device(), replication_factor=64)
    x = graph.add_variable(tr.HALF, [1 << 20], "x", mapping="linear")
    ring, order = groups.best_ring(graph, groups.ReplicaGroup(64), 1 << 15), by_tile(graph, x)
    cuts = cut_where_it_lies(graph, ring, order)
    n_bytes = int(cuts.column[-1]) * 2
    few, all_tiles = (
        groups.round_cycles(graph, ring.after(), n_bytes, n) for n in (len(cuts.tile), 1472)
    )
    assert len(cuts.tile) < 1472
    assert few < 0.7 * all_tiles
