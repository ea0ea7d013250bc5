"""popnn beyond the registry's samples: costs, gradients by differences, layouts, whole networks."""

import math

import numpy as np
import pytest

import tremula as tr
from tests.poplibs.run_op import run_op, small_graph
from tremula.poplibs import poplin, popnn, popops
from tremula.poplibs.popnn import norms as norm_entries
from tremula.poplibs.popnn.non_linearity import TABLE
from tremula.poplibs.popnn.pooling import pool as pool_entries
from tremula.poplibs.popnn.softmax import (
    _gradient_reference,
    _log_gradient_reference,
    _log_softmax_reference,
    _softmax_reference,
)
from tremula.poplibs.registry import PoplibsError

RNG = np.random.default_rng(7)


def run_program(graph, sequence, inputs, outputs):
    """Results of a program: inputs and outputs are lists of tensors with their arrays."""
    for number, (tensor, _) in enumerate(inputs):
        graph.create_host_write(f"in{number}", tensor)
    for number, tensor in enumerate(outputs):
        graph.create_host_read(f"out{number}", tensor)
    engine = tr.Engine(graph, sequence).load()
    for number, (_, array) in enumerate(inputs):
        engine.write_tensor(f"in{number}", array)
    engine.run()
    results = [np.asarray(engine.read_tensor(f"out{n}")) for n in range(len(outputs))]
    return results, engine.report()


def slope_by_difference(function, x, gradient, step=1e-5):
    """The gradient of sum(gradient · function(x)) by central differences."""
    result = np.zeros_like(x)
    for at in np.ndindex(x.shape):
        high, low = x.copy(), x.copy()
        high[at] += step
        low[at] -= step
        result[at] = (gradient * (function(high) - function(low))).sum() / (2 * step)
    return result


# -- the references are right: they are what the registry compares with ---------------------------


@pytest.mark.parametrize("kind", TABLE)
def test_slopes_are_derivatives(kind):
    """The slope of each non-linearity is the derivative of its value."""
    entry = TABLE[kind]
    x = np.linspace(-3.1, 3, 40)
    point = x if entry.from_input else entry.reference(x)
    difference = (entry.reference(x + 1e-6) - entry.reference(x - 1e-6)) / 2e-6
    np.testing.assert_allclose(entry.reference_slope(point), difference, atol=1e-8)


def test_softmax_gradients_are_derivatives():
    """The gradients of softmax and log-softmax are derivatives of their values."""
    x, gradient = RNG.normal(size=(3, 5)), RNG.normal(size=(3, 5))
    for value, slope in (
        (_softmax_reference, _gradient_reference),
        (_log_softmax_reference, _log_gradient_reference),
    ):
        expected = slope_by_difference(value, x, gradient)
        np.testing.assert_allclose(slope(value(x), gradient), expected, atol=1e-7)


@pytest.mark.parametrize("kind", ["batch", "group", "layer", "instance"])
def test_norm_gradients_are_derivatives(kind):
    """The gradient of each norm is the derivative of statistics, whitening and gamma together."""
    options = {"n_groups": 2} if kind == "group" else {}
    gamma, x, gradient = RNG.normal(size=4), RNG.normal(size=(3, 4, 5)), RNG.normal(size=(3, 4, 5))

    def forward(x):
        both = norm_entries._statistics(kind)(x, epsilon=1e-3, **options)
        return norm_entries._normalise(kind)(x, gamma, 0 * gamma, *both, **options)

    inverse = norm_entries._statistics(kind)(x, epsilon=1e-3, **options)[1]
    expected = slope_by_difference(lambda x: forward(x)[0], x, gradient)
    whitened = forward(x)[1]
    got = norm_entries._gradients(kind)(whitened, gradient, inverse, gamma, **options)
    np.testing.assert_allclose(got, expected, atol=1e-6)


@pytest.mark.parametrize(("shape", "params"), pool_entries._CASES[:4])
def test_pool_gradients_are_derivatives(shape, params):
    """The gradient of each pooling is the derivative of its value, where maxima are alone."""
    x = RNG.permutation(np.arange(np.prod(shape), dtype=np.float64)).reshape(shape)
    pooled = pool_entries._reference(x, params=params)
    gradient = RNG.normal(size=pooled.shape)
    expected = slope_by_difference(lambda x: pool_entries._reference(x, params=params), x, gradient)
    got = pool_entries._gradient_reference(x, pooled, gradient, params=params)
    np.testing.assert_allclose(got, expected, atol=1e-5)


# -- non-linearities and softmax ------------------------------------------------------------------


