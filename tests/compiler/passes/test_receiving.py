"""Controls of receivers: a sender is selected, and a place set, only where they change."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tremula.base.types import FLOAT
from tremula.compiler.lower.lower import lower
from tremula.compiler.passes.exchange import exchanges_of
from tremula.poplar import programs as p
from tremula.poplar.tensors.tensor import concat

N_ELEMS, N_TILES = 12, 4


def mapped(graph, name, homes):
    tensor = graph.add_variable(FLOAT, [len(homes)], name)
    for element, tile in enumerate(homes):
        graph.set_tile_mapping(tensor[element], tile)
    return tensor


def read_controls(graph, codelet, reads, tile):
    """Controls of all tiles for a vertex on a tile that reads a tensor."""
    cs = graph.add_compute_set("cs")
    edges = {"reads": reads, "changes": reads[0:0], "writes": reads[0:0]}
    graph.add_vertex(cs, codelet, edges, tile=tile)
    phase = exchanges_of(lower(graph, p.Execute(cs))).of_step(0).before
    return phase.n_in_controls.tolist()


def test_rows_of_other_tiles_one_behind_the_other(small_graph, touch):
    """The place is set once, a sender selected for each row, whatever order a field has them in."""
    graph = small_graph()
    data = mapped(graph, "data", [0] * 4 + [1] * 4 + [2] * 4)
    assert read_controls(graph, touch, data, 3) == [0, 0, 0, 4]
    turned = concat([data[8:12], data[0:4], data[4:8]])
    assert read_controls(graph, touch, turned, 3) == [0, 0, 0, 4]
    both = concat([turned, data[8:12]])  # a row can be behind one other only
    assert read_controls(graph, touch, both, 3) == [0, 0, 0, 4]


def test_rows_with_gaps_between_them(small_graph, touch):
    """Parts of rows that a field has one behind the other need no place each."""
    graph = small_graph()
    data = mapped(graph, "data", [0] * 4 + [1] * 4 + [2] * 4)
    parts = concat([data[0:2], data[4:6], data[8:10]])
    assert read_controls(graph, touch, parts, 3) == [0, 0, 0, 4]


def test_own_data_between_what_comes(small_graph, touch):
    """What the tile has itself comes between two pieces: a place for each."""
    graph = small_graph()
    data = mapped(graph, "data", [0] * 4 + [3] * 4 + [2] * 4)
    assert read_controls(graph, touch, data, 3) == [0, 0, 0, 4]
    assert read_controls(graph, touch, data[0:8], 3) == [0, 0, 0, 2]


def test_pieces_of_one_sender(small_graph, touch):
    """A sender is selected once, and a control skips what it has between two pieces."""
    graph = small_graph()
    data = mapped(graph, "data", [0] * N_ELEMS)
    parts = concat([data[0:2], data[4:6], data[8:10]])
    assert read_controls(graph, touch, parts, 3) == [0, 0, 0, 4]


def test_results_that_go_home(small_graph, touch):
    """Parts of a variable that two tiles send home one behind the other need one place."""
    graph = small_graph()
    data = mapped(graph, "data", [0] * 8)
    cs = graph.add_compute_set("cs")
    for tile, part in ((1, data[0:4]), (2, data[4:8])):
        edges = {"reads": data[0:0], "changes": data[0:0], "writes": part}
        graph.add_vertex(cs, touch, edges, tile=tile)
    phase = exchanges_of(lower(graph, p.Execute(cs))).of_step(0).after
    assert phase.n_in_controls.tolist() == [3, 0, 0, 0]


def brute_controls(homes, goal_homes, order):
    """Controls of a copy of element order[g] to element g, element by element."""
    result = np.zeros(N_TILES, int)
    pieces = {tile: [] for tile in range(N_TILES)}
    for element in range(N_ELEMS):  # in the order of sources
        goal = order.index(element)
        home, here = homes[element], goal_homes[goal]
        if home == here:
            continue
        mine = pieces[here]
        last = mine[-1] if mine else None
        if last and last["home"] == home and last["end"] == element and last["goal_end"] == goal:
            last["end"], last["goal_end"] = element + 1, goal + 1
        else:
            piece = {"home": home, "end": element + 1, "goal": goal, "goal_end": goal + 1}
            mine.append(piece)
    for tile, mine in pieces.items():
        ends = {piece["goal_end"] for piece in mine}
        for number, piece in enumerate(mine):  # in the order of sources
            same = number > 0 and mine[number - 1]["home"] == piece["home"]
            result[tile] += 1 if same or piece["goal"] in ends else 2
    return result


@pytest.mark.slow
@settings(max_examples=100)
@given(
    st.lists(st.integers(0, N_TILES - 1), min_size=N_ELEMS, max_size=N_ELEMS),
    st.lists(st.integers(0, N_TILES - 1), min_size=N_ELEMS, max_size=N_ELEMS),
    st.permutations(range(N_ELEMS)),
)
def test_copies(small_graph, homes, goal_homes, order):
    """Controls of copies in any order are those counted element by element."""
    graph = small_graph(N_TILES)
    source, goal = mapped(graph, "source", homes), mapped(graph, "goal", goal_homes)
    view = concat([source[e : e + 1] for e in order])
    phase = exchanges_of(lower(graph, p.Copy(view, goal))).of_step(0).before
    counted = np.zeros(N_TILES, int) if phase is None else phase.n_in_controls
    np.testing.assert_array_equal(counted, brute_controls(homes, goal_homes, order))
