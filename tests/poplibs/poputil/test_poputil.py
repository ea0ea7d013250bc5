"""poputil: linear maps exactly as Poplar's, maps by use, broadcasting, layout, clones."""

import numpy as np
import pytest

import tremula as tr
from tests.poplibs.run_op import small_graph
from tremula import Interval, Sequence
from tremula.poplar.tensors.layout import moved_pieces
from tremula.poplar.tensors.tensor import Tensor
from tremula.poplibs import poputil
from tremula.poplibs.poputil.broadcast import pattern_of_pieces
from tremula.poplibs.registry import PoplibsError


@pytest.fixture
def graph():
    return small_graph()


@pytest.fixture(scope="module")
def full():
    return tr.Graph(tr.IPUModel("gc200").create_device())


@pytest.mark.parametrize(
    ("n", "n_tiles", "largest", "smallest"),
    [
        (4, 1, 4, 4), (33, 1, 33, 33), (2944, 92, 32, 32), (47104, 1472, 32, 32),
        (60000, 1429, 42, 40), (180000, 1452, 124, 122), (540000, 1468, 368, 366),
        (1000000, 1471, 680, 678),
    ],
)  # fmt: skip
def test_linear_mapping_is_poplars(full, n, n_tiles, largest, smallest):
    """Floats over 1472 tiles: the tiles used and part sizes that Poplar's algorithm gives."""
    tensor = full.add_variable(tr.FLOAT, [n])
    mapping = poputil.calc_linear_tile_mapping(full, tensor)
    sizes = mapping.end - mapping.begin
    assert (len(sizes), sizes.max(), sizes.min()) == (n_tiles, largest, smallest)
    assert mapping.tile.tolist() == list(range(n_tiles))


def test_linear_mapping_with_offset(graph):
    """Part i goes to tile offset + i, or is counted down from the last tile."""
    up = poputil.calc_linear_tile_mapping(graph, [40], 4, 4, 6)
    down = poputil.calc_linear_tile_mapping(graph, [40], 4, 4, 1, is_ascending=False)
    assert up.tile.tolist() == [6, 7, 0, 1, 2]
    assert down.tile.tolist() == [6, 5, 4, 3, 2]
    assert (up.end - up.begin).tolist() == [8] * 5
    for tile in range(8):
        there = poputil.transform_tile_index(tile, 8, 3, is_ascending=False)
        assert poputil.inv_transform_tile_index(there, 8, 3, is_ascending=False) == tile


def test_offsets_chain(graph):
    """Small tensors mapped one after the other fill tiles in turn."""
    a, b = (graph.add_variable(tr.FLOAT, [64]) for _ in range(2))
    offset = poputil.map_tensor_linearly_with_offset(graph, a, 0)
    mapping, after = poputil.calc_linear_tile_mapping_and_new_offset(graph, b, offset)
    assert (offset, after) == (2, 4)
    assert mapping.tile.tolist() == [2, 3]


def test_linear_mapping_of_a_shape_needs_sizes(graph):
    """A shape has no type, so that the least size and the grain must be said."""
    with pytest.raises(PoplibsError, match="needs min_elements and grain"):
        poputil.calc_linear_tile_mapping(graph, [40])


def test_tile_imbalance(graph):
    """The fullest tile's elements beyond an even share, and never less than zero."""
    tensor = graph.add_variable(tr.FLOAT, [16], mapping=3)
    assert poputil.tensor_tile_imbalance(graph, tensor) == 14
    assert poputil.tensor_tile_imbalance(graph, tensor, min_elements=10) == 6
    assert poputil.tensor_tile_imbalance(graph, tensor, grain=32) == 0


def test_mapping_offsets_are_those_of_poplibs():
    """The values that PopLibs' own test states (tests/poputil/TileMappingTest.cpp)."""
    assert poputil.choose_mapping_offset(1024, [4, 64]) == 239
    assert poputil.choose_mapping_offset(4, [4, 64]) == 3
    assert poputil.choose_mapping_offset(1024, [4, 64], 0x1234) == 2
    assert poputil.choose_mapping_offset(1024, [256]) == 206


def test_mapping_offset_is_stable():
    """The offset of a shape is a tile, the same each time, and differs between shapes."""
    result = [poputil.choose_mapping_offset(1472, [n, 7]) for n in range(1, 60)]
    assert result == [poputil.choose_mapping_offset(1472, [n, 7]) for n in range(1, 60)]
    assert all(0 <= tile < 1472 for tile in result)
    assert len(set(result)) > 50


