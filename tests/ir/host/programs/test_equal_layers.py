"""Equal layers of a step are compiled once, and the step computes what it computed."""

from collections.abc import Sequence

import pytest
import torch
from torch import Tensor, fx, nn

from tests.ir.steps import captured, training_step
from tremula.ir.host.programs.equal_layers import PartedGraph, equal_parts, parts_at_outputs
from tremula.ir.host.transfer.outputs import OutputHook, can_leave_early, with_hook
from tremula.ir.passes import HOST_PASSES, apply
from tremula.ir.step import OUTPUT


class Layered(nn.Module):
    """Blocks of the widths that a test wants, and a loss."""

    def __init__(self, widths: Sequence[int]):
        super().__init__()
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.LayerNorm(8), nn.Linear(8, w), nn.Tanh(), nn.Linear(w, 8))
            for w in widths
        )

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = x + block(x)
        return nn.functional.mse_loss(x, torch.zeros_like(x))


class Returning(Layered):
    """Returns what each block computes, its input, and the loss twice."""

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        states = [x]
        for block in self.blocks:
            states.append(states[-1] + block(states[-1]))
        loss = states[-1].square().mean()
        return *states, loss, loss


class Uncompiled:
    """A part that is run as it is, and counts how it is used."""

    def __init__(self, module: fx.GraphModule, _n_results: int):
        self.module, self.n_prepared, self.n_calls = module, 0, 0

    def prepare(self, _args: Sequence[Tensor]) -> None:
        self.n_prepared += 1

    def __call__(self, *args: Tensor) -> list[Tensor]:
        self.n_calls += 1
        return self.module(*args)


def parted(
    widths: Sequence[int],
) -> tuple[PartedGraph | None, list[Uncompiled], list, list[Tensor]]:
    torch.manual_seed(0)
    model, x = Layered(widths), torch.randn(4, 8)
    step = apply(training_step(model, x), HOST_PASSES, "host")
    arguments = [*(p.detach() for p in model.parameters()), x, torch.tensor(0.1)]
    functions: list[Uncompiled] = []

    def compiled(module: fx.GraphModule, n_results: int) -> Uncompiled:
        functions.append(Uncompiled(module, n_results))
        return functions[-1]

    parts = equal_parts(step)
    graph = PartedGraph(step, parts, compiled) if parts else None
    return graph, functions, step.module().forward(*arguments), arguments


def test_equal_layers_are_compiled_once():
    """Six layers take a function forwards and one backwards, besides what is around them."""
    graph, functions, expected, arguments = parted([16] * 6)
    assert graph is not None
    torch.testing.assert_close(graph(*arguments), expected, rtol=0, atol=0)
    assert sorted(f.n_calls for f in functions)[-2:] == [5, 5]
    assert len(functions) <= 5
    n_before = graph.n_compiled
    graph(*arguments)
    assert graph.n_compiled == n_before


def test_parts_are_compiled_without_being_run():
    """`prepare` predicts the operands of every part: running compiles nothing more."""
    graph, functions, expected, arguments = parted([16] * 6)
    assert graph is not None
    graph.prepare(arguments)
    assert all(f.n_prepared == 1 and not f.n_calls for f in functions)
    n_before = graph.n_compiled
    torch.testing.assert_close(graph(*arguments), expected, rtol=0, atol=0)
    assert graph.n_compiled == n_before


def test_results_may_be_anywhere():
    """What layers return, inputs, and results that are returned twice are those of the step."""
    torch.manual_seed(0)
    model, x = Returning([16] * 4), torch.randn(4, 8)
    step = apply(captured(model, x), HOST_PASSES, "host")
    arguments = [*(p.detach() for p in model.parameters()), x]
    graph = PartedGraph(step, equal_parts(step), Uncompiled)
    graph.prepare(arguments)
    results = graph(*arguments)
    assert len(results) == len(step.results()) >= 6
    torch.testing.assert_close(results, list(step.module()(*arguments)), rtol=0, atol=0)