@pytest.mark.parametrize(("type", "width", "slots"), [(tr.FLOAT, 2, 10), (tr.HALF, 4, 5)])
def test_non_linearity_cost(type, width, slots):
    """GELU of one region costs PopLibs' estimate: 9 + 6 · (25 + slots per vector of a share)."""
    graph, sequence = small_graph(), tr.Sequence()
    x = graph.add_variable(type, [1000], "x", mapping=3)
    popnn.gelu(graph, x, sequence)
    report = tr.Engine(graph, sequence).load().report()
    n_vectors = math.ceil(math.ceil(1000 / 6) / width)
    assert report.steps.compute[0, 0] == 9 + 6 * (25 + slots * n_vectors)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["SOFTMAX", "SOFTMAX_STABLE", "SOFTMAX_SCALED"])
def test_softmax_kinds(kind):
    """The three softmaxes agree up to the scale of the third, also in place, and by gradient."""
    x = RNG.normal(0, 1, (3, 6)).astype(np.float16)
    scale = 16384 if kind == "SOFTMAX_SCALED" else 1
    expected = _softmax_reference(x).astype(np.float32) * scale
    for function, is_in_place in (
        (popnn.non_linearity, False),
        (popnn.non_linearity_in_place, True),
    ):
        (got,) = run_op(function, [x], tr.HALF, {"kind": kind}, is_in_place=is_in_place)
        np.testing.assert_allclose(got, expected, rtol=5e-3)
    y = expected.astype(np.float16)
    (got,) = run_op(popnn.non_linearity_input_gradient, [y, x], tr.HALF, {"kind": kind})
    right = _gradient_reference(y, x, is_scaled=scale > 1)
    np.testing.assert_allclose(got, right, atol=4e-3 * scale)


def test_softmax_of_large_values():
    """A stable softmax of values beyond the range of exp has no infinity in it."""
    x = np.array([[30000, 30000, -30000]], np.float16)
    (got,) = run_op(popnn.softmax, [x], tr.HALF)
    np.testing.assert_array_equal(got, np.array([[0.5, 0.5, 0]], np.float16))


def test_in_place_of_a_repeated_tensor():
    """What repeats an element cannot be written in place."""
    graph = small_graph()
    x = graph.add_variable(tr.FLOAT, [1, 4], "x", mapping=0).broadcast(3)
    with pytest.raises(PoplibsError, match="cannot be written in place: it repeats an element"):
        popnn.relu_in_place(graph, x, tr.Sequence())


# -- norms ----------------------------------------------------------------------------------------


def test_norms_are_group_norms():
    """Layer and instance norm are group norm with one group, or one per channel, bit by bit."""
    x = RNG.normal(size=(2, 6, 5)).astype(np.float32)
    options = {"epsilon": 1e-3}
    for function, n_groups in (
        (popnn.layer_norm_statistics, 1),
        (popnn.instance_norm_statistics, 6),
    ):
        for is_strided in (False, True):
            groups = {"n_groups": n_groups, "is_strided": is_strided}
            one = run_op(function, [x], tr.FLOAT, options)
            other = run_op(popnn.group_norm_statistics, [x], tr.FLOAT, options | groups)
            for a, b in zip(one, other, strict=True):
                np.testing.assert_array_equal(a, b)


def test_stable_statistics():
    """The stable variance survives a mean that is large beside the deviation."""
    x = (RNG.normal(size=(64, 2)) * 1e-2 + 100).astype(np.float32)
    exact = 1 / np.sqrt(x.astype(np.float64).var(axis=0) + 1e-9)
    options = {"epsilon": 1e-9, "is_stable": True}
    _, inverse = run_op(poplin.norm_statistics, [x], tr.FLOAT, options)
    np.testing.assert_allclose(inverse, exact, rtol=1e-2)


def test_param_update_changes_both():
    """norm_param_update moves gamma and beta by the scaled gradients."""
    graph, sequence = small_graph(), tr.Sequence()
    acts = graph.add_variable(tr.FLOAT, [2, 5, 3], "acts", mapping="linear")
    gamma, beta = poplin.create_norm_params(graph, acts)
    of_gamma, of_beta = poplin.create_norm_params(graph, acts)
    popnn.norm_param_update(graph, of_gamma, of_beta, gamma, beta, sequence, scale=-0.5)
    arrays = [RNG.normal(size=5).astype(np.float32) for _ in range(4)]
    inputs = list(zip([gamma, beta, of_gamma, of_beta], arrays, strict=True))
    results, _ = run_program(graph, sequence, inputs, [gamma, beta])
    for got, old, change in zip(results, arrays[:2], arrays[2:], strict=True):
        np.testing.assert_allclose(got, old - np.float32(0.5) * change, rtol=1e-6)


