"""Flops: what codelets say against formulae of what operations compute, and against the peaks."""

from types import SimpleNamespace

import numpy as np
import pytest

import tremula as tr
from tests.poplibs.run_op import laid_out, small_graph, tensor_type
from tremula.base.types import FLOAT, HALF, float32
from tremula.codelets import Input, Vector, Vertex
from tremula.codelets.python_codelet import codelet_of
from tremula.compiler.lower.lower import lower
from tremula.compiler.passes.cost import cost_steps
from tremula.compiler.passes.exchange import exchanges_of
from tremula.hardware import chip
from tremula.poplibs import poplin, popnn, popops
from tremula.poplibs.families import family
from tremula.poplibs.poplin.product.vertices import conv_partial
from tremula.poplibs.popops.elementwise.expr import Cast, _1, _2, exp, select, sqrt
from tremula.poplibs.registry import PoplibsError, all_ops

pytestmark = pytest.mark.slow

# Operations whose first type is an integer: test_registry.py looks at those that begin with floats.
FLOATS_ARE_LATER = {"popops.iota": True, "popops.normalise_image": False}  # whether it has no flops


class Made(SimpleNamespace):
    """A graph, and what is added to it."""

    def __init__(self, n_tiles=8):
        super().__init__(graph=small_graph(n_tiles), sequence=tr.Sequence())

    def add(self, shape, type=FLOAT):
        return self.graph.add_variable(type, shape, "x", mapping="linear")

    def tables(self):
        programs = lower(self.graph, [self.sequence])
        sets = cost_steps(programs, exchanges_of(programs)).compute_sets
        return [table for one in sets for table in one.tables]

    def flops(self, part=""):
        """Of all vertices whose codelet's name has a part."""
        return sum(table.n_flops for table in self.tables() if part in table.codelet)


def test_silence_is_refused():
    """A codelet that says its cycles but not its flops is no family's."""

    @family
    def silent_codelet():
        class Silent(Vertex):
            x: Input[Vector[float32]]

            def compute(self):
                pass

            def cycles(v, chip):
                return 1

        return Silent

    with pytest.raises(PoplibsError, match=r"codelet Silent does not say its flops\.") as caught:
        silent_codelet()
    assert "flops = no_flops" in str(caught.value)


@pytest.mark.parametrize("name", FLOATS_ARE_LATER)
def test_no_vertex_beats_its_peak(name):
    """Vertices do no more flops than their unit could in their cycles; only moving has none."""
    op = all_ops()[name]
    type = FLOAT
    made, random = Made(), np.random.default_rng(0)
    for sample in op.samples(type, random):
        tensors = [
            laid_out(made.graph, tensor_type(a, type), a.shape, random) for a in sample.inputs
        ]
        op.function(made.graph, *tensors, sequence=made.sequence, **sample.options)
    tables = made.tables()
    for table in tables:
        assert table.peak_cycles <= table.total_cycles, table
    assert (sum(t.n_flops for t in tables) == 0) == FLOATS_ARE_LATER[name]


def test_every_other_operation_begins_with_floats_or_has_none():
    """Flops of every operation on floats are looked at, here or with its first type."""
    later = {n for n, op in all_ops().items() if op.types[0] not in (FLOAT, HALF)}
    assert {n for n in later if {FLOAT, HALF} & set(all_ops()[n].types)} == set(FLOATS_ARE_LATER)


@pytest.mark.parametrize("type", [FLOAT, HALF])
@pytest.mark.parametrize("sizes", [(64, 96, 40), (7, 301, 5), (128, 16, 128)])
def test_products(type, sizes):
    """A product's partial sums are 2 m k n flops; adding them up, next to nothing more."""
    m, k, n = sizes
    made = Made(n_tiles=16)
    poplin.mat_mul(made.graph, made.add([m, k], type), made.add([k, n], type), made.sequence)
    assert made.flops("poplin::") - made.flops("ReduceAdd") == 2 * m * k * n
    n_partials = made.flops("ReduceAdd") / (m * n) + 1
    assert made.flops() == 2 * m * k * n + (n_partials - 1) * m * n
    assert n_partials <= 16


def test_convolution_leaves_out_padding():
    """Taps that meet padding are no flops: 3 x 3 on 8 x 8 with a border has 22² pairs, not 24²."""
    made = Made(n_tiles=16)
    params = poplin.ConvParams(
        type=HALF, n_batch=2, field_shape=(8, 8), kernel_shape=(3, 3), n_in_chans=16,
        n_out_chans=32, padding_lower=(1, 1), padding_upper=(1, 1),
    )  # fmt: skip
    image = poplin.create_input(made.graph, params, "in")
    weights = poplin.create_weights(made.graph, params, "weights")
    poplin.convolution(made.graph, image, weights, params, made.sequence)
    n_products = 2 * 22**2 * 16 * 32
    assert made.flops("poplin::") - made.flops("ReduceAdd") == 2 * n_products
    assert params.n_flops == 2 * 2 * 24**2 * 16 * 32


