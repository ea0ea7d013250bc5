"""Gradients are added up over micro-batches as soon as they are computed."""

import torch
from torch import nn
from torch.nn.functional import mse_loss

from tests.ir.steps import training_step
from tremula.compiler.compile import compile_graph
from tremula.ir.lowering.program.build import Schedule, build_tile_program
from tremula.ir.passes import TILE_PASSES, apply
from tremula.poplar.target import IPUModel

GRADIENT = torch.ops.tremula.gradient.default


class Tower(nn.Module):
    """Layers whose weights are much larger than what passes between them."""

    def __init__(self, n_layers):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(64, 64) for _ in range(n_layers)])

    def forward(self, x):
        y = x
        for layer in self.layers:
            y = torch.tanh(layer(y))
        return mse_loss(y, x)


def temporary_bytes(step):
    """Of all tiles at their fullest, in a program that adds up four micro-batches."""
    target = IPUModel("bow", tiles_per_ipu=4).create_device().target
    built = build_tile_program(step, target, Schedule(n_accumulation=4), None)
    return int(compile_graph(built.graph, [built.program]).analysis.memory.temporary.sum())


def test_marks_follow_what_they_mark():
    """In the order of the backward pass: last layer first."""
    step = apply(training_step(Tower(3), torch.randn(2, 64)), TILE_PASSES)
    assert step.rule is not None
    marked = [step.rule.names[n.args[1]] for n in step.graph.nodes if n.target is GRADIENT]
    weights = [name for name in marked if name.endswith("weight")]
    assert weights == [f"layers.{i}.weight" for i in (2, 1, 0)]


def test_gradients_do_not_wait_for_each_other():
    """One gradient at a time lies beside its sum: six layers need little more than two."""
    x = torch.randn(2, 64)
    late = tuple(p for p in TILE_PASSES if p[0] != "mark gradients early")
    early_bytes, late_bytes = (
        temporary_bytes(apply(training_step(Tower(6), x), passes)) for passes in (TILE_PASSES, late)
    )
    assert early_bytes < late_bytes - 4 * 64 * 64 * 4
