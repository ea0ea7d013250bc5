"""Element-wise operations: forms, expressions, layouts, types, costs and refusals."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tremula as tr
from tests.poplibs.run_op import Call as OpCall
from tests.poplibs.run_op import laid_out, run_calls, run_op, small_graph
from tremula import FLOAT, HALF, INT, Sequence
from tremula.poplibs import popops, poputil
from tremula.poplibs.popops.elementwise import functions as elementwise
from tremula.poplibs.popops.elementwise.expr import (
    Cast,
    Const,
    ConstHalf,
    PlaceHolder,
    _1,
    _2,
    _3,
    exp,
    maximum,
    select,
)
from tremula.poplibs.popops.elementwise.operations import ELEMENT_OPS
from tremula.poplibs.registry import PoplibsError

RANDOM = np.random.default_rng(7)
X = RANDOM.standard_normal((5, 9)).astype(np.float32)
Y = RANDOM.standard_normal((5, 9)).astype(np.float32)


def on(expr, count=1):
    """`popops.map` of an expression as an operation on `count` tensors."""

    def function(graph, *tensors, sequence):
        return popops.map(graph, expr, list(tensors), sequence)

    return function


def test_every_operation_has_three_forms():
    """The written names are those of the table, each new, in place and with an output."""
    wanted = [n + s for n in ELEMENT_OPS for s in ("", "_in_place", "_with_output")]
    assert elementwise.__all__ == wanted
    assert all(getattr(popops, name).__name__ == name for name in wanted)
    assert all(getattr(popops.expr, name).__name__ == name for name in ELEMENT_OPS)


def test_in_place_and_with_output():
    """In place writes the first operand; with an output, a tensor that exists."""

    def both(graph, a, b, *, sequence):
        out = graph.add_variable(FLOAT, a.shape, "out", mapping="linear")
        popops.sub_with_output(graph, a, b, out, sequence)
        popops.mul_in_place(graph, a, b, sequence)
        popops.add_in_place(graph, a, 1.0, sequence)
        popops.maximum_in_place(graph, a, out, sequence)
        return a, out

    changed, out = run_op(both, [X, Y])
    assert (out == X - Y).all()
    assert (changed == np.maximum(X * Y + np.float32(1), X - Y)).all()


def test_numbers_on_either_side():
    """A number may stand for any operand but the one that is written."""

    def function(graph, a, *, sequence):
        return (
            popops.sub(graph, 2.0, a, sequence),
            popops.sub(graph, a, 2, sequence),
            popops.clamp(graph, a, -0.5, 0.5, sequence),
        )

    left, right, clamped = run_op(function, [X])
    assert (left == 2 - X).all()
    assert (right == X - 2).all()
    assert (clamped == np.clip(X, -0.5, 0.5)).all()


def test_expression_is_one_vertex_type():
    """A whole expression is one compute set; its common parts are computed once."""
    e = exp(_1)
    expr = e * e + select(_1, _2, _1 > _2) * 0.5 - maximum(_2, 0.0)
    (values,), report = run_calls([OpCall(on(expr), [X, Y], FLOAT)])
    expected = np.exp(X) ** 2 + np.where(X > Y, X, Y) * np.float32(0.5) - np.maximum(Y, 0)
    np.testing.assert_allclose(values[0], expected, rtol=1e-5)
    assert report.n_compute_sets == 1


def test_mixed_types_in_one_expression():
    """Casts and typed constants join types; comparisons give bools."""
    integers = RANDOM.integers(-9, 9, (5, 9)).astype(np.int32)
    expr = Cast(_1, HALF) * ConstHalf(0.5) + Cast(_2, HALF)
    (half,) = run_op(on(expr), [X, integers])
    assert half.dtype == np.float16
    wide = X.astype(np.float16) * np.float16(0.5) + integers.astype(np.float16)
    assert (half == wide).all()
    (flags,) = run_op(on((_1 > 0.0) & (_2 != 3)), [X, integers])
    assert (flags == ((X > 0) & (integers != 3))).all()


@settings(max_examples=12)
@given(seed=st.integers(0, 10_000), data=st.data())
def test_broadcasting_on_random_layouts(seed, data):
    """Whatever is broadcast, and wherever elements lie, the result is NumPy's, bit by bit."""
    shape = tuple(data.draw(st.lists(st.integers(1, 6), min_size=1, max_size=3)))
    shapes = [
        tuple(n if data.draw(st.booleans()) else 1 for n in shape)[data.draw(st.integers(0, 1)) :]
        for _ in range(2)
    ]
    random = np.random.default_rng(seed)
    arrays = [random.standard_normal(s).astype(np.float32) for s in (shape, *shapes)]
    (result,) = run_op(on(_1 * _2 + _3), arrays, seed=seed)
    assert (result == arrays[0] * arrays[1] + arrays[2]).all()