# -- pooling --------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["MAX", "AVG"])
def test_pooling_of_either_layout(kind):
    """Channels last or first: the results are equal bit by bit, and channels last cost less."""
    params = popnn.PoolParams(kind, (3, 3), (2, 2), (1, 1), (1, 1))
    x = RNG.normal(size=(2, 8, 9, 9)).astype(np.float32)
    result = []
    for order in ([0, 1, 2, 3], [0, 3, 1, 2]):
        graph, sequence = small_graph(), tr.Sequence()
        stored = [x.shape[d] for d in np.argsort(order)]
        acts = graph.add_variable(tr.FLOAT, stored, "x", mapping="linear").dim_shuffle(order)
        pooled = popnn.pool(graph, acts, sequence, params=params)
        gradient = popnn.pool_input_gradient(graph, acts, pooled, pooled, sequence, params=params)
        result.append(run_program(graph, sequence, [(acts, x)], [pooled, gradient]))
    (first, first_report), (last, last_report) = result
    for a, b in zip(first, last, strict=True):
        np.testing.assert_array_equal(a, b)
    assert last_report.total_cycles < first_report.total_cycles


def test_pool_cost():
    """A box on one tile costs launch, rows, work items, outputs and taps as PopLibs estimates."""
    graph = tr.Graph(tr.IPUModel("bow", tiles_per_ipu=1).create_device())
    sequence = tr.Sequence()
    x = graph.add_variable(tr.FLOAT, [1, 12, 12, 4], "x", mapping=0).dim_shuffle([0, 3, 1, 2])
    popnn.pool(graph, x, sequence, params=popnn.PoolParams("MAX", (2, 2), (2, 2)))
    report = tr.Engine(graph, sequence).load().report()
    # A worker has 1 of 6 rows of 6 outputs of 2 vectors: 2 row pairs × 2 taps are its work items.
    worker = 40 + 13 * 1 + 20 * 4 + 2 * (5 * 6 + 3 * 24)
    assert report.steps.compute[-1, 0] == 13 + 6 * worker


# -- losses and networks --------------------------------------------------------------------------


def test_loss_with_scale_tensors():
    """Scales may be tensors, which change between runs."""
    graph, sequence = small_graph(), tr.Sequence()
    outputs = graph.add_variable(tr.FLOAT, [4, 3], "outputs", mapping="linear")
    labels = graph.add_variable(tr.UNSIGNED_INT, [4], "labels", mapping=1)
    scale = graph.add_variable(tr.FLOAT, [], "scale", mapping=2)
    _, deltas = popnn.calc_loss(
        graph, outputs, labels, sequence, kind="SUM_SQUARED_LOSS", deltas_scale=scale
    )
    x = RNG.normal(size=(4, 3)).astype(np.float32)
    inputs = [(outputs, x), (labels, np.array([0, 2, 1, 1], np.uint32)), (scale, np.float32(4))]
    (got,), _ = run_program(graph, sequence, inputs, [deltas])
    np.testing.assert_allclose(got, 4 * (x - np.eye(3)[[0, 2, 1, 1]]), rtol=1e-6)
    with pytest.raises(PoplibsError, match="must be a number or one float, got float"):
        popnn.calc_loss(
            graph, outputs, labels, sequence, kind="SUM_SQUARED_LOSS", deltas_scale=deltas
        )


@pytest.mark.slow
def test_a_network_learns():
    """A linear layer, softmax and cross-entropy learn which of four inputs is the largest."""
    graph, step = small_graph(), tr.Sequence()
    x = graph.add_variable(tr.FLOAT, [32, 4], "x", mapping="linear")
    labels = graph.add_variable(tr.UNSIGNED_INT, [32], "labels", mapping="linear")
    weights = poplin.create_mat_mul_input_rhs(graph, tr.FLOAT, (32, 4), (4, 4), "weights")
    logits = poplin.mat_mul(graph, x, weights, step)
    probabilities = popnn.softmax(graph, logits, step)
    loss, deltas, num_correct = popnn.calc_loss(
        graph, probabilities, labels, step, kind="CROSS_ENTROPY_LOSS", has_num_correct=True
    )
    change = poplin.mat_mul(graph, x.transpose(), deltas, step)
    popops.scaled_add_to(graph, weights, change, -0.05, step)
    total = popops.reduce(graph, loss, [0], "ADD", step)
    data = RNG.normal(size=(32, 4)).astype(np.float32)
    answers = data.argmax(1).astype(np.uint32)
    inputs = [(x, data), (labels, answers), (weights, np.zeros((4, 4), np.float32))]
    (end, n_right), _ = run_program(graph, tr.Repeat(60, step), inputs, [total, num_correct])
    assert end < 0.3 * 32 * np.log(4)
    assert n_right >= 31
