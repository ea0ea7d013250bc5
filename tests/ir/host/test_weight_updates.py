"""Generated kernels of weight updates: what they compute, and which weights share a launch."""

import pytest
import torch
from torch import nn

from tremula.frontends.poptorch.optim.rule import rule_from
from tremula.ir.host.weight_updates.source import update_source
from tremula.ir.host.weight_updates.update import FusedUpdate, chunk_table, update_batches
from tremula.ir.optim.grouped_rule import GroupedRule

needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
OPTIMISERS = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.1),
    "momentum": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.1),
    "adam": lambda p: torch.optim.Adam(p, lr=0.01, weight_decay=0.1),
    "adamw": lambda p: torch.optim.AdamW(p, lr=0.01, maximize=True),
    "rmsprop": lambda p: torch.optim.RMSprop(p, lr=0.01, centered=True, momentum=0.5),
}


def tensors_of(make: object, device: str = "cpu", dtype: torch.dtype = torch.bfloat16) -> tuple:
    """A rule with weights in two types, their gradients, states and hyperparameters."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(10, 7).to(dtype), nn.Linear(3, 5), nn.Linear(9, 2).to(dtype))
    rule = rule_from(make(model.parameters()), model.named_parameters())
    assert isinstance(rule, GroupedRule)
    params = [p.detach().to(device) for p in model.parameters()]
    grads = [torch.randn_like(p) for p in params]
    hyper = [torch.tensor(0.01, device=device) for _ in rule.hyper_names]
    return rule, params, grads, rule.initial_state(params), hyper


@pytest.mark.parametrize("name", OPTIMISERS)
def test_one_launch_updates_all_weights_of_a_type(name):
    """Weights in bfloat16 and in float32 are two launches, however many there are."""
    rule, params, grads, states, _ = tensors_of(OPTIMISERS[name])
    batches = update_batches(rule, params, grads, states)
    assert batches is not None
    assert [batch.members for batch in batches] == [(0, 1, 4, 5), (2, 3)]
    text = update_source(batches[0].kind) or ""
    assert "tl.pointer_type(tl.bfloat16)" in text
    assert text.count("tl.store") == 2 * (1 + len(batches[0].kind.states))


def test_formulas_with_norms_of_weights_have_no_kernel():
    """LAMB needs the norm of a whole weight: its update stays as it is."""
    import poptorch

    make = lambda p: poptorch.optim.LAMB(p, lr=0.01)  # noqa: E731
    rule, params, grads, states, _ = tensors_of(make)
    assert update_batches(rule, params, grads, states) is None


def test_chunks_cover_every_weight_once():
    """Programs see (weight, chunk): as many chunks as a weight needs, none for an empty one."""
    assert chunk_table([5, 0, 4], chunk=4) == [[0, 0], [0, 1], [2, 0]]


@needs_gpu
@pytest.mark.parametrize("name", OPTIMISERS)
def test_kernels_compute_the_rule(name):
    """Two steps by kernels are those of the functional update."""
    rule, params, grads, states, hyper = tensors_of(OPTIMISERS[name], "cuda")
    expected = params, states
    for _ in range(2):
        expected = rule.update(expected[0], grads, expected[1], hyper)
    update = FusedUpdate(rule)
    for _ in range(2):
        assert update.run(params, grads, states, hyper)
    for result, other in zip((*params, *states), (*expected[0], *expected[1]), strict=True):
        torch.testing.assert_close(
            result, other, rtol=1e-2 if result.dtype.itemsize == 2 else 1e-5, atol=1e-6
        )


def test_only_halves_round_stochastically():
    """A kernel for float32 tensors has no random numbers; one for halves has a seed."""
    rule, params, grads, states, _ = tensors_of(OPTIMISERS["sgd"])
    batches = update_batches(rule, params, grads, states, rounds_stochastically=True)
    assert batches is not None
    texts = [update_source(batch.kind) or "" for batch in batches]
    assert ["seed" in text for text in texts] == [True, False]
    assert "_rounded_bfloat16(" in texts[0]


@needs_gpu
@pytest.mark.parametrize("start", [1.0, 1.3, -3.0])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_stochastic_rounding_has_the_right_mean(dtype, start):
    """Steps of a tenth of what the type resolves add up in the mean, and to the nearest do not."""
    weight = nn.Parameter(torch.full((100_000,), start, dtype=dtype))
    rule = rule_from(torch.optim.SGD([weight], lr=1.0), [("weight", weight)])
    size = torch.finfo(dtype).eps / 10
    moved = {}
    for rounds in (False, True):
        params = [weight.detach().to("cuda").clone()]
        update = FusedUpdate(rule, rounds_stochastically=rounds)
        hyper = [torch.tensor(1.0, device="cuda") for _ in rule.hyper_names]
        for _ in range(5):
            assert update.run(params, [torch.full_like(params[0], -size)], [], hyper)
        moved[rounds] = float((params[0].cpu().double() - weight.detach().double()).mean()) / size
    assert moved[False] == 0
    assert abs(moved[True] - 5) < 0.3