def in_blocks(graph, stored):
    """A [7, 12] view that lies block by block: rows by 3, 3 and 1, columns by 4."""
    bands, at = [], 0
    for n_rows in (3, 3, 1):
        blocks = [
            stored[at + 4 * n_rows * i :][: 4 * n_rows].reshape([n_rows, 4]) for i in range(3)
        ]
        bands.append(tr.concat(blocks, 1))
        at += 12 * n_rows
    return tr.concat(bands)


def test_broadcasts_over_uneven_blocks():
    """Rows and columns repeat as such where the last block has fewer rows than the others."""

    def function(graph, stored, column, row, *, sequence):
        graph.map_linearly(stored, min_elems=12, grain=12)
        return popops.map(graph, _1 * _2 + _3, [in_blocks(graph, stored), column, row], sequence)

    stored = RANDOM.standard_normal(84).astype(np.float32)
    column, row = (RANDOM.standard_normal(n).astype(np.float32) for n in ((7, 1), (12,)))
    (values,), report = run_calls([OpCall(function, [stored, column, row], FLOAT)])
    places = np.arange(84)
    bands = [part.reshape(3, -1, 4) for part in (places[:36], places[36:72], places[72:])]
    x = stored[np.concatenate([band.transpose(1, 0, 2).reshape(-1, 12) for band in bands])]
    assert (values[0] == x * column + row).all()
    forms = {row.codelet.rpartition(",")[2] for row in report.vertex_types if "map" in row.codelet}
    assert forms == {"VOI>"}


def test_half_rounds_after_each_operation():
    """Half arithmetic rounds every result, as a half does."""
    a = RANDOM.uniform(1, 2, 64).astype(np.float16)
    b = RANDOM.uniform(1, 2, 64).astype(np.float16)
    (result,) = run_op(on(_1 * _2 + _1), [a, b], HALF)
    assert (result == a * b + a).all()


def test_integers_wrap_inside_expressions():
    """An integer that overflows wraps before it is compared, as its type does."""
    big = np.array([2**31 - 1, 5], np.int32)
    (result,) = run_op(on((_1 + 1) > _1), [big], INT)
    assert result.tolist() == [False, True]


def test_output_is_mapped_like_the_operand_that_is_spread_best():
    """Among operands of the result's shape the one with the emptiest fullest tile is cloned."""
    graph = small_graph()
    heap = graph.add_variable(FLOAT, [64], "heap", mapping=3)
    spread = graph.add_variable(FLOAT, [64], "spread")
    graph.map_linearly(spread, min_elems=1)
    out = popops.add(graph, heap, spread, Sequence())
    assert graph.get_tile_mapping(out) == graph.get_tile_mapping(spread)
    row, column = (
        graph.add_variable(FLOAT, [1, 8], mapping=0),
        graph.add_variable(FLOAT, [8, 1], mapping=0),
    )
    linear = popops.add(graph, row, column, Sequence())
    assert graph.get_tile_mapping(linear).n_elems == 64


def test_output_keeps_the_order_of_memory():
    """The result of a permuted operand is permuted alike, so that regions stay whole."""
    graph = small_graph()
    x = graph.add_variable(FLOAT, [6, 50], "x", mapping="linear").transpose()
    out = popops.exp(graph, x, Sequence())
    assert (
        np.argsort(out.addresses().ravel()).tolist() == np.argsort(x.addresses().ravel()).tolist()
    )


