"""Views against NumPy: every tensor is checked against an array of the addresses it should have."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tremula import FLOAT, HALF, INT, UNSIGNED_INT, Graph, Interval, IPUModel, append, concat
from tremula.base.types import SHORT, UNSIGNED_SHORT
from tremula.poplar.tensors.structure import (
    TensorRearranger,
    reorder_to_simplify,
    sorted_contiguous_regions,
    unbroadcast,
)
from tremula.poplar.tensors.tensor import concat_rows

MAX_ELEMS = 200  # operations that grow a view stop here
TWINS = {FLOAT: INT, INT: UNSIGNED_INT, UNSIGNED_INT: FLOAT, HALF: SHORT, SHORT: UNSIGNED_SHORT}
TWINS[UNSIGNED_SHORT] = HALF


class Pair:
    """A tensor and the array of element addresses that it should have."""

    def __init__(self, tensor, addresses):
        self.tensor, self.addresses = tensor, np.asarray(addresses)

    @property
    def shape(self):
        return self.addresses.shape

    @property
    def flat(self):
        return self.addresses.ravel()


class Variables:
    """A graph with variables of one element size, each as a Pair."""

    def __init__(self, type, shapes):
        self.graph = Graph(IPUModel("ipu2", tiles_per_ipu=8).create_device())
        self.pairs = []
        for i, shape in enumerate(shapes):
            tensor = self.graph.add_variable(type, shape, f"v{i}")
            base = self.graph.state.variables.base_bytes[i] // type.n_bytes
            self.pairs.append(Pair(tensor, base + np.arange(tensor.n_elems).reshape(shape)))
        self.spare = Pair(
            self.graph.add_variable(type, [MAX_ELEMS], "spare"),
            self.graph.state.variables.base_bytes[-1] // type.n_bytes + np.arange(MAX_ELEMS),
        )


# -- operations: each draws its arguments and applies them to both sides ---------------------------


def a_dim(draw, pair, extra=0):
    return draw(st.integers(0, len(pair.shape) - 1 + extra))


def bounds(draw, size):
    low = draw(st.integers(0, size))
    return low, draw(st.integers(low, size))


def index(draw, pair, _):
    sizes = pair.shape[: draw(st.integers(1, len(pair.shape)))]
    if 0 in sizes:
        return pair
    picked = tuple(draw(st.integers(-n, n - 1)) for n in sizes)
    tensor = pair.tensor[picked[0]] if len(picked) == 1 else pair.tensor.index(picked)
    return Pair(tensor, pair.addresses[picked])


def slice_dim(draw, pair, _):
    dim = a_dim(draw, pair)
    low, high = bounds(draw, pair.shape[dim])
    keep = (slice(None),) * dim + (slice(low, high),)
    form = draw(st.sampled_from(["ints", "interval", "lists"]))
    if form == "ints":
        return Pair(pair.tensor.slice(low, high, dim), pair.addresses[keep])
    if form == "interval":
        return Pair(pair.tensor.slice(Interval(low, high), dim=dim), pair.addresses[keep])
    cuts = [bounds(draw, n) for n in pair.shape]
    tensor = pair.tensor.slice([a for a, _ in cuts], [b for _, b in cuts])
    return Pair(tensor, pair.addresses[tuple(slice(a, b) for a, b in cuts)])


def python_slices(draw, pair, _):
    parts = []
    for n in pair.shape[: draw(st.integers(1, len(pair.shape)))]:
        ends = st.none() | st.integers(-n - 2, n + 2)
        step = draw(st.none() | st.sampled_from([-3, -2, -1, 1, 2, 3]))
        parts.append(slice(draw(ends), draw(ends), step))
    if draw(st.booleans()) and len(parts) < len(pair.shape):
        parts = [*parts[:1], Ellipsis, *parts[1:]]
    return Pair(pair.tensor[tuple(parts)], pair.addresses[tuple(parts)])


def reshape(draw, pair, _):
    left, shape = pair.addresses.size, []
    while left > 1 and len(shape) < 3:
        size = draw(st.sampled_from([d for d in range(1, left + 1) if left % d == 0]))
        shape.append(size)
        left //= size
    shape.append(left)
    return Pair(pair.tensor.reshape(shape), pair.addresses.reshape(shape))


def reshape_partial(draw, pair, _):
    dim = a_dim(draw, pair)
    tensor = pair.tensor.reshape_partial(dim, dim + 1, [1, pair.shape[dim], 1])
    shape = (*pair.shape[:dim], 1, pair.shape[dim], 1, *pair.shape[dim + 1 :])
    return Pair(tensor, pair.addresses.reshape(shape))


def flatten(draw, pair, _):
    low, high = bounds(draw, len(pair.shape))
    merged = int(np.prod(pair.shape[low:high], dtype=np.int64))
    shape = (*pair.shape[:low], merged, *pair.shape[high:])
    return Pair(pair.tensor.flatten(low, high), pair.addresses.reshape(shape))


def dim_shuffle(draw, pair, _):
    order = draw(st.permutations(range(len(pair.shape))))
    return Pair(pair.tensor.dim_shuffle(order), pair.addresses.transpose(order))


def dim_roll(draw, pair, _):
    dim, to = a_dim(draw, pair), a_dim(draw, pair)
    return Pair(pair.tensor.dim_roll(dim, to), np.moveaxis(pair.addresses, dim, to))


def dim_shuffle_partial(draw, pair, _):
    n = draw(st.integers(0, len(pair.shape)))
    source = draw(st.permutations(range(len(pair.shape))))[:n]
    destination = draw(st.permutations(range(len(pair.shape))))[:n]
    tensor = pair.tensor.dim_shuffle_partial(source, destination)
    return Pair(tensor, np.moveaxis(pair.addresses, source, destination))


def transpose(_, pair, __):
    if len(pair.shape) != 2:
        return pair
    return Pair(pair.tensor.transpose(), pair.addresses.T)


def expand(draw, pair, _):
    dim = a_dim(draw, pair, extra=1)
    return Pair(pair.tensor.expand([dim]), np.expand_dims(pair.addresses, dim))


def squeeze(draw, pair, _):
    ones = [d for d, n in enumerate(pair.shape) if n == 1]
    if draw(st.booleans()):
        return Pair(pair.tensor.squeeze(), pair.addresses.squeeze())
    chosen = tuple(ones[:1])
    return Pair(pair.tensor.squeeze(chosen), pair.addresses.squeeze(chosen))


def reverse(draw, pair, _):
    dim = a_dim(draw, pair)
    return Pair(pair.tensor.reverse(dim), np.flip(pair.addresses, dim))


def sub_sample(draw, pair, _):
    dim, step = a_dim(draw, pair), draw(st.integers(1, 4))
    keep = (slice(None),) * dim + (slice(None, None, step),)
    return Pair(pair.tensor.sub_sample(step, dim), pair.addresses[keep])


def upsample(draw, pair, _):
    dim, scale = a_dim(draw, pair), draw(st.integers(0, 3))
    return Pair(pair.tensor.upsample(scale, dim), np.repeat(pair.addresses, scale, dim))


def broadcast(draw, pair, _):
    dim, count = a_dim(draw, pair), draw(st.integers(0, 3))
    copies = [pair.addresses] * count or [np.take(pair.addresses, [], dim)]
    return Pair(pair.tensor.broadcast(count, dim), np.concatenate(copies, dim))


def reinterpret(_, pair, __):
    return Pair(pair.tensor.reinterpret(TWINS[pair.tensor.type]), pair.addresses)


def join(draw, pair, spare):
    """Concat of the view, a part of itself, and elements of another variable."""
    dim = a_dim(draw, pair)
    low, high = bounds(draw, pair.shape[dim])
    keep = (slice(None),) * dim + (slice(low, high),)
    part = Pair(pair.tensor.slice(low, high, dim), pair.addresses[keep])
    n = pair.addresses.size
    other = Pair(
        spare.tensor.reinterpret(pair.tensor.type)[:n].reshape(pair.shape),
        spare.addresses[:n].reshape(pair.shape),
    )
    parts = draw(st.lists(st.sampled_from([pair, part, other]), min_size=1, max_size=3))
    tensor = concat([p.tensor for p in parts], dim)
    return Pair(tensor, np.concatenate([p.addresses for p in parts], dim))


def append_one(draw, pair, _):
    dim = a_dim(draw, pair)
    if pair.shape[dim] == 0:
        return pair
    last = (slice(None),) * dim + (-1,)
    tensor = append(pair.tensor, pair.tensor[last], dim)
    extra = np.expand_dims(pair.addresses[last], dim)
    return Pair(tensor, np.concatenate([pair.addresses, extra], dim))


def several_slices(draw, pair, _):
    dim = a_dim(draw, pair)
    cuts = [bounds(draw, pair.shape[dim]) for _ in range(2)]
    intervals = [Interval(*c) for c in cuts]
    keep = [pair.addresses[(slice(None),) * dim + (slice(*c),)] for c in cuts]
    joined = pair.tensor.slices([intervals], dim)[0]
    one = pair.tensor.slices(intervals, dim)[1]
    return draw(st.sampled_from([Pair(joined, np.concatenate(keep, dim)), Pair(one, keep[1])]))


SHRINKING = [index, slice_dim, python_slices, sub_sample, several_slices]
ARRANGING = [
    reshape, reshape_partial, flatten, dim_shuffle, dim_shuffle_partial, dim_roll, transpose,
    expand, squeeze, reverse, reinterpret,
]  # fmt: skip
GROWING = [upsample, broadcast, join, append_one]


@st.composite
def views(draw, types=(FLOAT, HALF, INT)):
    """(variables, pair): a random chain of view operations on random variables."""
    type = draw(st.sampled_from(types))
    shape = st.lists(st.integers(1, 5), min_size=1, max_size=3)
    variables = Variables(type, draw(st.lists(shape, min_size=1, max_size=3)))
    return variables, draw_view(draw, variables)


def draw_view(draw, variables):
    pair = draw(st.sampled_from(variables.pairs))
    for _ in range(draw(st.integers(0, 7))):
        if not pair.shape:
            pair = Pair(pair.tensor.expand([0]), pair.addresses[None])
        is_small = pair.addresses.size * 4 <= MAX_ELEMS
        is_flat = len(pair.shape) < 6  # reshapes may add dimensions
        choices = SHRINKING + (ARRANGING if is_flat else [flatten]) + (GROWING if is_small else [])
        pair = draw(st.sampled_from(choices))(draw, pair, variables.spare)
    return pair


# -- claims ----------------------------------------------------------------------------------------


@pytest.mark.slow
@settings(max_examples=300)
@given(views())
def test_views_are_numpy_indexing(view):
    """Any chain of view operations addresses the elements NumPy's indexing does."""
    _, pair = view
    assert pair.tensor.shape == pair.shape
    assert (pair.tensor.rank, pair.tensor.n_elems) == (pair.addresses.ndim, pair.addresses.size)
    assert np.array_equal(pair.tensor.addresses(), pair.addresses)