@pytest.mark.parametrize(
    ("limits", "expected"),
    [
        ({}, [[(0, 8)], [(8, 10), (20, 26)], [(26, 33)]]),
        ({"min_per_partition": 12}, [[(0, 10), (20, 22)], [(22, 33)]]),
        ({"max_per_region": 4}, [[(0, 4), (4, 8)], [(8, 10), (20, 24), (24, 26)],
                                 [(26, 30), (30, 33)]]),
    ],
)  # fmt: skip
def test_split_regions(limits, expected):
    """Whole grains, parts as equal as they allow, regions in order; limits are kept."""
    parts = poputil.split_regions([Interval(0, 10), Interval(20, 33)], 4, 3, **limits)
    assert [[(i.begin, i.end) for i in part] for part in parts] == expected


def test_split_nothing():
    """No elements, no parts."""
    assert poputil.split_regions([], 4, 3) == []


def test_split_between_workers(graph):
    """A tile's regions become at most six lists."""
    parts = poputil.split_regions_between_workers(graph.target, [Interval(0, 100)], 2)
    assert len(parts) == 6
    assert sum(len(i) for part in parts for i in part) == 100


def test_interval_helpers():
    """Joining, flattening, counting, undoing a permutation, balanced parts."""
    regions = [Interval(0, 3), Interval(3, 5), Interval(7, 9)]
    assert poputil.merge_adjacent_regions(regions) == [Interval(0, 5), Interval(7, 9)]
    assert poputil.flatten_intervals([regions[:1], regions[1:]]) == regions
    assert poputil.interval_sequence_num_elements(regions) == 7
    shuffled = [Interval(4, 6), Interval(0, 3), Interval(3, 4)]
    assert poputil.calculate_unshuffling_intervals(shuffled) == [Interval(2, 6), Interval(0, 2)]
    assert poputil.balanced_partition(10, 4) == (4, 3)
    assert poputil.balanced_partition(9, 4) == (3, 3)


def test_map_by_use(graph):
    """An element used by one tile goes there; those used by several are spread over them evenly."""
    tensor = graph.add_variable(tr.FLOAT, [24])
    tracker = poputil.TensorUseTracker(8)
    tracker.add(graph, 1, tensor[:16])
    tracker.add(graph, 5, tensor[8:])
    tracker.map_tensors_by_use(graph, 2, 2)
    per_tile = graph.get_tile_mapping(tensor)
    assert per_tile[1] == [Interval(0, 12)]
    assert per_tile[5] == [Interval(12, 24)]


def test_map_by_use_extends(graph):
    """Unused elements go with their neighbours, on request."""
    tensor = graph.add_variable(tr.FLOAT, [24])
    tracker = poputil.TensorUseTracker(8)
    tracker.add(graph, 2, tensor[4:8])
    tracker.add(graph, 3, tensor[12:16])
    tracker.map_tensors_by_use(graph, 2, 2, extend_partial_usage=True)
    mapping = graph.get_tile_mapping(tensor)
    assert (mapping[2], mapping[3]) == ([Interval(0, 12)], [Interval(12, 24)])


def test_map_by_use_halos(graph):
    """A shared region beside one used by fewer of the same tiles goes where that goes."""
    tensor = graph.add_variable(tr.FLOAT, [24])
    tracker = poputil.TensorUseTracker(8)
    tracker.add(graph, 1, tensor[:16])
    tracker.add(graph, 5, tensor[8:])
    method = poputil.MappingMethod.OPTIMIZE_HALO_REGIONS
    tracker.map_tensors_by_use(graph, 2, 2, method=method)
    assert graph.get_tile_mapping(tensor)[1] == [Interval(0, 16)]


def test_broadcast_operand(graph):
    """A bias lies on the tiles that hold its channel."""
    full = graph.add_variable(tr.FLOAT, [4, 6, 8])
    for channel in range(6):
        graph.set_tile_mapping(full[:, channel], channel)
    bias = poputil.create_broadcast_operand(graph, full, tr.FLOAT, 1)
    assert graph.get_tile_mapping(bias).tile.tolist() == list(range(6))
    unmapped = graph.add_variable(tr.FLOAT, [4, 6])
    linear = poputil.create_broadcast_operand(graph, unmapped, tr.FLOAT, 0)
    assert graph.get_tile_mapping(linear).tile.tolist() == [0]


