"""Recurrent nets: one operation each, ATen's results on tiles, PyTorch's kernels on the host."""

import pytest
import torch
from torch import fx

from tests.ir.like_aten import assert_like_aten
from tests.sampling import WIDE, one_in
from tremula.ir.host.passes.in_place import write_over_dead_operands
from tremula.ir.run.tile_run import capture_function

pytestmark = pytest.mark.slow


def net_and_operands(kind, **settings):
    """A function of inputs and weights (results, last states, all gradients) and its operands."""
    torch.manual_seed(1)
    net = getattr(torch.nn, kind)(5, 6, **settings)
    names = [name for name, _ in net.named_parameters()]
    n = net.num_layers * (2 if net.bidirectional else 1)

    def function(x, h0, *weights):
        x, h0, *weights = (t.detach().requires_grad_() for t in (x, h0, *weights))
        states = (h0, h0 * 2) if kind == "LSTM" else h0
        y, last = torch.func.functional_call(
            net, dict(zip(names, weights, strict=True)), (x, states)
        )
        last = list(last) if kind == "LSTM" else [last]
        loss = (y * y).sum() + sum((t * t).sum() for t in last)
        return [y, *last, *torch.autograd.grad(loss, [x, h0, *weights])]

    n_batch = 4 if net.batch_first else 3
    return function, (torch.randn(4, 3, 5), torch.randn(n, n_batch, 6), *net.parameters())


NETS = {
    "LSTM": {"num_layers": 2, "bidirectional": True, "batch_first": True},
    "GRU": {"num_layers": 2, "bidirectional": True},
    "RNN": {"num_layers": 2, "batch_first": True},
}


@pytest.mark.parametrize("kind", one_in(2, NETS))
def test_deep_nets(kind):
    """Layers, both directions, initial states: results and every gradient are ATen's."""
    function, operands = net_and_operands(kind, **NETS[kind])
    assert_like_aten(function, *operands, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("kind", "settings"),
    [
        pytest.param("LSTM", {}, marks=WIDE),
        ("GRU", {}),
        pytest.param("RNN", {"nonlinearity": "relu", "bidirectional": True}, marks=WIDE),
    ],
)
def test_without_biases(kind, settings):
    """Nets without biases."""
    function, operands = net_and_operands(kind, bias=False, **settings)
    assert_like_aten(function, *operands, rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_half_inference_and_partial_gradients():
    """Half weights; no gradient asked; only the last state or the cell differentiated."""
    torch.manual_seed(2)
    lstm, gru = torch.nn.LSTM(5, 6).half(), torch.nn.GRU(5, 6).half()
    lstm_weights = list(lstm.parameters())

    def function(x, *weights):
        lstm_w, gru_w = weights[:4], weights[4:]
        zeros = x.new_zeros(1, 3, 6)
        settings = (True, 1, 0.0, True, False, False)
        result = list(torch.lstm(x, [zeros, zeros], list(lstm_w), *settings))
        result += torch.gru(x, zeros, list(gru_w), *settings)
        x = x.detach().requires_grad_()
        _, h, c = torch.lstm(x, [zeros, zeros], list(lstm_w), *settings)
        return [
            *result,
            torch.autograd.grad(h.sum(), x, retain_graph=True)[0],
            torch.autograd.grad(c.sum(), x)[0],
        ]

    x = torch.randn(4, 3, 5).half()
    weights = [w.detach() for w in (*lstm_weights, *gru.parameters())]
    assert_like_aten(function, x, *weights, rtol=2e-2, atol=1e-2)


def nodes_named(step, name):
    return [n for n in step.graph.nodes if n.op == "call_function" and name in str(n.target)]


def test_one_operation_per_net():
    """A recorded net is one node forward and one backward; dropout splits it into layers."""
    function, operands = net_and_operands("LSTM", num_layers=2)
    step = capture_function(function, list(operands))
    assert len(nodes_named(step, "tremula.recurrent.")) == 1
    assert len(nodes_named(step, "tremula.recurrent_backward")) == 1
    function, operands = net_and_operands("LSTM", num_layers=2, dropout=0.5)
    step = capture_function(function, list(operands))
    assert len(nodes_named(step, "tremula.recurrent.")) == 2


@pytest.mark.parametrize("kind", NETS)
def test_host_runs_pytorchs_kernels(kind, monkeypatch):
    """On the host results are PyTorch's to the bit, also after dead operands were written over."""
    monkeypatch.setattr("tremula.ir.run.tile_run.TILE_PASSES", ())
    function, operands = net_and_operands(kind, **NETS[kind])

    def scaled(*operands):
        results = function(*operands)
        return [torch.relu(results[0]) * 2, *results[1:]]

    step = write_over_dead_operands(capture_function(scaled, list(operands)))
    module = fx.GraphModule({}, step.graph)
    with torch.no_grad():
        results = module(*operands)
    for got, want in zip(results, scaled(*operands), strict=True):
        assert torch.equal(got, want)


def test_packed_sequences_and_projections_stay_atens():
    """What popnn has no cell for is not kept whole."""
    from tremula.ir.ops.recurrent import is_recurrent

    weights = list(torch.nn.LSTM(5, 6, proj_size=2).parameters())
    states = [torch.zeros(1, 3, 2), torch.zeros(1, 3, 6)]
    settings = (True, 1, 0.0, True, False, False)
    assert not is_recurrent(torch.lstm, (torch.zeros(4, 3, 5), states, weights, *settings))
    packed = (torch.zeros(12, 5), torch.tensor([3, 3, 3, 3]), states, weights, *settings[:-1])
    assert not is_recurrent(torch.lstm, packed)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of PyTorch, by its own compiler
def test_compiled_code_may_reuse_memory(monkeypatch):
    """Compiled by Inductor, gradients stay right although operands' memory is used again."""
    from torch._inductor.compile_fx import compile_fx

    monkeypatch.setattr("tremula.ir.run.tile_run.TILE_PASSES", ())
    function, operands = net_and_operands("LSTM", num_layers=2)

    def scaled(x, *rest):
        results = function(torch.sin(x), *rest)
        return [torch.relu(results[0]) * 2, *results[1:]]

    step = capture_function(scaled, list(operands))
    module = fx.GraphModule({}, step.graph)
    detached = [t.detach() for t in operands]
    with torch.no_grad():
        results = list(compile_fx(module, detached)(*detached))
    for got, want in zip(results, scaled(*operands), strict=True):
        torch.testing.assert_close(got, want.detach(), rtol=1e-4, atol=1e-5)