def test_elements():
    """Element-wise: operations on floats, each times the elements; choosing and integers none."""
    n = 300
    cases = (
        ((exp(_1) + _2) * 0.5, FLOAT, 3),
        (sqrt(_1 * _1) / _2, HALF, 3),
        ((_1 + _1) * (_1 + _1), FLOAT, 2),  # a common part is computed once
        (select(_1, _2, _1 > _2), FLOAT, 1),
        (_1 * _2 + _1, tr.INT, 0),
        (Cast(_1, HALF), FLOAT, 0),
    )
    for expression, type, n_each in cases:
        made = Made()
        operands = [made.add([n], type), made.add([n], type)]
        popops.map(made.graph, expression, operands, made.sequence)
        assert made.flops() == n_each * n, expression.text()


def test_reductions():
    """A sum of n elements to m takes n - m additions, however it is cut into stages."""
    made = Made()
    popops.reduce(made.graph, made.add([40, 50]), [1], "ADD", made.sequence)
    assert made.flops() == 40 * 50 - 40
    squares = Made()
    popops.reduce(squares.graph, squares.add([40, 50]), [1], "SQUARE_ADD", squares.sequence)
    assert squares.flops() == 2 * 40 * 50 - 40
    whole = Made()
    popops.reduce(whole.graph, whole.add([40, 50], tr.INT), [1], "ADD", whole.sequence)
    assert whole.flops() == 0


def test_scaled_add_and_updates():
    """A scaled addition is two flops an element, to a row of a table as well."""
    made = Made()
    popops.scaled_add_to(made.graph, made.add([90]), made.add([90]), 0.5, made.sequence)
    assert made.flops() == 2 * 90
    looked = Made()
    table, indices = looked.add([20, 8]), looked.add([12, 1], tr.UNSIGNED_INT)
    updates = looked.add([12, 1, 8])
    popops.multi_update_add(looked.graph, table, updates, indices, looked.sequence, scale=0.5)
    assert looked.flops("ScaledMultiUpdateOp") == 2 * 12 * 8


def test_pooling():
    """A maximum of 2 x 2 is four comparisons, an average four products and sums."""
    for kind, n_each in (("MAX", 1), ("AVG", 2)):
        made = Made()
        params = popnn.PoolParams(kind, (2, 2), (2, 2))
        popnn.pool(made.graph, made.add([2, 8, 6, 6]), made.sequence, params=params)
        assert made.flops() == 4 * n_each * 2 * 8 * 9


def test_factorisations():
    """LU takes 2 n³ / 3 flops and a little, Cholesky half of that and its panels' squares."""
    n = 48
    made = Made()
    poplin.lu_factorization(made.graph, made.add([n, n]), made.sequence)
    below = range(n)
    n_comparisons = sum(below)
    assert made.flops() == sum(j * (1 + 2 * j) for j in below) + n_comparisons
    made = Made()
    poplin.cholesky(made.graph, made.add([n, n]), made.sequence)
    exact = n**3 // 3 + n**2 // 2 + n // 6
    n_above = 2 * 16 * n * (n - 16) // 2  # a panel's update takes its whole square block
    assert exact <= made.flops() <= exact + n_above


def test_peaks_are_those_of_unit_and_type():
    """The matrix unit's for its products, else the vector unit's with the floats that are read."""
    bow = chip("bow")
    for method, inputs, partials, peak in (
        ("AMP", HALF, FLOAT, bow.flops_per_cycle_half_float),
        ("AMP", HALF, HALF, bow.flops_per_cycle_half_half),
        ("HMAC", HALF, FLOAT, bow.flops_per_cycle_vector_half),
        ("HMAC", FLOAT, FLOAT, bow.flops_per_cycle_vector_float),
    ):
        codelet = codelet_of(conv_partial(method, inputs, partials))
        assert codelet.peak_flops_per_cycle(bow) == peak


def test_own_codelets_may_say_flops():
    """A user's codelet has a flops method, or none: then it counts none."""

    class Sums(Vertex):
        x: Input[Vector[float32]]
        out: tr.Output[float32]

        def compute(self):
            self.out = self.x[0]

        def flops(v, chip):
            return v.x.size - 1

    made = Made()
    x, out = made.add([10]), made.add([1])
    compute_set = made.graph.add_compute_set("sums")
    made.graph.add_vertex(compute_set, Sums, {"x": x, "out": out[0]}, tile=0)
    made.sequence.add(tr.Execute(compute_set))
    assert made.flops() == 9