def test_broadcast_operand_of_innermost_dimension(graph):
    """Uses are found alike where the dimension lies innermost, by intervals of any length."""
    full = graph.add_variable(tr.FLOAT, [5, 6])
    for tile, (low, high) in enumerate([(0, 4), (4, 9), (9, 10), (10, 24), (24, 30)]):
        graph.set_tile_mapping(full.flatten()[low:high], tile)
    bias = poputil.create_broadcast_operand(graph, full, tr.FLOAT, 1)
    tiles_of = [{3, 4}] * 6
    for tile, (low, high) in enumerate([(0, 4), (4, 9), (9, 10)]):
        for place in range(low, high):
            tiles_of[place % 6] = tiles_of[place % 6] | {tile}
    mapping = graph.get_tile_mapping(bias)
    for begin, end, tile in zip(mapping.begin, mapping.end, mapping.tile, strict=True):
        assert all(tile in tiles_of[channel] for channel in range(begin, end))


def test_dim_is_split(graph):
    """A dimension is split if a line along it lies on two tiles."""
    tensor = graph.add_variable(tr.FLOAT, [2, 3])
    graph.set_tile_mapping(tensor[0], 0)
    graph.set_tile_mapping(tensor[1], 1)
    mapping = graph.get_tile_mapping(tensor)
    assert poputil.dim_is_split_over_tiles(tensor, mapping, 0)
    assert not poputil.dim_is_split_over_tiles(tensor, mapping, 1)
    assert not poputil.dim_is_split_over_ipus(graph, tensor, 0)


def test_broadcasting(graph):
    """Shapes broadcast as in NumPy, as views; those that do not fit are refused."""
    a, b = graph.add_variable(tr.FLOAT, [4, 1]), graph.add_variable(tr.FLOAT, [3])
    assert [t.shape for t in poputil.broadcast_to_match(a, b)] == [(4, 3), (4, 3)]
    assert [t.shape for t in poputil.expand_to_match_ranks(a, b)] == [(4, 1), (1, 3)]
    assert poputil.can_broadcast_to_match(a, b)
    assert not poputil.can_broadcast_to_match(graph.add_variable(tr.FLOAT, [2]), b)
    view = poputil.broadcast_view(b, (2, 3))
    assert (view.addresses()[0] == view.addresses()[1]).all()
    with pytest.raises(PoplibsError, match=r"\[3\] cannot be broadcast to \[3, 1\]"):
        poputil.broadcast_view(b, (3, 1))


