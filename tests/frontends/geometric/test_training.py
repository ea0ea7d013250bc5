"""TrainingStepper finds differences; set_aggregation_dim_size reaches every layer."""

import pytest
import torch
from torch import nn
from torch_geometric.nn import GCNConv, MessagePassing

import poptorch
import poptorch_geometric as pg


class Net(nn.Module):
    """Two convolutions over a ring, with a loss."""

    def __init__(self, differs=False):
        super().__init__()
        self.first, self.second = GCNConv(3, 4), GCNConv(4, 2)
        self.differs = differs

    def forward(self, x, edge_index):
        out = self.second(self.first(x, edge_index).relu(), edge_index)
        if self.differs and poptorch.isRunningOnIpu():
            out = out + 0.1
        return out, poptorch.identity_loss((out * out).mean(), reduction="none")


def ring(n=5):
    return torch.randn(n, 3), torch.stack([torch.arange(n), (torch.arange(n) + 1) % n])


@pytest.mark.slow
def test_stepper_compares_both_trainings():
    """Equal models pass, step by step and in inference; times can be measured."""
    torch.manual_seed(0)
    stepper = pg.TrainingStepper(Net(), rtol=1e-4, atol=1e-6)
    batch = ring()
    stepper.run(2, batch)
    stepper.run(1, batch, batch)
    stepper.run_inference(batch)
    times = stepper.benchmark(1, batch, ("ipu", "cpu"))
    assert set(times) == {"ipu_time", "cpu_time"}
    with pytest.raises(NotImplementedError, match="gpu"):
        stepper.benchmark(1, batch, ("gpu",))


class Masked(nn.Module):
    """A layer whose loss leaves out rows of padding."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(2, 2)

    def forward(self, x, mask):
        out = self.layer(x)
        return out, nn.functional.l1_loss(out * mask, 2 * mask.expand_as(out), reduction="sum")


def test_stepper_compares_common_rows_of_separate_batches():
    """A padded batch has more rows: the others must agree, parameters and losses, too."""
    torch.manual_seed(0)
    x, mask = torch.rand(3, 2), torch.ones(3, 1)
    padded = torch.cat([x, torch.zeros(2, 2)]), torch.cat([mask, torch.zeros(2, 1)])
    stepper = pg.TrainingStepper(Masked())
    stepper.run(2, (x, mask), padded)
    with pytest.raises(AssertionError, match="Output was not equal"):
        stepper.run(1, (x, mask), (padded[0].flip(0), padded[1].flip(0)))
    with pytest.raises(TypeError, match="one or two batches"):
        stepper.run(1)
    assert set(stepper.benchmark(1, padded, "cpu")) == {"cpu_time"}


def test_stepper_of_a_model_without_parameters():
    """Such a model is compared in inference."""
    stepper = pg.TrainingStepper(nn.Softmax(dim=1))
    stepper.run_inference((torch.rand(3, 2),))
    with pytest.raises(AssertionError, match="no parameters"):
        stepper.run(1, (torch.rand(3, 2),))


def test_stepper_finds_a_difference():
    """A model that computes something else when compiled is named."""
    torch.manual_seed(0)
    with pytest.raises(AssertionError, match="Output was not equal"):
        pg.TrainingStepper(Net(differs=True)).run(1, ring())


def test_aggregation_size_reaches_every_layer():
    """Aggregations have as many rows as set, here more than there are nodes."""

    class Sum(MessagePassing):
        def forward(self, x, edge_index):
            return self.propagate(edge_index, x=x)

    model = nn.ModuleList([Sum(), Sum()])
    pg.set_aggregation_dim_size(model, 9)
    x, edges = ring()
    assert model[0](x, edges).shape == (9, 3)
    assert model[1](x, edges).shape == (9, 3)