@pytest.mark.parametrize(
    ("function", "n_cycles"),
    [
        (lambda g, x, b, s, q: popops.add(g, x, x, q), 11 + 6 * (29 + 3 * 50)),
        (lambda g, x, b, s, q: popops.mul(g, x, s, q), 11 + 6 * (20 + 2 * 50)),
        (lambda g, x, b, s, q: popops.add(g, x, b, q), 13 + 6 * (19 + 5 * (8 + 2 * 10))),
        (lambda g, x, b, s, q: popops.exp(g, x, q), 20 + 6 * (17 + 6 * 50)),
        (lambda g, x, b, s, q: popops.cast(g, x, HALF, q), 12 + 6 * (37 + 2 * 25)),
        (lambda g, x, b, s, q: popops.add_in_place(g, x, g.clone(x), q), 11 + 6 * (58 + 2 * 50)),
        (lambda g, x, b, s, q: popops.zero(g, x, q), 6 * (4 + 299)),  # one worker stores 64 bits
        (lambda g, x, b, s, q: popops.scaled_add_to(g, x, x.reverse(0), 2.0, q), None),
    ],
)  # fmt: skip
def test_costs_are_poplibs(function, n_cycles):
    """One vertex on one tile costs what PopLibs' estimate says, for 600 floats."""
    graph = small_graph(1)
    x = graph.add_variable(FLOAT, [10, 60], "x", mapping=0)
    bias = graph.add_variable(FLOAT, [60], "bias", mapping=0)
    scale = graph.add_variable(FLOAT, [], "scale", mapping=0)
    sequence = Sequence()
    function(graph, x, bias, scale, sequence)
    report = tr.Engine(graph, sequence).report()
    if n_cycles is not None:
        assert report.steps.compute.max() == n_cycles


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (popops.add, "must have the same type, got float and int"),
        (lambda g, x, i, s: popops.add(g, x, "no", s), "add got str, expected a Tensor"),
        (lambda g, x, i, s: popops.add(g, 1, 2, s), "add got no tensor"),
        (lambda g, x, i, s: popops.add(g, x, x, x), "got Tensor for the Sequence"),
        (lambda g, x, i, s: popops.add_in_place(g, 1.0, x, s), "got a number to write to"),
        (lambda g, x, i, s: popops.add_in_place(g, x[0], x, s), "cannot be written in place"),
        (lambda g, x, i, s: popops.add(g, i, 0.5, s), "0.5 is not a valid int"),
        (lambda g, x, i, s: popops.add(g, x, 1e39, s), "too large for float"),
        (lambda g, x, i, s: popops.exp(g, i, s), "exp does not work on int"),
        (lambda g, x, i, s: popops.map(g, _1 + _2, [x], s), "uses _2, but got 1 tensors"),
        (lambda g, x, i, s: popops.map(g, select(_1, _1, _1), [x], s), "must be bool, got float"),
        (lambda g, x, i, s: popops.map_in_place(g, _1 > 0.0, [x], s), "bool cannot be written"),
        (lambda g, x, i, s: popops.map_in_place(g, -_1, [poputil.broadcast_view(x[0], (4, 5))], s),
         "it repeats an element or is constant"),
        (lambda g, x, i, s: bool(_1 > 0.0), "has no truth value"),
        (lambda g, x, i, s: PlaceHolder(21), "placeholder 21 does not exist"),
        (lambda g, x, i, s: exp(_1, _2), "exp takes 1 operands, got 2"),
        (lambda g, x, i, s: _1 + "a", "str cannot be part of an expression"),
        (lambda g, x, i, s: popops.cast(g, x, tr.QUARTER, s), "needs the metadata"),
        (popops.cast_with_output, "cast of shape"),
        (lambda g, x, i, s: popops.counted_loop(g, 3, 3, 1, lambda c: s), "never runs or never"),
        (lambda g, x, i, s: popops.counted_for_loop(g, 0, x, 1, lambda c: s), "as its limit"),
        (lambda g, x, i, s: popops.CircBuf(g, FLOAT, 0, [2]), "a ring of 0 tensors"),
        (lambda g, x, i, s: popops.CircBuf(g, FLOAT, 2, [2]).prev(2, s), "none at distance 2"),
    ],
)  # fmt: skip
def test_refusals(call, text):
    """Wrong operands are refused with what was expected, the user's line, and a hint."""
    graph = small_graph()
    x = graph.add_variable(FLOAT, [4, 5], "x", mapping="linear")
    i = graph.add_variable(INT, [4], "i", mapping="linear")
    with pytest.raises(PoplibsError) as caught:
        call(graph, x, i, Sequence())
    assert text in str(caught.value)
    assert "test_elementwise.py" in str(caught.value)
    assert "try:" in str(caught.value)


