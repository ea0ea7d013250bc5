"""Updates as few expressions: the numbers of the host, and few steps for each weight."""

import copy

import pytest
import torch
from torch import Tensor, nn

import poptorch
import tremula as tr
from tests.ir.steps import captured
from tests.sampling import one_in
from tremula.frontends.poptorch.optim.rule import rule_from
from tremula.ir.lowering.pointwise import fused
from tremula.ir.lowering.pointwise.fused import Folded, lies_like
from tremula.ir.lowering.program.node_queries import is_of_update
from tremula.ir.passes import TILE_PASSES, apply
from tremula.ir.step import CapturedStep
from tremula.poplibs import poplin, poputil


class _Words(nn.Module):
    """A table that is looked up and is the output layer, too: its gradient has two layouts."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(37, 12)
        self.layer = nn.Linear(12, 12)

    def forward(self, words: Tensor) -> tuple[Tensor, Tensor]:
        scores = self.layer(self.table(words)) @ self.table.weight.t()
        return scores, poptorch.identity_loss((scores * scores).float(), "mean")


_OPTIMIZERS = {
    "sgd": lambda w: poptorch.optim.SGD(w, lr=0.1, momentum=0.9, weight_decay=0.1),
    "nesterov": lambda w: poptorch.optim.SGD(w, lr=0.1, momentum=0.9, nesterov=True),
    "adam": lambda w: poptorch.optim.Adam(w, lr=0.1, weight_decay=0.1),
    "adamw": lambda w: poptorch.optim.AdamW(w, lr=0.1, weight_decay=0.1),
    "adamw-half-mean": lambda w: poptorch.optim.AdamW(
        w, lr=0.1, weight_decay=0.1, first_order_momentum_accum_type=torch.half
    ),
    "rmsprop": lambda w: poptorch.optim.RMSprop(w, lr=0.1, momentum=0.5, centered=True),
    "lamb": lambda w: poptorch.optim.LAMB(w, lr=0.1, weight_decay=0.1),
}


def _trained(model: nn.Module, name: str, is_on_tiles: bool) -> list[Tensor]:
    options = poptorch.Options().useIpuModel(is_on_tiles)
    model = copy.deepcopy(model)
    wrapped = poptorch.trainingModel(model, options, _OPTIMIZERS[name](model.parameters()))
    words = torch.arange(6).reshape(2, 3) * 5
    for _ in range(2):
        wrapped(words)
    wrapped.copyWeightsToHost()
    return [p.detach().clone() for p in model.parameters()]


@pytest.mark.slow
@pytest.mark.parametrize("name", one_in(2, ["nesterov", "adamw", "adamw-half-mean", "rmsprop"]))
def test_updates_equal_the_host(name: str):
    """Two steps on tiles leave the weights that the host leaves."""
    torch.manual_seed(3)
    model = _Words()
    for tiles, host in zip(*(_trained(model, name, on) for on in (True, False)), strict=True):
        assert torch.allclose(tiles, host, rtol=1e-4, atol=1e-5)


@pytest.mark.wide
@pytest.mark.parametrize("name", _OPTIMIZERS)
@pytest.mark.parametrize("is_half", [False, True])
def test_updates_of_all_optimisers_equal_the_host(name: str, is_half: bool):
    """So do all optimisers, and halves."""
    torch.manual_seed(4)
    model = _Words().half() if is_half else _Words()
    tolerance = 1e-2 if is_half else 1e-4
    for tiles, host in zip(*(_trained(model, name, on) for on in (True, False)), strict=True):
        assert torch.allclose(tiles.float(), host.float(), rtol=tolerance, atol=tolerance)


class _Line(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.mse_loss(self.layer(x), x[:, :3])


def _step(optimizer: str) -> tuple[Folded, CapturedStep]:
    model = _Line()
    rule = rule_from(_OPTIMIZERS[optimizer](model.parameters()), model.named_parameters())
    step = captured(model, torch.ones(2, 4), rule=rule)
    step = apply(step, TILE_PASSES)
    return Folded(step.graph, dict.fromkeys(step.graph.nodes, 0)), step


@pytest.mark.parametrize("optimizer", ["adamw", "adamw-half-mean"])
def test_a_weight_has_three_expressions(optimizer: str):
    """AdamW is one map for each of mean, square and weight; what is a result is never folded.

    A mean that is kept in half is no tensor in float besides.
    """
    folded, step = _step(optimizer)
    updates = [n for n in step.graph.nodes if n.op == "call_function" and is_of_update(n)]
    computed = [n for n in updates if n not in folded.nodes and n.meta["val"].shape == (3, 4)]
    assert len(computed) == 3
    assert set(computed) <= set(step.results())
    assert not set(step.results()) & set(folded.nodes)


def test_folded_nodes_read_when_their_root_is_computed():
    """A node that is folded reads its operands later: nothing may write over them before."""
    folded, step = _step("adamw")
    order = {node: index for index, node in enumerate(step.graph.nodes)}
    places = folded.places(order)
    assert all(places[n] == max(order[r] for r in roots) for n, roots in folded.nodes.items())
    assert all(places[n] == order[n] for n in order if n not in folded.nodes)


def _n_templates() -> int:
    """Of a training step of 16 equal weights: compute sets that are planned."""
    model = nn.Sequential(*(nn.Linear(4, 4, bias=False) for _ in range(16)))
    optimizer = _OPTIMIZERS["adamw"](model.parameters())
    wrapped = poptorch.trainingModel(_WithMean(model), poptorch.Options(), optimizer)
    wrapped.compile(torch.ones(2, 4))
    sets = wrapped.tile_program().built()[0].graph.state.compute_sets
    return len({id(s.instance.template) for s in sets if s.instance is not None})


def test_updates_of_equal_weights_are_planned_once(monkeypatch: pytest.MonkeyPatch):
    """The numbers of steps have a variable each from 16 weights on, so equal updates are alike."""
    n_planned = _n_templates()
    monkeypatch.setattr(fused, "_N_SCALARS", 1000)
    assert n_planned <= _n_templates() - 15


@pytest.mark.parametrize(("n_in", "n_out"), [(64, 64), (64, 256), (256, 64)])
def test_states_lie_like_their_weights(n_in: int, n_out: int):
    """So a gradient is brought to a weight and its momentum once, however these are described."""
    graph = tr.Graph(tr.IPUModel("bow").create_device())
    params = poplin.ConvParams(
        type=tr.HALF, n_batch=22, field_shape=(56, 56), kernel_shape=(1, 1), n_in_chans=n_in,
        n_out_chans=n_out,
    )  # fmt: skip
    weight = poplin.create_weights(graph, params, partials_type=tr.HALF)
    state = poputil.clone_in_order(graph, weight, "state", type=tr.FLOAT)
    assert lies_like(graph, state, weight)
    assert lies_like(graph, weight, state)
    linear = graph.add_variable(tr.HALF, weight.shape, "linear", mapping="linear")
    assert not lies_like(graph, linear, weight)


class _WithMean(nn.Module):
    def __init__(self, layers: nn.Module) -> None:
        super().__init__()
        self.layers = layers

    def forward(self, x: Tensor) -> Tensor:
        return poptorch.identity_loss(self.layers(x), "mean")
