"""Tile maps: calls through views against a dict per element, linear maps, virtual graphs."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tremula import FLOAT, HALF, INT, Graph, Interval, IPUModel, TileMapping, Vertex, concat
from tremula.base.errors import InvalidTileMapping
from tremula.base.types import BOOL, UNSIGNED_CHAR
from tremula.poplar.tensors.tile_map import linear_intervals

N_TILES = 6


def small_graph(n_ipus=1):
    return Graph(IPUModel("ipu2", n_ipus=n_ipus, tiles_per_ipu=N_TILES).create_device())


def draw_view(draw, tensors):
    """A view with strides, repetition or several variables."""
    parts = draw(st.lists(st.sampled_from(tensors), min_size=1, max_size=2))
    flat = concat([part.flatten() for part in parts])
    low, high = sorted((draw(st.integers(0, flat.n_elems)), draw(st.integers(0, flat.n_elems))))
    view = flat[low : high : draw(st.integers(1, 3))]
    return view.reverse() if draw(st.booleans()) else view.broadcast(draw(st.integers(1, 2)))


def brute_mapping(tensor, tile_of):
    """(begin, end, tile) of maximal intervals of mapped elements on one tile."""
    rows = []
    for i, address in enumerate(tensor.addresses().ravel().tolist()):
        tile = tile_of.get(address)
        if tile is None:
            continue
        if rows and rows[-1][1] == i and rows[-1][2] == tile:
            rows[-1][1] = i + 1
        else:
            rows.append([i, i + 1, tile])
    return rows


def columns(mapping):
    return [list(row) for row in zip(mapping.begin, mapping.end, mapping.tile, strict=True)]


@pytest.mark.slow
@settings(max_examples=150)
@given(st.data())
def test_the_last_call_wins_element_by_element(data):
    """Any calls through any views give each element the tile of the last call that touched it."""
    graph = small_graph()
    type = data.draw(st.sampled_from([FLOAT, HALF, UNSIGNED_CHAR]))
    shapes = st.lists(st.integers(1, 4), min_size=1, max_size=2)
    tensors = [
        graph.add_variable(type, shape)
        for shape in data.draw(st.lists(shapes, min_size=1, max_size=3))
    ]
    tile_of: dict[int, int] = {}
    for _ in range(data.draw(st.integers(0, 6))):
        view = draw_view(data.draw, tensors)
        addresses = view.addresses().ravel().tolist()
        if data.draw(st.booleans()):
            tile = data.draw(st.integers(0, N_TILES - 1))
            graph.set_tile_mapping(view, tile)
            tile_of.update(dict.fromkeys(addresses, tile))
        elif not view.contains_aliases:
            tiles = data.draw(st.lists(st.integers(0, N_TILES - 1), max_size=len(addresses)))
            lists = [
                [Interval(i, i + 1) for i, t in enumerate(tiles) if t == n] for n in range(N_TILES)
            ]
            graph.set_tile_mapping(view, lists)
            tile_of.update(dict(zip(addresses, tiles, strict=False)))
        if data.draw(st.booleans()):  # resolving in between changes nothing
            graph.state.tile_map.resolve()
    asked = draw_view(data.draw, tensors)
    wanted = brute_mapping(asked, tile_of)
    assert columns(graph.get_tile_mapping(asked, require_complete=False)) == wanted
    if sum(row[1] - row[0] for row in wanted) == asked.n_elems:
        assert columns(graph.get_tile_mapping(asked)) == wanted
    else:
        with pytest.raises(InvalidTileMapping, match="not mapped to a tile"):
            graph.get_tile_mapping(asked)


def test_a_mapping_read_from_one_tensor_maps_another():
    """get_tile_mapping's result can be given to set_tile_mapping, and reads as lists."""
    graph = small_graph()
    x = graph.add_variable(FLOAT, [2, 4])
    graph.set_tile_mapping(x[0], 3)
    graph.set_tile_mapping(x[1], 1)
    mapping = graph.get_tile_mapping(x)
    y = graph.add_variable(HALF, [8])
    graph.set_tile_mapping(y, mapping)
    assert graph.get_tile_mapping(y) == mapping
    assert (mapping[3], mapping[1], mapping[0]) == ([Interval(0, 4)], [Interval(4, 8)], [])
    assert [len(parts) for parts in mapping] == [0, 1, 0, 1, 0, 0]
    assert mapping.n_elems_per_tile().tolist() == [0, 4, 0, 4, 0, 0]
    assert repr(mapping) == "TileMapping(8 elements on 2 tiles)"
    assert TileMapping.from_lists([[], [(4, 8)], [], [(0, 4)]], N_TILES) == mapping


def test_clones_have_the_same_mapping():
    """clone and clone_n map each element where the original has it."""
    graph = small_graph()
    x = graph.add_variable(FLOAT, [5])
    graph.set_tile_mapping(x[::2], 4)
    graph.set_tile_mapping(x[1::2], 2)
    copy, copies = graph.clone(x, type=HALF), graph.clone_n(x, 2)
    assert (copy.type, copies.shape) == (HALF, (2, 5))
    for other in (copy, copies[0], copies[1]):
        assert graph.get_tile_mapping(other) == graph.get_tile_mapping(x)


# Of the reference: elements, tiles used, largest and smallest part, end of the first part.
LINEAR = [
    (4, 1, 4, 4, 4),
    (33, 1, 33, 33, 33),
    (2_944, 92, 32, 32, 32),
    (47_104, 1_472, 32, 32, 32),
    (60_000, 1_429, 42, 40, 40),
    (180_000, 1_452, 124, 122, 122),
    (540_000, 1_468, 368, 366, 366),
    (1_000_000, 1_471, 680, 678, 678),
]