def test_a_step_without_parts_is_an_error():
    """Results that no part computes are named before anything is compiled."""
    step = apply(captured(Layered([16] * 2), torch.randn(4, 8)), HOST_PASSES, "host")
    with pytest.raises(ValueError, match=r"none of the 0 parts computes mse_loss\w*: .* whole"):
        PartedGraph(step, equal_parts(step), Uncompiled)


def test_other_models_are_compiled_whole():
    """Layers of different widths, and models with few layers, are not cut."""
    assert parted([8, 16, 24, 32])[0] is None
    assert parted([16, 16])[0] is None


def test_outputs_leave_after_the_part_that_computes_them():
    """The hook has the loss before gradients are computed, with equal layers or cut in two."""
    for widths, cut in (([16] * 6, equal_parts), ([8, 16, 24], parts_at_outputs)):
        torch.manual_seed(0)
        model, x = Layered(widths), torch.randn(4, 8)
        step = apply(training_step(model, x), HOST_PASSES, "host")
        arguments = [*(p.detach() for p in model.parameters()), x, torch.tensor(0.1)]
        events: list[object] = []

        class Noted(Uncompiled):
            def __call__(self, *args: Tensor) -> list[Tensor]:
                events.append("part")  # noqa: B023
                return super().__call__(*args)

        hook = OutputHook()
        hook.listener = events.append
        graph = PartedGraph(step, cut(step), Noted, hook=hook)
        results = graph(*arguments)
        torch.testing.assert_close(results, list(step.module()(*arguments)), rtol=0, atol=0)
        (outputs,) = (event for event in events if event != "part")
        (position,) = (position for position, _ in step.results_of_kind(OUTPUT))
        assert outputs == (results[position],)
        n_before = events.index(outputs)
        assert 0 < n_before < len(events) - 1, "parts before and after it"
        if cut is parts_at_outputs:
            assert len(events) == 3


def test_steps_with_little_after_their_outputs_are_not_cut():
    """Inference ends with its outputs."""
    step = apply(captured(Layered([8, 16, 24]), torch.randn(4, 8)), HOST_PASSES, "host")
    assert parts_at_outputs(step) == []


def test_operations_one_by_one_call_the_hook_after_the_outputs():
    """The graph that calls it computes what the step computes; the step stays as it is."""
    torch.manual_seed(0)
    model, x = Layered([8, 16]), torch.randn(4, 8)
    step = apply(training_step(model, x), HOST_PASSES, "host")
    arguments = [*(p.detach() for p in model.parameters()), x, torch.tensor(0.1)]
    hook, seen = OutputHook(), []
    hook.listener = seen.append
    n_nodes = len(step.graph.nodes)
    module = with_hook(step, hook)
    nodes = list(module.graph.nodes)
    number = next(i for i, node in enumerate(nodes) if node.op == "call_module")
    assert number < len(nodes) / 2 + 2, "gradients are computed after it"
    results = module(*arguments)
    torch.testing.assert_close(results, step.module()(*arguments), rtol=0, atol=0)
    (position,) = (position for position, _ in step.results_of_kind(OUTPUT))
    assert seen == [(results[position],)]
    assert len(step.graph.nodes) == n_nodes


def test_outputs_that_something_may_write_do_not_leave_early():
    """A weight that forward returns is updated while it would travel; inference has no rest."""

    class ReturnsWeight(Layered):
        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            return self.blocks[0][1].weight, super().forward(x)

    x = torch.randn(4, 8)
    assert can_leave_early(apply(training_step(Layered([8]), x), HOST_PASSES, "host"))
    assert not can_leave_early(apply(training_step(ReturnsWeight([8]), x), HOST_PASSES, "host"))
    assert not can_leave_early(apply(captured(Layered([8]), x), HOST_PASSES, "host"))
