"""Recurrent nets: gradients against differences, layouts, refusals, and the cost of a loop."""

import numpy as np
import pytest

import tremula as tr
from tests.poplibs.run_op import small_graph
from tremula.poplibs.popnn.recurrent import gru, lstm, rnn
from tremula.poplibs.registry import PoplibsError, all_ops

NETS = {
    "lstm": ("popnn.lstm.lstm_fwd", "popnn.lstm.lstm_bwd_with_wu"),
    "gru": ("popnn.gru.gru_fwd", "popnn.gru.gru_bwd_with_wu"),
    "rnn": ("popnn.rnn.rnn_fwd", "popnn.rnn.rnn_bwd_with_wu"),
}


@pytest.mark.parametrize("net", NETS)
def test_reference_gradients_are_slopes(net):
    """The reference's gradient of every operand agrees with differences of its forward pass."""
    ops = all_ops()
    forward, training = (ops[name] for name in NETS[net])
    sample = next(iter(training.samples(tr.FLOAT, np.random.default_rng(0))))
    n_gradients = 2 if net == "lstm" else 1
    operands = [a.astype(np.float64) for a in sample.inputs]
    values, gradients = operands[:-n_gradients], operands[-n_gradients:]

    def loss(arrays):
        results = forward.reference(*arrays, **sample.options)
        results = results if isinstance(results, tuple) else (results,)
        return sum((r * g).sum() for r, g in zip(results, gradients, strict=True))

    result = training.reference(*operands, **sample.options)[1:]
    assert len(result) == len(values)
    for index, slope in enumerate(result):
        assert slope.shape == values[index].shape
        for at in (0, slope.size // 2, slope.size - 1):
            high, low = ([v.copy() for v in values] for _ in range(2))
            high[index].flat[at] += 1e-5
            low[index].flat[at] -= 1e-5
            difference = (loss(high) - loss(low)) / 2e-5
            assert np.isclose(difference, slope.flat[at], rtol=1e-5, atol=1e-7), (index, at)


def built_lstm(n_steps, *, inference_only=False):
    """A graph with an LSTM of created operands: (graph, program, operands, forward)."""
    graph, sequence = small_graph(), tr.Sequence()
    x = lstm.create_input(graph, "float", n_steps, 2, 5, 6)
    state = lstm.create_initial_state(graph, "float", 2, 6)
    weights = lstm.create_weights(graph, "float", n_steps, 2, 5, 6)
    forward = lstm.lstm_fwd(graph, x, state, weights, sequence, inference_only=inference_only)
    return graph, sequence, (x, *state, *weights), forward


def test_created_operands():
    """Operands made with create_… give the reference's result."""
    graph, sequence, tensors, forward = built_lstm(4)
    rng = np.random.default_rng(0)
    arrays = [(0.5 * rng.standard_normal(t.shape)).astype(np.float32) for t in tensors]
    for index, tensor in enumerate(tensors):
        graph.create_host_write(f"in-{index}", tensor)
    graph.create_host_read("out", forward.output)
    engine = tr.Engine(graph, sequence).load()
    for index, array in enumerate(arrays):
        engine.write_tensor(f"in-{index}", array)
    engine.run()
    expected, _ = all_ops()["popnn.lstm.lstm_fwd"].reference(*arrays)
    assert np.allclose(engine.read_tensor("out"), expected, atol=1e-5)


def test_a_loop_is_built_once():
    """More steps make a longer loop, not a larger program; its cycles grow with the steps."""

    def built(n_steps):
        graph, sequence, *_ = built_lstm(n_steps, inference_only=True)
        n_sets = len(graph.state.compute_sets)
        engine = tr.Engine(graph, sequence).load()
        engine.run()
        return n_sets, engine.report().total_cycles

    (few, short), (many, long) = built(4), built(16)
    assert few == many
    assert 2.5 < long / short < 4.5


def test_inference_keeps_nothing():
    """A backward pass after an inference-only forward pass is refused."""
    graph, sequence, tensors, forward = built_lstm(3, inference_only=True)
    weights = lstm.LstmWeights(*tensors[3:])
    with pytest.raises(PoplibsError, match="inference-only forward pass does not keep"):
        lstm.lstm_bwd(graph, weights, forward, forward.output, sequence)
    assert forward.gates is None
    assert forward.cells is None


@pytest.mark.parametrize("module", [gru, rnn])
def test_other_nets_have_created_operands(module):
    """GRU and vanilla nets have inputs, states and weights of the shapes they ask for."""
    graph, sequence = small_graph(), tr.Sequence()
    x = module.create_input(graph, "half", 3, 2, 4, 5)
    state = module.create_initial_state(graph, "half", 2, 5)
    weights = module.create_weights(graph, "half", 3, 2, 4, 5)
    run = module.gru_fwd if module is gru else module.rnn_fwd
    forward = run(graph, x, state, weights, sequence, output_full_sequence=False)
    assert forward.output.shape == (2, 5)
    assert forward.output.type is tr.HALF