@pytest.mark.parametrize(("n_elems", "n_tiles", "largest", "smallest", "first_end"), LINEAR)
def test_linear_mapping_is_poplars(n_elems, n_tiles, largest, smallest, first_end):
    """Floats spread linearly over 1472 tiles give Poplar's parts."""
    graph = Graph(IPUModel("ipu2").create_device())
    mapping = graph.get_tile_mapping(graph.add_variable(FLOAT, [n_elems], mapping="linear"))
    sizes = mapping.n_elems_per_tile()
    used = sizes[sizes > 0]
    assert (len(used), used.max(), used.min()) == (n_tiles, largest, smallest)
    assert mapping[0] == [Interval(0, first_end)]
    assert (sizes[:n_tiles] > 0).all()


@settings(max_examples=200)
@given(st.integers(0, 500), st.integers(1, 9), st.integers(1, 20), st.integers(0, 40))
def test_linear_parts_follow_the_rule(n_elems, grain, n_tiles, least):
    """Parts are in order without gaps, whole grains, at most one per tile, and not too small."""
    begin, end = linear_intervals(n_elems, grain, n_tiles, least)
    assert begin.tolist() == [0, *end.tolist()][: len(begin)]
    assert (end[-1] if len(end) else 0) == n_elems
    assert len(begin) <= n_tiles
    assert (begin % grain == 0).all()
    sizes = end - begin
    if len(sizes) > 1:
        assert sizes[:-1].min() >= min(least, grain * (least // grain))
        assert sizes[:-1].max() - sizes[:-1].min() <= grain


def test_linear_mapping_takes_the_types_vector_width():
    """The grain of halves is 4 and of bytes 8, and a grain or minimum of one's own is used."""
    graph = small_graph()
    for type, grain in ((FLOAT, 2), (HALF, 4), (BOOL, 8), (INT, 2)):
        mapping = graph.get_tile_mapping(graph.add_variable(type, [1001], mapping="linear"))
        assert (mapping.begin % grain == 0).all()
    x = graph.add_variable(FLOAT, [12])
    graph.map_linearly(x, min_elems=1, grain=3)
    assert graph.get_tile_mapping(x).begin.tolist() == [0, 3, 6, 9]


def test_linear_mapping_follows_the_view():
    """A shuffled view is spread in its own order, not in that of the variable."""
    graph = small_graph()
    x = graph.add_variable(FLOAT, [2, 6])
    graph.map_linearly(x.transpose(), min_elems=1, grain=4)
    assert [len(graph.get_tile_mapping(x.transpose())[t]) for t in range(4)] == [1, 1, 1, 0]
    assert graph.get_tile_mapping(x[0]).begin.tolist() == [0, 2, 4]


# -- virtual graphs --------------------------------------------------------------------------------


@settings(max_examples=60)
@given(st.data())
def test_nested_virtual_graphs_translate_tiles(data):
    """However virtual graphs are nested, tile numbers go to the top level and back."""
    top = small_graph(n_ipus=2)
    graph, tiles = top, np.arange(top.target.n_tiles)
    for _ in range(data.draw(st.integers(1, 3))):
        n = len(tiles)
        if data.draw(st.booleans()):
            low = data.draw(st.integers(0, n - 1))
            high = data.draw(st.integers(low + 1, n))
            graph, tiles = graph.create_virtual_graph(low, high), tiles[low:high]
        else:
            picked = data.draw(st.lists(st.integers(0, n - 1), min_size=1, unique=True))
            graph, tiles = graph.create_virtual_graph(picked), tiles[picked]
    assert graph.target.n_tiles == len(tiles)
    assert [graph.to_top_level_tile(t) for t in range(len(tiles))] == tiles.tolist()
    assert [graph.from_top_level_tile(t) for t in tiles.tolist()] == list(range(len(tiles)))
    x = top.add_variable(FLOAT, [len(tiles)])
    for i in range(len(tiles)):
        graph.set_tile_mapping(x[i], i)
    assert np.repeat(*_tiles(top.get_tile_mapping(x))).tolist() == tiles.tolist()
    assert np.repeat(*_tiles(graph.get_tile_mapping(x))).tolist() == list(range(len(tiles)))


def _tiles(mapping):
    return mapping.tile, mapping.end - mapping.begin


def test_a_virtual_graph_of_n_tiles_takes_them_from_each_ipu():
    """create_virtual_graph(n) keeps the first n tiles of every IPU."""
    top = small_graph(n_ipus=2)
    graph = top.create_virtual_graph(2)
    assert (graph.target.n_ipus, graph.target.tiles_per_ipu) == (2, 2)
    assert [graph.to_top_level_tile(t) for t in range(4)] == [0, 1, N_TILES, N_TILES + 1]


def test_virtual_graphs_share_everything_but_tile_numbers():
    """Variables, compute sets and vertices of a virtual graph belong to the top-level graph."""
    top = small_graph()
    graph = top.create_virtual_graph([5, 2])
    x = graph.add_variable(FLOAT, [64], "x", mapping="linear")
    assert set(top.get_tile_mapping(x).tile.tolist()) == {5, 2}
    assert top.get_tile_mapping(x).tile[0] == 5
    vertex = graph.add_vertex(graph.add_compute_set("cs"), Nothing, tile=1)
    assert vertex.table.tile.tolist() == [2]
    graph.set_tile_mapping(vertex, 0)
    assert vertex.table.tile.tolist() == [5]
    assert (graph.top, top.n_vertices) == (top, 1)


class Nothing(Vertex):
    def compute(self):
        pass