@pytest.mark.slow
@settings(max_examples=200)
@given(views())
def test_properties_against_brute_force(view):
    """is_contiguous, contains_aliases and the regions are what the addresses say."""
    variables, pair = view
    tensor, flat = pair.tensor, pair.flat
    joins = np.diff(flat) == 1
    assert tensor.is_contiguous == bool(joins.all())
    assert tensor.contains_aliases == (len(np.unique(flat)) < len(flat))
    assert tensor.is_parallel_writeable == (not tensor.contains_aliases)
    cuts = [0, *(np.flatnonzero(~joins) + 1).tolist(), len(flat)] if len(flat) else []
    wanted = [Interval(a, b) for a, b in itertools.pairwise(cuts)]
    assert tensor.contiguous_regions() == wanted
    bases = [b // tensor.type.n_bytes for b in variables.graph.state.variables.base_bytes]
    listed = [bases[v] + i for v, part in tensor.var_regions() for i in range(part.begin, part.end)]
    assert listed == flat.tolist()
    begin, end = (column // tensor.type.n_bytes for column in tensor.covered_intervals())
    covered = {i for a, b in zip(begin, end, strict=True) for i in range(a, b)}
    assert covered == set(flat.tolist())


@pytest.mark.slow
@settings(max_examples=150)
@given(st.data())
def test_intersection_and_equality_against_sets(data):
    """Two views intersect when their address sets do, and are equal when all addresses are."""
    variables, first = data.draw(views())
    second = draw_view(data.draw, variables)
    shared = np.intersect1d(first.flat, second.flat)
    assert first.tensor.intersects_with(second.tensor) == bool(len(shared))
    same = (
        first.tensor.type == second.tensor.type
        and first.shape == second.shape
        and np.array_equal(first.addresses, second.addresses)
    )
    assert (first.tensor == second.tensor) == same
    assert not same or hash(first.tensor) == hash(second.tensor)


@pytest.mark.slow
@settings(max_examples=150)
@given(views())
def test_rearranger_sorts_and_undoes(view):
    """TensorRearranger puts regions in memory order, and undo gives the view back."""
    variables, pair = view
    if not pair.tensor.n_elems:
        return
    rearranger = TensorRearranger(pair.tensor)
    ordered = rearranger.rearrange(pair.tensor)
    assert np.array_equal(np.sort(pair.flat), np.sort(ordered.addresses()))
    assert pair.tensor.contains_aliases or np.all(np.diff(ordered.addresses()) > 0)
    assert np.array_equal(rearranger.undo(ordered).addresses(), pair.flat)
    other = variables.spare.tensor[: pair.tensor.n_elems]
    simple, (moved,) = reorder_to_simplify(pair.tensor, [other])
    assert simple == ordered
    assert np.array_equal(rearranger.undo(moved).addresses(), other.addresses())


@pytest.mark.slow
@settings(max_examples=150)
@given(views(), st.data())
def test_sorted_contiguous_regions(view, data):
    """Groups hold every given element once, in memory order, each group without a hole."""
    _, pair = view
    flat, n = pair.flat, pair.tensor.n_elems
    cuts = sorted(data.draw(st.lists(st.integers(0, n), max_size=6)))
    intervals = [Interval(a, b) for a, b in zip(cuts[::2], cuts[1::2], strict=False)]
    wanted = np.concatenate([flat[i.begin : i.end] for i in intervals] or [flat[:0]])
    unique = sorted_contiguous_regions(pair.tensor, intervals, remove_aliased=True)
    groups = [np.concatenate([flat[i.begin : i.end] for i in group]) for group in unique]
    assert np.concatenate([*groups, flat[:0]]).tolist() == np.unique(wanted).tolist()
    assert all((np.diff(group) == 1).all() for group in groups)
    everything = sorted_contiguous_regions(pair.tensor, intervals)
    listed = [flat[i.begin : i.end] for group in everything for i in group]
    assert sorted(np.concatenate([*listed, flat[:0]]).tolist()) == np.sort(wanted).tolist()


def test_a_scalar_has_one_order_of_dimensions():
    """Shuffling the dimensions of a scalar by the empty permutation gives the scalar."""
    graph = Graph(IPUModel("bow", tiles_per_ipu=2).create_device())
    assert graph.add_variable(FLOAT, [], "x").dim_shuffle([]).shape == ()


def test_unbroadcast_drops_repetition():
    """unbroadcast keeps one of each repeated dimension and leaves others alone."""
    graph = Graph(IPUModel("ipu2", tiles_per_ipu=4).create_device())
    x = graph.add_variable(FLOAT, [3, 1])
    wide = x.expand([1])[:, 0].broadcast(5, 1)
    assert wide.shape == (3, 5)
    assert unbroadcast(wide) == x
    assert unbroadcast(x[0, 0]) == x[0, 0]


def test_a_view_of_a_billion_elements_costs_nothing():
    """Views never touch elements: slicing and shuffling a huge tensor is immediate."""
    graph = Graph(IPUModel("ipu2", tiles_per_ipu=4).create_device())
    x = graph.add_variable(FLOAT, [1000, 1000, 1000])
    view = x.dim_shuffle([2, 0, 1]).reshape([1000, 1000, 1000])[5].reverse(1)[7:9, ::250]
    wanted = np.ravel_multi_index(np.ix_([7, 8], [999, 749, 499, 249], [5]), x.shape)[..., 0]
    assert np.array_equal(view.addresses() - x.offset, wanted)


def test_iteration_and_length():
    """len is the outermost size, and iterating gives its parts."""
    graph = Graph(IPUModel("ipu2", tiles_per_ipu=4).create_device())
    x = graph.add_variable(FLOAT, [3, 2], "x")
    assert len(x) == 3
    assert [part == x[i] for i, part in enumerate(x)] == [True] * 3
    assert repr(x[1]) == "Tensor(float, [2], x)"


@pytest.mark.parametrize("part", [np.int64(1), np.int32(-2)])
def test_numpy_integers_index(part):
    """NumPy integers index like Python's."""
    graph = Graph(IPUModel("ipu2", tiles_per_ipu=4).create_device())
    x = graph.add_variable(FLOAT, [3, 2])
    assert x[part] == x[int(part)]
    assert x.slice(np.int64(1), np.int64(3)) == x[1:]


def test_rows_are_joined_in_few_runs():
    """A border along the last dimension adds a run to each row, not one to each element."""
    graph = Graph(IPUModel("bow").create_device())
    x = graph.add_variable("float", [3, 4, 50], mapping=0)
    border = graph.add_variable("float", [1], mapping=0).reshape([1, 1, 1])
    sides = [border.broadcast(n, 2).broadcast(4, 1).broadcast(3, 0) for n in (1, 2)]
    joined = concat_rows([sides[0], x, sides[1]])
    parts = [t.addresses() for t in (sides[0], x, sides[1])]
    np.testing.assert_array_equal(joined.addresses(), np.concatenate(parts, 2))
    assert len(joined.runs().start) == 3 * 3 * 4
    turned = concat_rows([x.dim_shuffle([0, 2, 1])] * 2)
    np.testing.assert_array_equal(turned.addresses()[:, :, 4:], x.addresses().transpose(0, 2, 1))
