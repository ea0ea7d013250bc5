"""Gradients of convolutions' weights as operations of their own: the same numbers."""

import copy

import pytest
import torch
from torch import nn

from tests.ir.steps import captured, training_step
from tremula.ir.host import beside
from tremula.ir.host.inductor import Compiled
from tremula.ir.passes import HOST_PASSES, apply
from tremula.ir.run.session import HostSession, Repetition
from tremula.ir.settings import HostSettings

PASS = (("take weight gradients beside", beside.take_weight_gradients_beside),)
OP = torch.ops.tremula.image_gradient_beside.default


class Net(nn.Module):
    """Convolutions with batch norms and a loss; the last one has a bias."""

    def __init__(self, n_layers):
        super().__init__()
        layers = []
        for _ in range(n_layers):
            layers += [nn.Conv2d(4, 4, 3, padding=1, bias=False), nn.BatchNorm2d(4), nn.ReLU()]
        self.net = nn.Sequential(*layers, nn.Conv2d(4, 2, 1))

    def forward(self, x):
        out = self.net(x)
        return nn.functional.mse_loss(out, torch.zeros_like(out))


def step_and_arguments(n_layers):
    """A training step as the host compiles it, and what its function takes."""
    torch.manual_seed(0)
    model, x = Net(n_layers), torch.randn(2, 4, 6, 6)
    step = apply(training_step(model, x), HOST_PASSES, "host")
    held = [*(p.detach() for p in model.parameters()), *model.buffers()]
    return step, [*held, x, torch.tensor(0.1)]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of modules that Inductor imports
def test_the_results_are_the_same():
    """By ATen and by Inductor; the layer whose gradients are three stays whole."""
    step, arguments = step_and_arguments(5)
    expected = step.module().forward(*arguments)
    assert beside.is_worthwhile(step)
    split = apply(step, PASS, "host")
    calls = [node for node in split.graph.nodes if node.target is OP]
    assert len(calls) == 4  # the first layer has no gradient of its image, the last one a bias
    compiled = Compiled(split.module(), len(split.results()), beside.CHOICES)
    for found in (split.module().forward(*arguments), compiled(*arguments)):
        for one, other in zip(found, expected, strict=True):
            torch.testing.assert_close(one, other)


def test_few_convolutions_stay_whole():
    """Two streams are not worth it then, and neither without gradients."""
    step, _ = step_and_arguments(3)
    assert not beside.is_worthwhile(step)
    assert not beside.is_worthwhile(captured(Net(5), torch.randn(2, 4, 6, 6)))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.filterwarnings("default")  # Inductor's own imports warn
def test_two_streams_of_a_gpu():
    """Ten calls of two iterations each train as ATen's kernels do on one stream."""
    torch.manual_seed(0)
    model, x = Net(6), torch.randn(8, 4, 32, 32)
    found = []
    for host in ("eager", "inductor-cuda-graph"):
        step = training_step(copy.deepcopy(model), x)
        settings = HostSettings(host=host, device="cuda")
        session = HostSession(step, Repetition(n_iterations=2), settings)
        session.write_weights(list(model.parameters()), list(model.buffers()))
        session.set_hyper([0.1])
        for _ in range(10):
            session.run([[x], [x]], lambda _number, _outputs: None)
        found.append(session.read_weights()[0])
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-4)
