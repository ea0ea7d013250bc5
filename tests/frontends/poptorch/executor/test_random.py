"""Random numbers of compiled models: seeds, states, and the host's generator left alone."""

import pytest
import torch
from torch import nn

import poptorch


class Drops(nn.Module):
    def __init__(self):
        super().__init__()
        self.drop = nn.Dropout(0.5)

    def forward(self, x):
        return self.drop(x)


X = torch.ones(64)


def make(seed=None, **choices):
    options = poptorch.Options(**choices)
    if seed is not None:
        options.randomSeed(seed)
    return poptorch.inferenceModel(Drops(), options)


def test_same_seed_same_stream():
    """Two fresh models with one seed draw the same numbers; the stream goes on between calls."""
    one, two = make(42), make(42)
    first = [one(X) for _ in range(3)]
    assert all(torch.equal(a, two(X)) for a in first)
    assert not torch.equal(first[0], first[1])
    assert not torch.equal(make(43)(X), first[0])


def test_seed_of_the_host():
    """randomSeed seeds the host's generator at once."""
    poptorch.Options().randomSeed(7)
    got = torch.rand(3)
    torch.manual_seed(7)
    assert torch.equal(got, torch.rand(3))


def test_host_generator_is_left_alone():
    """Running a model draws nothing from the script's generator."""
    model = make()
    model(X)
    torch.manual_seed(5)
    expected = torch.rand(4)
    torch.manual_seed(5)
    model(X)
    assert torch.equal(torch.rand(4), expected)


def test_without_a_seed_the_host_does_not_matter():
    """Without a seed the device's numbers are not tied to torch.manual_seed."""
    torch.manual_seed(1)
    first = make()(X)
    torch.manual_seed(1)
    assert not torch.equal(make()(X), first)


def test_rng_state():
    """rng_state is a list of a seed and a state; setting it goes back to where it was taken."""
    model = make(3)
    model(X)
    state = model.rng_state
    assert state[0] == 3
    assert all(type(word) is int for word in state)
    expected = model(X)
    model.rng_state = state
    assert torch.equal(model(X), expected)
    other = make(99)
    other.rng_state = state
    assert torch.equal(other(X), expected)


def test_wrong_states_are_rejected():
    """A list that is no state says how long one is."""
    model = make(3)
    model(X)
    with pytest.raises(poptorch.Error, match=r"rng_state must be a list of .* whole numbers"):
        model.rng_state = [1, 2]


def test_state_survives_detaching():
    """Detaching and attaching do not disturb the stream."""
    one, two = make(1), make(1)
    one(X), two(X)
    one.detachFromDevice()
    assert torch.equal(one(X), two(X))


def test_evaluation_is_the_identity():
    """Dropout follows model.training as it was when the model was compiled."""
    module = Drops().eval()
    model = poptorch.inferenceModel(module)
    assert torch.equal(model(X), X)
    module.train()
    assert torch.equal(model(X), X)


def test_replicas_and_iterations_differ():
    """No two micro-batches of a call have the same numbers."""
    options = poptorch.Options().deviceIterations(2).replicationFactor(2).randomSeed(0)
    parts = poptorch.inferenceModel(Drops(), options)(torch.ones(256)).chunk(4)
    assert all(not torch.equal(a, b) for i, a in enumerate(parts) for b in parts[:i])


def test_state_of_tiles():
    """A model on tiles has a state too, seeded, that can be restored."""
    layer = nn.Identity()
    layer.forward = lambda x: x * 2
    options = poptorch.Options().useIpuModel(True).randomSeed(11)
    model = poptorch.inferenceModel(layer, options)
    model(X)
    state = model.rng_state
    assert state[0] == 11
    assert len(state) > 1000
    model.rng_state = state
    assert model.rng_state == state


@pytest.mark.parametrize(
    "draw",
    [
        lambda x: torch.zeros_like(x).geometric_(0.1),
        lambda x: torch.zeros_like(x).cauchy_(),
        lambda x: torch.zeros_like(x).log_normal_(),
        lambda x: torch.binomial(x * 50, x * 0.5),
        torch._standard_gamma,
        torch._sample_dirichlet,
        lambda x: poptorch.for_loop(2, lambda y: [y + torch.rand_like(y)], [x])[0],
    ],
)
def test_equal_draws_are_two(draw):
    """Whatever draws: two equal calls give different numbers, none of them the script's."""

    class Twice(torch.nn.Module):
        def forward(self, x):
            return draw(x), draw(x)

    model = poptorch.inferenceModel(Twice())
    before = torch.get_rng_state()
    first, second = model(torch.ones(64))
    assert not torch.equal(first, second)
    assert torch.equal(before, torch.get_rng_state())
