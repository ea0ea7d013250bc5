"""CTC: loss and inference against all paths written out, and gradients against differences."""

from itertools import product

import numpy as np

import tremula as tr
from tests.poplibs.run_op import run_op, small_graph
from tremula.poplibs.popnn.ctc import inference as ctc_inference
from tremula.poplibs.popnn.ctc import loss as ctc


def log_probabilities(n_steps, n_batches, n_classes, seed=0):
    logits = np.random.default_rng(seed).standard_normal((n_steps, n_batches, n_classes))
    return (logits - np.log(np.exp(logits).sum(-1, keepdims=True))).astype(np.float32)


def labels_of_path(path, blank):
    """A path's labels: repetitions and blanks go."""
    kept = [c for i, c in enumerate(path) if i == 0 or path[i - 1] != c]
    return tuple(c for c in kept if c != blank)


def all_labels(data, blank):
    """The probability of every label sequence, from every path."""
    result = {}
    for path in product(range(data.shape[1]), repeat=len(data)):
        probability = np.exp(sum(float(data[t, c]) for t, c in enumerate(path)))
        key = labels_of_path(path, blank)
        result[key] = result.get(key, 0.0) + probability
    return result


def lengths(*values):
    return np.array(values, np.uint32)


def test_loss_is_that_of_all_paths():
    """The loss is minus the logarithm of the probability of all paths that give the labels."""
    data = log_probabilities(5, 2, 3)
    labels = np.array([[1, 1], [2, 1]], np.uint32)
    operands = [data, labels, lengths(5, 4), lengths(2, 2)]
    (loss,) = run_op(ctc.calc_ctc_loss_log_probabilities, operands)
    expected = [
        -np.log(all_labels(data[:5, 0], 0)[1, 1]),
        -np.log(all_labels(data[:4, 1], 0)[2, 1]),
    ]
    assert np.allclose(loss, expected, rtol=1e-5)


def test_gradient_is_the_slope_of_the_loss():
    """Moving a log probability moves the loss as its gradient says."""
    data = log_probabilities(4, 1, 3)
    rest = [np.array([[2, 1]], np.uint32), lengths(4), lengths(2)]
    _, gradient = run_op(ctc.calc_loss_and_gradient_log_probabilities, [data, *rest])
    for t, c in ((0, 2), (1, 0), (3, 1)):
        up, down = data.copy(), data.copy()
        up[t, 0, c] += 0.05
        down[t, 0, c] -= 0.05
        (high,) = run_op(ctc.calc_ctc_loss_log_probabilities, [up, *rest])
        (low,) = run_op(ctc.calc_ctc_loss_log_probabilities, [down, *rest])
        assert np.isclose((high[0] - low[0]) / 0.1, gradient[t, 0, c], atol=1e-3)


def test_gradients_of_a_step_add_up_to_minus_one():
    """Every path is in one class at each step; steps beyond the end have no gradient."""
    data = log_probabilities(40, 2, 4)
    labels = np.array([[1, 2, 3], [3, 3, 0]], np.uint32)
    operands = [data, labels, lengths(40, 33), lengths(3, 2)]
    _, gradient = run_op(ctc.calc_loss_and_gradient_log_probabilities, operands)
    assert np.allclose(gradient[:, 0].sum(-1), -1, atol=1e-4)
    assert np.allclose(gradient[:33, 1].sum(-1), -1, atol=1e-4)
    assert not gradient[33:, 1].any()


def test_impossible_labels():
    """Labels that no path gives have an infinite loss, and a gradient of zero, not NaN."""
    data = log_probabilities(2, 1, 3)
    operands = [data, np.array([[1, 1]], np.uint32), lengths(2), lengths(2)]
    loss, gradient = run_op(ctc.calc_loss_and_gradient_log_probabilities, operands)
    assert np.isinf(loss[0])
    assert not gradient.any()


def test_parts_of_time_do_not_change_a_bit():
    """A sequence gives the same bits alone (many parts of time) and in a batch (few)."""
    data = log_probabilities(64, 4, 4)
    labels = np.random.default_rng(1).integers(1, 4, (4, 5)).astype(np.uint32)
    many = [data, labels, lengths(*[64] * 4), lengths(*[5] * 4)]
    one = [data[:, :1], labels[:1], lengths(64), lengths(5)]
    loss, gradient = run_op(ctc.calc_loss_and_gradient_log_probabilities, many)
    alone, its_gradient = run_op(ctc.calc_loss_and_gradient_log_probabilities, one, seed=3)
    assert loss[:1].tobytes() == alone.tobytes()
    assert gradient[:, :1].tobytes() == its_gradient.tobytes()


def test_a_wide_beam_finds_the_best_labels():
    """With a beam that drops nothing, inference ranks label sequences as all paths do."""
    data = log_probabilities(4, 1, 3, seed=2)
    options = {"beam_width": 40, "top_paths": 5}
    result = run_op(
        ctc_inference.beam_search_decoder_log_probabilities, [data, lengths(4)], options=options
    )
    ranked = sorted(all_labels(data[:, 0], 0).items(), key=lambda item: -item[1])[:5]
    probabilities, counts, labels = (part[0] for part in result)
    for path, (expected, probability) in enumerate(ranked):
        assert tuple(labels[path, : counts[path]].tolist()) == expected
        assert np.isclose(np.exp(probabilities[path]), probability, rtol=1e-4)


def test_created_inputs_need_no_rearranging():
    """Data made by create_data_input lies where the loss works on it: each step is on one tile."""
    graph = small_graph(4)
    data = ctc.create_data_input(graph, "float", 64, 2, 5)
    labels = ctc.create_labels_input(graph, 2, 3)
    assert (data.shape, labels.shape) == ((64, 2, 5), (2, 3))
    assert (data.type, labels.type) == (tr.FLOAT, tr.UNSIGNED_INT)
    tiles = [set(graph.get_tile_mapping(data[t, 0]).tile.tolist()) for t in range(64)]
    assert all(len(result) == 1 for result in tiles)
    assert set.union(*tiles) == {0, 1}
