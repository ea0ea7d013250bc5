"""Calls that are recorded once and copied give the graph that recording each of them gives."""

import re
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import Tensor, fx, nn
from torch.nn import functional

from tests.ir.steps import captured
from tremula.frontends.poptorch.optim.rule import rule_from
from tremula.ir.graphs import StepGraph, check_order
from tremula.ir.optim.formulas import Updated, WeightToUpdate
from tremula.ir.passes import TILE_PASSES, apply
from tremula.ir.recorder import Recorder
from tremula.ir.text import step_text


class Attention(nn.Module):
    """Layers of one shape with attention and dropout, and a loss."""

    def __init__(self, n_layers: int = 3, dtype: torch.dtype = torch.float32):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(4, 4, dtype=dtype) for _ in range(n_layers))

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            y = layer(x)[None, None]
            x = functional.scaled_dot_product_attention(y, y, y, dropout_p=0.1, is_causal=True)[
                0, 0
            ]
        return functional.mse_loss(x, torch.zeros_like(x))


def texts(make_optimizer: Callable, dtype: torch.dtype = torch.float32) -> tuple[str, ...]:
    """The step as captured, and as tiles get it."""
    model = Attention(dtype=dtype)
    rule = rule_from(make_optimizer(model.parameters()), model.named_parameters())
    step = captured(model, torch.ones(3, 4, dtype=dtype), rule=rule)
    steps = step, apply(step, TILE_PASSES)
    return tuple(re.sub("# optimiser .*", "", step_text(s)) for s in steps)  # without lines


def test_copied_calls_are_the_recorded_ones(monkeypatch):
    """Updates and attention of equal layers give the graphs that recording every call gives."""
    optimizers = (
        (torch.optim.AdamW, torch.float32),
        (lambda p: torch.optim.AdamW(p, maximize=True), torch.float16),
        (lambda p: torch.optim.SGD(p, 0.1, momentum=0.9, nesterov=True), torch.float32),
        (lambda p: torch.optim.RMSprop(p, momentum=0.5, centered=True), torch.float32),
    )
    copied = [texts(*optimizer) for optimizer in optimizers]
    monkeypatch.setattr(Recorder, "repeat", lambda _self, _key, run, tensors: list(run(tensors)))
    assert copied == [texts(*optimizer) for optimizer in optimizers]


def test_weights_of_other_shapes_are_recorded_again():
    """Only weights of one shape, type and group share what was recorded."""
    model = Attention(2)
    model.layers.append(nn.Linear(4, 2))
    rule = rule_from(torch.optim.SGD(model.parameters(), 0.1), model.named_parameters())
    compute, shapes = rule.formula.compute, []

    def counted(weight: WeightToUpdate) -> Updated:
        shapes.append(tuple(weight.value.shape))
        return compute(weight)

    rule = replace(rule, formula=replace(rule.formula, compute=counted))
    captured(model, torch.ones(3, 4), rule=rule)
    assert shapes == [(4, 4), (4,), (2, 4), (2,)]


def test_graphs_of_steps_are_graphs_of_fx():
    """Names, arguments and users are those of fx.Graph, for every way to give arguments."""
    texts = []
    for graph in (fx.Graph(), StepGraph()):
        x = graph.placeholder("x")
        y = graph.call_function(torch.add, (x, 1), {"alpha": 2})
        z = graph.create_node("call_function", torch.cat, ([x, y],), {"dim": 0})
        w = graph.call_function(torch.seed)
        graph.output([graph.node_copy(z), w])
        assert list(x.users) == [y, z, *[n for n in graph.nodes if n.name == "cat_1"]]
        graph.lint()
        texts.append(str(graph))
    assert texts[0] == texts[1]


def test_a_node_before_its_operand_is_an_error():
    """check_order finds what a pass may get wrong."""
    graph = StepGraph()
    x = graph.placeholder("x")
    y = graph.call_function(torch.neg, (x,))
    check_order(graph)
    x.append(late := graph.call_function(torch.exp, (y,)))
    late.args = (y,)
    with pytest.raises(RuntimeError, match="before it has been defined"):
        check_order(graph)
