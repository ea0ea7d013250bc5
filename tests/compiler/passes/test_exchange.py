"""Exchange: bytes, fragments and copies against brute force over elements."""

from collections import Counter, defaultdict

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tremula.base.types import FLOAT
from tremula.compiler.lower.lower import lower
from tremula.compiler.passes.exchange import SharedColumns, StepExchange, exchanges_of
from tremula.compiler.passes.on_tile_copies import TileCopies
from tremula.hardware import chip
from tremula.poplar import programs as p
from tremula.poplar.tensors.tensor import concat

N_ELEMS, TILES_PER_IPU, N_IPUS = 12, 4, 2
N_TILES = TILES_PER_IPU * N_IPUS
TILE = st.integers(0, N_TILES - 1)
PIECES = st.lists(
    st.tuples(st.integers(0, N_ELEMS - 1), st.integers(0, 4), st.sampled_from([1, 1, 2])),
    max_size=3,
)


def elements(pieces):
    """Element numbers that pieces (begin, length, step) name, in order."""
    return [e for begin, n, step in pieces for e in range(N_ELEMS)[begin : begin + n * step : step]]


def view(tensor, pieces):
    parts = [tensor[begin : begin + n * step : step] for begin, n, step in pieces]
    return concat(parts) if parts else tensor[0:0]


def mapped(graph, name, homes):
    tensor = graph.add_variable(FLOAT, [N_ELEMS], name)
    for element, tile in enumerate(homes):
        graph.set_tile_mapping(tensor[element], tile)
    return tensor


def pieces_of(numbers):
    """How many maximal contiguous pieces a set of numbers has."""
    return sum(n - 1 not in numbers for n in numbers)