def test_loops():
    """A counted loop hands its counter to the body; its bound may be a tensor."""
    graph = small_graph()
    total, other = (graph.add_variable(INT, [], n, mapping=1) for n in ("total", "other"))
    limit = graph.add_constant(INT, [], 10)

    def add_to(where, counter):
        body = Sequence()
        popops.add_in_place(graph, where, popops.cast(graph, counter, INT, body), body)
        return body

    sequence = Sequence()
    popops.zero(graph, total, sequence)
    popops.zero(graph, other, sequence)
    sequence.add(popops.counted_loop(graph, 3, 10, 2, lambda c: add_to(total, c)))
    sequence.add(popops.counted_for_loop(graph, 1, limit, 4, lambda c: add_to(other, c)))
    graph.create_host_read("total", total)
    graph.create_host_read("other", other)
    engine = tr.Engine(graph, sequence).load()
    engine.run()
    assert int(engine.read_tensor("total")) == 3 + 5 + 7 + 9
    assert int(engine.read_tensor("other")) == 1 + 5 + 9


def test_ring():
    """A CircBuf gives back what was added n rounds ago, and forgets the oldest."""
    graph, sequence = small_graph(), Sequence()
    ring = popops.CircBuf(graph, FLOAT, 3, [4])
    x = laid_out(graph, FLOAT, [4], np.random.default_rng(0))
    for _ in range(4):
        ring.add(x, sequence)
        popops.add_in_place(graph, x, 1.0, sequence)
    for distance in range(3):
        graph.create_host_read(f"back-{distance}", ring.prev(distance, sequence))
    graph.create_host_write("x", x)
    engine = tr.Engine(graph, sequence).load()
    engine.write_tensor("x", np.zeros(4, np.float32))
    engine.run()
    result = [engine.read_tensor(f"back-{d}").tolist() for d in range(3)]
    assert result == [[3.0] * 4, [2.0] * 4, [1.0] * 4]


def test_constant_texts():
    """Equal expressions have equal texts, whatever their constants are."""
    assert (_1 + 0.5).text() == "add(_1, 0.5)"
    assert Const(1, FLOAT).text() == "FLOAT(1)"
    assert Cast(_1 < _2, FLOAT).text() == "cast<FLOAT>(lt(_1, _2))"


def test_results_do_not_depend_on_the_tile_map():
    """An operation gives the same bits on any layout."""
    expr = exp(_1) * 0.5 + _2
    first = [run_op(on(expr), [X, Y], seed=seed)[0].tobytes() for seed in range(3)]
    assert len(set(first)) == 1


def test_empty_and_single():
    """No elements make no vertices; one element is enough."""
    empty = np.zeros((0, 3), np.float32)
    one = np.ones(1, np.float32)
    (nothing,), (two,) = run_calls([
        OpCall(on(_1 + _1), [empty], FLOAT), OpCall(on(_1 + _1), [one], FLOAT)
    ])[0]  # fmt: skip
    assert nothing.shape == (0, 3)
    assert two.tolist() == [2.0]


def test_select_scalar_condition():
    """A scalar condition selects a whole tensor."""

    def function(graph, a, b, c, *, sequence):
        return popops.select(graph, a, b, c, sequence)

    for value in (True, False):
        (result,) = run_op(function, [X, Y, np.array([value])], FLOAT)
        assert (result == (X if value else Y)).all()
