"""Rows are summed before they are multiplied where that saves a sum of the backward pass."""

import itertools

import pytest
import torch
from torch import Tensor, nn

from tests.ir.steps import training_step
from tremula.ir.host.graph_kernels.roles import segment_sum_of
from tremula.ir.host.graph_kernels.sum_first import sum_before_products
from tremula.ir.host.passes.memory_format import relax_strides
from tremula.ir.passes import HOST_PASSES, apply
from tremula.ir.step import CapturedStep

_N_NODES, _N_EDGES = 12, 40


class Convolutions(nn.Module):
    """Layers that multiply the rows of nodes and sum those of neighbours, as GCN does."""

    def __init__(self, widths: list[int], by: str = "scatter_add", weighted: bool = True):
        super().__init__()
        self.by, self.weighted = by, weighted
        sizes = itertools.pairwise(widths)
        self.layers = nn.ModuleList(nn.Linear(n, m, bias=False) for n, m in sizes)

    def forward(self, x: Tensor, edges: Tensor, weights: Tensor) -> Tensor:
        x = self.values(x, edges, weights)
        return nn.functional.mse_loss(x, torch.zeros_like(x))

    def values(self, x: Tensor, edges: Tensor, weights: Tensor) -> Tensor:
        for layer in self.layers:
            x = self._layer(layer(x), edges, weights)
        return x

    def _layer(self, rows: Tensor, edges: Tensor, weights: Tensor) -> Tensor:
        source, target = edges[0], edges[1]
        messages = rows[source] if self.by == "index" else rows.index_select(0, source)
        if self.weighted:
            messages = weights.unsqueeze(-1) * messages
        return self._summed(torch.zeros(_N_NODES, messages.shape[1]), target, messages).tanh()

    def _summed(self, zeros: Tensor, target: Tensor, messages: Tensor) -> Tensor:
        if self.by == "scatter_add":
            return zeros.scatter_add(0, target.unsqueeze(-1).expand_as(messages), messages)
        if self.by == "index":
            return zeros.index_put((target,), messages, accumulate=True)
        return zeros.index_add(0, target, messages)


def inputs(width: int) -> tuple[Tensor, Tensor, Tensor]:
    torch.manual_seed(0)
    edges = torch.randint(_N_NODES, (2, _N_EDGES))
    return torch.randn(_N_NODES, width), edges, torch.rand(_N_EDGES)


def step_of(model: nn.Module, width: int) -> CapturedStep:
    return relax_strides(apply(training_step(model, *inputs(width)), HOST_PASSES, "host"))


def sum_first(step: CapturedStep) -> CapturedStep:
    return sum_before_products(step, torch.device("cpu"))


def n_sums(step: CapturedStep) -> int:
    return sum(segment_sum_of(node) is not None for node in step.graph.nodes)


@pytest.mark.parametrize("weighted", [True, False])
@pytest.mark.parametrize("by", ["scatter_add", "index_add", "index"])
def test_a_layer_over_inputs_needs_no_sum_for_its_gradient(by, weighted):
    """One sum less, whatever the model sums by; results are equal."""
    model = Convolutions([6, 8, 4], by, weighted)
    step, changed = step_of(model, 6), sum_first(step_of(model, 6))
    assert (n_sums(step), n_sums(changed)) == (4, 3)
    changed.graph.lint()
    arguments = [*(p.detach() for p in model.parameters()), *inputs(6), torch.tensor(0.1)]
    results = zip(changed.module()(*arguments), step.module()(*arguments), strict=True)
    for mine, expected in results:
        torch.testing.assert_close(mine, expected, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(("width", "n_saved"), [(15, 1), (16, 0)])
def test_wide_inputs_are_multiplied_first(width, n_saved):
    """One sum of rows that are twice as wide reads as much as two."""
    model = Convolutions([width, 8])
    assert n_sums(step_of(model, width)) - n_sums(sum_first(step_of(model, width))) == (n_saved)


class ReadTwice(Convolutions):
    """The rows that are summed are also a result."""

    def values(self, x: Tensor, edges: Tensor, weights: Tensor) -> Tensor:
        rows = self.layers[0](x)
        messages = weights.unsqueeze(-1) * rows.index_select(0, edges[0])
        return self._summed(torch.zeros_like(rows), edges[1], messages) + rows


class Reversed(Convolutions):
    """Sums along edges and against them: the gradient of one is the function of the other."""

    def values(self, x: Tensor, edges: Tensor, weights: Tensor) -> Tensor:
        return super().values(x, edges, weights) + super().values(x, edges.flip(0), weights)


class SideBySide(Convolutions):
    """Two layers over the inputs."""

    def values(self, x: Tensor, edges: Tensor, weights: Tensor) -> Tensor:
        first, second = (self._layer(layer(x), edges, weights) for layer in self.layers)
        return first * second


@pytest.mark.parametrize(
    ("kind", "widths", "n_saved"),
    [(ReadTwice, [6, 6], 0), (Reversed, [6, 6], 0), (SideBySide, [6, 6, 6], 3)],
)
def test_several_readers(kind, widths, n_saved):
    """Other readers of the rows keep them; layers over one input share its sum."""
    model = kind(widths)
    step, changed = step_of(model, 6), sum_first(step_of(model, 6))
    assert n_sums(step) - n_sums(changed) == n_saved
    changed.graph.lint()
    arguments = [*(p.detach() for p in model.parameters()), *inputs(6), torch.tensor(0.1)]
    results = zip(changed.module()(*arguments), step.module()(*arguments), strict=True)
    for mine, expected in results:
        torch.testing.assert_close(mine, expected, rtol=1e-4, atol=1e-6)