def taken_together(got, crossing):
    """Elements each pair of tiles takes at once, and all that some pair does not take so."""
    n_takers = Counter(e for numbers in got.values() for e in numbers)
    popular = {e for e, n in n_takers.items() if n >= chip("gc200").n_receivers_for_double_width}
    popular -= set().union(*crossing.values())
    together, slow = {}, set()
    for pair in range(N_TILES // 2):
        receiving = [got[t] for t in (2 * pair, 2 * pair + 1) if got[t]]
        together[pair] = set.intersection(popular, *receiving) if receiving else set()
        slow |= set().union(*receiving) - together[pair]
    return together, slow


def brute_phase(moves):
    """Columns of an exchange of {(source, destination): elements}."""
    expected = {
        name: np.zeros(N_TILES, int)
        for name in ("received", "sent", "shared", "sent_wide", "n_in_fragments", "n_out_fragments")
    }
    got, sent, crossing = defaultdict(set), defaultdict(set), defaultdict(set)
    senders = defaultdict(set)
    for (source, destination), numbers in moves.items():
        expected["n_in_fragments"][destination] += pieces_of(numbers)
        got[destination] |= numbers
        sent[source] |= numbers
        chips = source // TILES_PER_IPU, destination // TILES_PER_IPU
        if chips[0] != chips[1]:
            crossing[chips] |= numbers
            senders[chips] |= {source} if numbers else set()
    together, slow = taken_together(got, crossing)
    for tile in range(N_TILES):
        expected["received"][tile] = 4 * len(got[tile])
        expected["sent"][tile] = 4 * len(sent[tile])
        expected["n_out_fragments"][tile] = pieces_of(sent[tile])
        expected["shared"][tile] = 4 * len(got[tile] & together[tile // 2])
        expected["sent_wide"][tile] = 4 * len(sent[tile] - slow)
    chip_bytes, chip_sends = np.zeros((2, N_IPUS, N_IPUS), int)
    for pair, numbers in crossing.items():
        chip_bytes[pair] = 4 * len(numbers)
        chip_sends[pair] = len(senders[pair])
    return expected | {"chip_bytes": chip_bytes, "chip_sends": chip_sends}


def check_phase(phase, moves):
    if not any(moves.values()):
        assert phase is None
        return
    for name, column in brute_phase(moves).items():
        np.testing.assert_array_equal(getattr(phase, name), column, err_msg=name)


@pytest.mark.slow
@settings(max_examples=100)
@given(
    st.lists(TILE, min_size=N_ELEMS, max_size=N_ELEMS),
    st.lists(st.tuples(TILE, PIECES), min_size=1, max_size=4),
)
def test_inputs_of_a_compute_set(small_graph, touch, homes, vertices):
    """Inputs arrive once per tile and are sent once; on-tile parts out of place are copied once."""
    graph = small_graph(TILES_PER_IPU, N_IPUS)
    data = mapped(graph, "data", homes)
    cs = graph.add_compute_set("cs")
    moves, copied, known = defaultdict(set), np.zeros(N_TILES, int), set()
    for tile, pieces in vertices:
        edges = {"reads": view(data, pieces), "changes": data[0:0], "writes": data[0:0]}
        graph.add_vertex(cs, touch, edges, tile=tile)
        wanted = elements(pieces)
        for element in set(wanted):
            if homes[element] != tile:
                moves[homes[element], tile].add(element)
        is_in_place = wanted == list(range(wanted[0], wanted[0] + len(wanted))) if wanted else True
        is_in_place = is_in_place and all(homes[e] == tile for e in wanted)
        if not is_in_place and (tile, *wanted) not in known:
            known.add((tile, *wanted))
            copied[tile] += 4 * sum(homes[e] == tile for e in wanted)
    moved = exchanges_of(lower(graph, p.Execute(cs))).of_step(0)
    check_phase(moved.before, moves)
    assert moved.after is None
    assert moved.scatter is None
    n_copied = np.zeros(N_TILES, int) if moved.gather is None else moved.gather.n_bytes
    np.testing.assert_array_equal(n_copied, copied)


@settings(max_examples=60)
@given(
    st.lists(TILE, min_size=N_ELEMS, max_size=N_ELEMS),
    st.lists(st.tuples(TILE, st.sampled_from(["changes", "writes"])), min_size=3, max_size=3),
)
def test_outputs_go_home(small_graph, touch, homes, vertices):
    """Outputs are sent from the vertex to their home; InOut data moves both ways."""
    graph = small_graph(TILES_PER_IPU, N_IPUS)
    data = mapped(graph, "data", homes)
    cs = graph.add_compute_set("cs")
    there, back = defaultdict(set), defaultdict(set)
    for number, (tile, field) in enumerate(vertices):
        mine = range(number * 4, number * 4 + 4)
        edges = dict.fromkeys(("reads", "changes", "writes"), data[0:0])
        edges[field] = data[mine.start : mine.stop]
        graph.add_vertex(cs, touch, edges, tile=tile)
        for element in mine:
            if homes[element] != tile:
                back[tile, homes[element]].add(element)
                if field == "changes":
                    there[homes[element], tile].add(element)
    moved = exchanges_of(lower(graph, p.Execute(cs))).of_step(0)
    check_phase(moved.before, there)
    check_phase(moved.after, back)
    buffers = np.zeros(N_TILES, int)
    for (tile, _), numbers in back.items():
        buffers[tile] += 4 * len(numbers)
    n_buffers = np.zeros(N_TILES, int) if moved.buffer_bytes is None else moved.buffer_bytes
    scratch = np.zeros(N_TILES, int) if moved.scatter is None else moved.scatter.n_bytes
    np.testing.assert_array_equal(n_buffers - scratch, buffers)


@pytest.mark.slow
@settings(max_examples=100)
@given(
    st.lists(TILE, min_size=N_ELEMS, max_size=N_ELEMS),
    st.lists(TILE, min_size=N_ELEMS, max_size=N_ELEMS),
    st.permutations(range(N_ELEMS)).map(lambda order: order[:8]),
    st.lists(st.integers(0, N_ELEMS - 1), min_size=8, max_size=8),
)
def test_copies(small_graph, source_homes, goal_homes, goals, sources):
    """A copy exchanges each byte once per tile; the rest, and repeated sources, is copied there."""
    graph = small_graph(TILES_PER_IPU, N_IPUS)
    source, goal = mapped(graph, "a", source_homes), mapped(graph, "b", goal_homes)
    copy = p.Copy(
        concat([source[e : e + 1] for e in sources]), concat([goal[e : e + 1] for e in goals])
    )
    moved = exchanges_of(lower(graph, copy)).of_step(0)
    arriving, on_tile = defaultdict(set), np.zeros(N_TILES, int)
    for s, g in zip(sources, goals, strict=True):
        here, there = source_homes[s], goal_homes[g]
        if here == there or s in arriving[there]:
            on_tile[there] += 4
        else:
            arriving[there].add(s)
    received = np.zeros(N_TILES, int) if moved.before is None else moved.before.received
    np.testing.assert_array_equal(received, [4 * len(arriving[t]) for t in range(N_TILES)])
    n_copied = np.zeros(N_TILES, int) if moved.gather is None else moved.gather.n_bytes
    np.testing.assert_array_equal(n_copied, on_tile)


def test_multicast_is_sent_once(small_graph, touch):
    """One tile's data read by all others is sent once; pairs of receivers share it."""
    graph = small_graph(8)
    data = graph.add_variable(FLOAT, [16], "data", mapping=0)
    cs = graph.add_compute_set("cs")
    for tile in range(8):
        graph.add_vertex(
            cs, touch, {"reads": data, "changes": data[0:0], "writes": data[0:0]}, tile=tile
        )
    phase = exchanges_of(lower(graph, p.Execute(cs))).of_step(0).before
    assert phase.sent.tolist() == [64] + [0] * 7
    assert phase.received.tolist() == [0] + [64] * 7
    assert phase.shared.tolist() == [0] + [64] * 7  # tile 0 needs nothing: 1 has the bus alone
    assert phase.sent_wide.tolist() == [64] + [0] * 7
    assert phase.n_out_fragments.tolist() == [1] + [0] * 7


def test_overlapping_copy_goes_through_a_buffer(small_graph):
    """A copy whose sides share bytes takes a buffer as large as what it moves."""
    graph = small_graph()
    data = graph.add_variable(FLOAT, [9], "data", mapping=0)
    moved = exchanges_of(lower(graph, p.Copy(data[0:8], data[1:9]))).of_step(0)
    assert moved.buffer_bytes.tolist() == [32, 0, 0, 0]
    assert moved.gather.n_bytes.tolist() == [64, 0, 0, 0]


def test_repeated_source_is_one_fragment(small_graph):
    """A scalar copied to many elements of a tile arrives once; the tile repeats it."""
    graph = small_graph()
    one = graph.add_variable(FLOAT, [1], "one", mapping=0)
    many = graph.add_variable(FLOAT, [8], "many", mapping=3)
    moved = exchanges_of(lower(graph, p.Copy(one.broadcast(8), many))).of_step(0)
    assert moved.before.received.tolist() == [0, 0, 0, 4]
    assert moved.before.n_in_fragments.tolist() == [0, 0, 0, 1]
    assert moved.gather.n_bytes.tolist() == [0, 0, 0, 28]


def test_repeated_element_of_a_field_is_copied_each_time(small_graph, touch):
    """A vertex reads contiguous memory: an element that its field repeats is written there."""
    graph = small_graph()
    data = graph.add_variable(FLOAT, [4], "data", mapping=2)
    cs = graph.add_compute_set("cs")
    edges = {"reads": concat([data[3:4].broadcast(6), data[0:2].broadcast(2)])}
    graph.add_vertex(cs, touch, edges | {"changes": data[0:0], "writes": data[0:0]}, tile=2)
    moved = exchanges_of(lower(graph, p.Execute(cs))).of_step(0)
    assert moved.gather.n_copies.tolist() == [0, 0, 6 + 2, 0]
    assert moved.gather.n_bytes.tolist() == [0, 0, 4 * 10, 0]


def test_equal_columns_of_exchanges_are_one():
    """What is the same in two exchanges takes memory once; what differs stays as it is."""
    columns = SharedColumns()
    sizes = np.arange(12).reshape(3, 4)
    one = columns.of(StepExchange(gather=TileCopies(sizes[0], sizes[1], sizes[2])))
    other = columns.of(StepExchange(scatter=TileCopies(sizes[1], sizes[1] + 1, sizes[0])))
    assert other.before is None
    assert other.gather is None
    assert other.scatter.n_bytes is one.gather.n_copies
    assert other.scatter.cycles is one.gather.n_bytes
    assert other.scatter.n_copies.tolist() == [5, 6, 7, 8]
    assert one.gather.n_bytes.base is None, "nothing larger is kept for it"