def _rebuilt(pattern, begin: np.ndarray, end: np.ndarray) -> list[int]:
    """The view's elements in intervals, from the parts of a pattern's vector."""
    vector = pattern.vector.addresses()
    parts = []
    for a, b, x, y in zip(begin, end, *pattern.part(begin, end), strict=True):
        part, n = vector[x:y], int(b - a)
        is_inner = pattern.is_inner
        parts.append(np.tile(part, n // len(part)) if is_inner else np.repeat(part, n // len(part)))
    return np.concatenate(parts).tolist()


@pytest.mark.parametrize("shape", [(3, 1), (4,), (2, 1, 1), (1, 3, 1), (2, 3, 1)])
def test_patterns_rebuild_the_view(graph, shape):
    """Cut at its rows, a pattern's parts repeat to exactly what the view holds."""
    small = graph.add_variable(tr.FLOAT, shape)
    view = poputil.broadcast_view(small, (2, 3, 4))
    pattern = poputil.pattern_of(view)
    begin, end = np.array([0, 5, 17]), np.array([5, 17, 24])
    _, low, high = poputil.cut_rows(begin, end, [pattern])
    assert (int(low[0]), int(high[-1])) == (0, 24)
    assert (low[1:] == high[:-1]).all()
    assert _rebuilt(pattern, low, high) == view.addresses().ravel().tolist()


@pytest.mark.parametrize("is_inner", [False, True])
def test_patterns_of_uneven_blocks_rebuild_the_view(graph, is_inner):
    """Tiles with rows of four columns each, of which the last tile has fewer, show what repeats."""
    rows, columns = graph.add_variable(tr.FLOAT, [5, 1]), graph.add_variable(tr.FLOAT, [8])
    whole = poputil.broadcast_view(columns if is_inner else rows, (5, 8))
    blocks = [whole[r, c] for r in (slice(0, 3), slice(3, 5)) for c in (slice(0, 4), slice(4, 8))]
    view = tr.concat([block.flatten() for block in blocks])
    pattern = pattern_of_pieces(view)
    assert (pattern.n_cols, pattern.vector.n_elems) == (4, 16 if is_inner else 10)
    begin, end = np.array([0, 2, 15, 26]), np.array([2, 15, 26, 40])
    _, low, high = poputil.cut_rows(begin, end, [pattern])
    assert (low[1:] == high[:-1]).all()
    assert _rebuilt(pattern, low, high) == view.addresses().tolist()


def test_pieces_without_equal_rows_have_no_pattern(graph):
    """Rows of different lengths, single elements and plain vectors in pieces repeat no vector."""
    vector = graph.add_variable(tr.FLOAT, [12])
    short, long = vector[:1].broadcast(3, 0), vector[1:2].broadcast(4, 0)
    for parts in ([short, long], [vector[:4], long], [vector[6:], vector[:6]], [vector[:4:2]] * 2):
        assert pattern_of_pieces(tr.concat(parts)) is None
    assert pattern_of_pieces(vector) is None


def test_clone_in_order(graph):
    """A clone of a permuted or grouped view has its tile map and its order in memory."""
    stored = graph.add_variable(tr.FLOAT, [2, 5, 4], mapping="linear")
    graph.set_tile_mapping(stored[1], 3)
    for view in (stored.dim_shuffle([2, 0, 1]), stored.dim_shuffle([0, 2, 1]).reshape([8, 5])):
        clone = poputil.clone_in_order(graph, view)
        assert clone.shape == view.shape
        assert graph.get_tile_mapping(clone) == graph.get_tile_mapping(view)
        mine, theirs = (np.argsort(t.addresses().ravel()) for t in (clone, view))
        assert (mine == theirs).all()


def test_repeats_of_moved_pieces(graph):
    """Views of pieces repeat an element or not wherever the pieces are."""
    first, second = (graph.add_variable(tr.FLOAT, [12], mapping="linear") for _ in range(2))
    table, ids = first.variables, {first.variable_ids()[0]: second.variable_ids()[0]}
    for parts in ([first[6:], first[:6]], [first[3:9], first[:6]]):
        whole = tr.concat(parts)
        pieces = moved_pieces(whole.pieces, 4, table, ids)
        moved = Tensor(table, tr.FLOAT, 0, whole.shape, whole.strides, pieces)
        assert moved.variable_ids() == second.variable_ids()
        for view in (
            moved,
            moved[2:5],
            moved.reshape([3, 4]).transpose(),
            moved[:1].broadcast(2, 0),
        ):
            elements = view.addresses().ravel().tolist()
            assert poputil.repeats_elements(view) == (len(set(elements)) < len(elements))


def test_memory_order(graph):
    """Others follow a tensor into the order of its memory."""
    stored = graph.add_variable(tr.FLOAT, [2, 5, 4])
    view = stored.dim_shuffle([0, 2, 1]).reshape([8, 5])
    other = graph.add_variable(tr.FLOAT, [8, 5])
    flat, (moved,) = poputil.in_memory_order(view, [other])
    assert flat.is_contiguous
    pairs = dict(zip(view.addresses().ravel(), other.addresses().ravel(), strict=True))
    assert [pairs[a] for a in flat.addresses()] == moved.addresses().tolist()


def test_grouped_layouts_are_strided(graph):
    """A grouped layout is found as strides, and a broadcast beside it keeps its pattern."""
    stored = graph.add_variable(tr.FLOAT, [2, 3, 5, 4])
    view = stored.dim_shuffle([0, 1, 3, 2]).reshape([2, 12, 5])
    strided = poputil.factored(view)
    assert strided.pieces is None
    assert (strided.addresses().ravel() == view.addresses().ravel()).all()
    bias = poputil.broadcast_view(graph.add_variable(tr.FLOAT, [12, 1]), (2, 12, 5))
    simple, (moved, same) = poputil.simplified(view, [bias, view])
    assert simple.is_contiguous
    assert same.is_contiguous
    assert moved.pieces is None
    scrambled = tr.concat([stored[1], stored[0, :, 1:], stored[0, :, :1]], 1)
    assert poputil.factored(scrambled) is None


def test_groupings(graph):
    """Groups that lie side by side are found from the innermost outwards."""
    stored = graph.add_variable(tr.HALF, [2, 4, 16])
    tensor = stored.dim_shuffle([0, 2, 1]).reshape([32, 4])
    assert poputil.detect_dim_groupings(tensor) == [(0, 16), (1, 4), (0, 2)]
    assert poputil.detect_innermost_grouping(graph, tensor.transpose()) == 16
    assert poputil.detect_innermost_grouping(graph, tensor) == 1


def test_partitionable_tensor(graph):
    """Each part of a partition is one contiguous region."""
    tensor = poputil.create_partitionable_tensor(graph, tr.FLOAT, [5, 7], [2, 3])
    assert tensor.shape == (5, 7)
    assert len(np.unique(tensor.addresses())) == 35
    for rows in (slice(0, 3), slice(3, 5)):
        for cols in (slice(0, 3), slice(3, 6), slice(6, 7)):
            addresses = np.sort(tensor[rows, cols].addresses().ravel())
            assert addresses[-1] - addresses[0] == len(addresses) - 1
    with pytest.raises(PoplibsError, match="does not partition"):
        poputil.create_partitionable_tensor(graph, tr.FLOAT, [5, 7], [2])


def test_index_arithmetic(graph):
    """Flat indices and factored dimensions go there and back."""
    assert poputil.flatten_index([3, 4], [2, 1]) == 9
    assert poputil.unflatten_index([3, 4], 9) == [2, 1]
    tensor = graph.add_variable(tr.FLOAT, [2, 6, 8])
    factored = poputil.factor_dims(tensor, [3, 4], 1)
    assert factored.shape == (2, 2, 2, 3, 4)
    assert poputil.unfactor_dims(factored, 2, 1) == tensor
    with pytest.raises(PoplibsError, match="pairs of dimensions from 1 on are not among"):
        poputil.unfactor_dims(factored, 2**62, 1)
    with pytest.raises(PoplibsError, match="no factor 5"):
        poputil.factor_dims(tensor, [5], 1)


def test_host_values(graph):
    """Halves on the host, casts that lose, metadata, vertex names."""
    assert poputil.cast_to_device_half_value(0.1) == float(np.float16(0.1))
    assert poputil.check_accuracy_when_cast(0.5, tr.HALF, 1e-6)
    assert not poputil.check_accuracy_when_cast(0.1, tr.HALF, 1e-6)
    assert not poputil.check_accuracy_when_cast(1e6, tr.HALF, 1.0)
    assert poputil.create_constant_metadata_tensor(graph, tr.QuarterFormat.F152, 3).n_elems == 1
    assert poputil.create_variable_metadata_tensor(graph, tr.QuarterFormat.F143).n_elems == 1
    assert poputil.template_vertex("popops::Fill", tr.HALF, True) == "popops::Fill<half,true>"


def test_clone_to_ipu():
    """Tiles keep their number within the IPU; contents follow, repeated elements once."""
    graph = tr.Graph(tr.IPUModel("bow", n_ipus=2, tiles_per_ipu=4).create_device())
    x = graph.add_variable(tr.FLOAT, [6], "x")
    graph.set_tile_mapping(x[:3], 1)
    graph.set_tile_mapping(x[3:], 3)
    clone = poputil.clone_to_ipu(graph, x, 1)
    assert graph.get_tile_mapping(clone).tile.tolist() == [5, 7]
    sequence = Sequence()
    there = poputil.copy_to_ipu(graph, x.broadcast(2), sequence, 1)
    graph.create_host_write("x", x)
    graph.create_host_read("there", there)
    engine = tr.Engine(graph, sequence).load()
    engine.write_tensor("x", np.arange(6, dtype=np.float32))
    engine.run()
    assert engine.read_tensor("there").tolist() == [*range(6), *range(6)]
    with pytest.raises(PoplibsError, match="IPU 2 does not exist: the graph has 2"):
        poputil.clone_to_ipu(graph, x, 2)


def test_clones_and_functions(graph):
    """Duplicates copy, clones in a virtual graph keep tile numbers, functions copy arguments."""
    x = graph.add_variable(tr.FLOAT, [6], "x", mapping=1)
    sequence = Sequence()
    twin = poputil.duplicate(graph, x, sequence)

    def build(tensors, steps):
        return poputil.duplicate(graph, tensors[0].reverse(), steps)

    reverse = poputil.TensorFunction(graph, [poputil.input_arg(x)], build, "reverse")
    first = reverse.result([twin], sequence)
    second = reverse.result([first], sequence)
    graph.create_host_write("x", x)
    for name, tensor in (("first", first), ("second", second)):
        graph.create_host_read(name, tensor)
    engine = tr.Engine(graph, sequence).load()
    engine.write_tensor("x", np.arange(6, dtype=np.float32))
    engine.run()
    assert engine.read_tensor("first").tolist() == [5, 4, 3, 2, 1, 0]
    assert engine.read_tensor("second").tolist() == [0, 1, 2, 3, 4, 5]
    with pytest.raises(PoplibsError, match="reverse takes 2 arguments, got 1"):
        reverse([x], sequence)
    half = graph.create_virtual_graph(4, 8)
    other = poputil.clone_to_graph(graph, half, x)
    assert graph.get_tile_mapping(other).tile.tolist() == [5]
    far = graph.add_variable(tr.FLOAT, [6], "far", mapping=7)
    with pytest.raises(PoplibsError, match="on 8 tiles, the other graph has 4"):
        poputil.clone_to_graph(graph, half, far)
    wide = poputil.clone_and_expand_aliasing(graph, x.broadcast(2))
    assert not wide.contains_aliases
