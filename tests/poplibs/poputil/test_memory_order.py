"""Orders in memory: the same as sorting every address, for blocks, pieces and strided views."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

import tremula as tr
from tremula.poplar.tensors.blocks import BlockCuts, BlockPieces
from tremula.poplibs import poputil
from tremula.poplibs.popops.slicing.row_blocks import add_blocked_matrix
from tremula.poplibs.poputil.layout import is_contiguous_along
from tremula.poplibs.poputil.memory_order import blocks_of, order_of

CUTS = st.lists(st.integers(1, 5), min_size=1, max_size=4).map(
    lambda sizes: np.concatenate(([0], np.cumsum(sizes)))
)


def _graph() -> tr.Graph:
    return tr.Graph(tr.IPUModel("bow", tiles_per_ipu=4).create_device())


@given(CUTS, CUTS, st.booleans())
def test_order_is_that_of_the_addresses(rows, columns, is_turned):
    """A blocked matrix in memory order has ascending addresses; others of its shape follow."""
    graph = _graph()
    matrix = add_blocked_matrix(graph, tr.FLOAT, BlockCuts(rows, columns), "blocks")
    plain = graph.add_variable(tr.FLOAT, matrix.shape, "plain")
    alike = add_blocked_matrix(graph, tr.FLOAT, BlockCuts(rows, columns), "alike")
    if is_turned:
        matrix, plain, alike = (t.transpose() for t in (matrix, plain, alike))
    order = np.argsort(matrix.addresses().ravel())
    flat, others = poputil.in_memory_order(matrix, [plain, alike])
    assert flat.is_contiguous
    assert others[1].is_contiguous
    for view, got in ((matrix, flat), (plain, others[0]), (alike, others[1])):
        assert (got.addresses() == view.addresses().ravel()[order]).all()


@given(CUTS, CUTS)
def test_clone_of_blocks_is_blocks(rows, columns):
    """A clone has the order in memory and the tiles of its original, and is a pattern, too."""
    graph = _graph()
    cuts = BlockCuts(rows, columns)
    matrix = add_blocked_matrix(graph, tr.FLOAT, cuts, "blocks")
    graph.map_linearly(matrix.flatten(), 1, 1)
    clone = poputil.clone_in_order(graph, matrix, "clone", type=tr.HALF)
    moved = clone.addresses() - clone.addresses().min()
    assert (moved == matrix.addresses() - matrix.addresses().min()).all()
    assert graph.get_tile_mapping(clone) == graph.get_tile_mapping(matrix)
    assert blocks_of(clone) == blocks_of(matrix)
    assert not poputil.repeats_elements(clone)
    assert poputil.is_writeable(clone)
    if isinstance(matrix.pieces, BlockPieces):
        assert poputil.layout_key(clone) == poputil.layout_key(matrix)


def test_alike_views_share_an_order():
    """Views that lie alike in different variables get one order, each with its own addresses."""
    graph = _graph()
    views = []
    for name in ("one", "other"):
        whole = graph.add_variable(tr.FLOAT, [6, 4], name, mapping="linear")
        views.append(tr.concat([whole[:, 2:], whole[:, :2]], 1))
    first, second = (order_of(view) for view in views)
    assert first is second
    for view in views:
        flat = first.applied(view)
        assert flat.is_contiguous
        assert (flat.addresses() == np.sort(view.addresses().ravel())).all()


def test_repeats_in_blocks_are_seen():
    """A view that repeats rows of a blocked matrix is not writeable."""
    graph = _graph()
    cuts = BlockCuts(np.array([0, 2, 5]), np.array([0, 3, 4]))
    matrix = add_blocked_matrix(graph, tr.FLOAT, cuts, "blocks")
    assert poputil.repeats_elements(matrix.broadcast(2))
    assert not poputil.is_writeable(matrix.broadcast(2))
    assert not poputil.repeats_elements(matrix[1:4, ::2])


def test_contiguous_along_a_dimension_is_said_by_memory():
    """A matrix of channels in blocks of eight, seen channels first: strides say otherwise."""
    graph = _graph()
    stored = graph.add_variable(tr.FLOAT, [2, 6, 8], "stored")
    seen = tr.concat([stored[0].transpose(), stored[1].transpose()])  # [16, 6], in pieces
    assert seen.strides == (6, 1)
    assert [is_contiguous_along(seen, d) for d in (0, 1)] == [True, False]
    plain = stored.reshape([12, 8])
    assert [is_contiguous_along(plain, d) for d in (0, 1)] == [False, True]
    assert not is_contiguous_along(plain[:1], 0)


@given(CUTS, CUTS, st.booleans(), st.booleans())
def test_a_duplicate_is_copied_as_it_lies(rows, columns, is_turned, is_flat):
    """The copy of a blocked matrix, turned or in one row, is one region, and shows what it did."""
    graph, sequence = _graph(), tr.Sequence()
    matrix = add_blocked_matrix(graph, tr.FLOAT, BlockCuts(rows, columns), "blocks")
    graph.map_linearly(matrix.flatten(), 1, 1)
    view = matrix.transpose() if is_turned else matrix
    view = view.flatten() if is_flat else view
    clone = poputil.duplicate(graph, view, sequence)
    assert clone.shape == view.shape
    moved = clone.addresses() - clone.addresses().min()
    assert (moved == view.addresses() - view.addresses().min()).all()
    assert graph.get_tile_mapping(clone) == graph.get_tile_mapping(view)
    (step,) = sequence.steps
    assert step.source_of_data.is_contiguous
    assert step.destination.is_contiguous
