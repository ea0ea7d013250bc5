"""Optimisers of a compiled model: set, read and loaded states, loss scaling."""

import copy

import pytest
import torch
from torch import nn

import poptorch
from tests.frontends.poptorch.executor.small_model import Model, X, Y, training
from tests.sampling import one_in


def test_set_optimizer():
    """A new learning rate matters after setOptimizer, and only then."""
    model, wrapped = training(optimizer=lambda p: torch.optim.SGD(p, lr=0.0))
    before = model.fc1.weight.detach().clone()
    wrapped.current_optimizer.param_groups[0]["lr"] = 0.1
    wrapped(X, Y)
    changed = not torch.equal(model.fc1.weight, before)
    assert changed  # the values at the first call are those compiled
    before = model.fc1.weight.detach().clone()
    wrapped.current_optimizer.param_groups[0]["lr"] = 0.0
    wrapped(X, Y)
    assert not torch.equal(model.fc1.weight, before)
    before = model.fc1.weight.detach().clone()
    wrapped.setOptimizer(wrapped.current_optimizer)
    wrapped(X, Y)
    assert torch.equal(model.fc1.weight, before)


def test_optimizer_state():
    """state_dict: nothing before compiling, the device's values after it, also after destroy()."""
    make = lambda p: poptorch.optim.Adam(p, lr=0.1, loss_scaling=4.0)  # noqa: E731
    _, wrapped = training(optimizer=make)
    optimizer = wrapped.current_optimizer
    assert optimizer.state_dict()["ipu_state"] is None
    assert optimizer.state_dict()["ipu_param"] is None
    wrapped.compile(X, Y)
    state = optimizer.state_dict()
    assert state["ipu_state"]["Accl1___fc1.weight"].abs().sum() == 0
    assert state["ipu_param"]["lossScaling_FLOAT"] == 4
    wrapped(X, Y)
    first = optimizer.state_dict()["ipu_state"]
    assert first["Step___fc1.weight"] == 1
    wrapped(X, Y)
    assert first["Step___fc1.weight"] == 1  # what was given stays as it was
    wrapped.destroy()
    last = optimizer.state_dict()
    assert last["ipu_state"]["Step___fc1.weight"] == 2
    assert last["ipu_state"]["Accl1___fc2.weight"].shape == (2, 4)


def test_offline_optimizer_has_no_state():
    """Without a device the state stays None."""
    options = poptorch.Options().useIpuModel(False).useOfflineIpuTarget()
    _, wrapped = training(options, optimizer=lambda p: poptorch.optim.Adam(p, lr=0.1))
    wrapped.compile(X, Y)
    assert wrapped.current_optimizer.state_dict()["ipu_state"] is None


@pytest.mark.slow
def test_a_loaded_state_goes_on():
    """A state that is loaded into another optimiser continues the training exactly."""
    make = lambda p: poptorch.optim.Adam(p, lr=0.1)  # noqa: E731
    model, wrapped = training(optimizer=make)
    wrapped(X, Y)
    saved_model, saved = copy.deepcopy(model), wrapped.current_optimizer.state_dict()
    wrapped(X, Y)
    for compile_first in (False, True):
        other = copy.deepcopy(saved_model)
        optimizer = make(other.parameters())
        again = poptorch.trainingModel(other, None, optimizer)
        if compile_first:
            again.compile(X, Y)
        optimizer.load_state_dict(saved)
        again(X, Y)
        assert torch.equal(other.fc1.weight, model.fc1.weight)


def test_partial_states():
    """Missing entries keep the device's value."""
    _, wrapped = training(optimizer=lambda p: poptorch.optim.Adam(p, lr=0.1))
    wrapped(X, Y)
    optimizer = wrapped.current_optimizer
    saved = optimizer.state_dict()
    before = saved["ipu_state"]["Accl2___fc1.weight"].clone()
    only = {"Step___fc1.weight": torch.tensor(41.0)}
    optimizer.load_state_dict({**saved, "ipu_state": only})
    wrapped(X, Y)
    after = optimizer.state_dict()["ipu_state"]
    assert after["Step___fc1.weight"] == 42
    assert after["Step___fc2.weight"] == 2
    assert not torch.equal(after["Accl2___fc1.weight"], before)


KINDS = {
    "sgd": lambda p: poptorch.optim.SGD(p, lr=0.1),
    "momentum": lambda p: poptorch.optim.SGD(p, lr=0.1, momentum=0.5, loss_scaling=4.0),
    "combined": lambda p: poptorch.optim.SGD(
        p, lr=0.1, momentum=0.5, weight_decay=0.1, use_combined_accum=True
    ),
    "adam": lambda p: poptorch.optim.Adam(p, lr=0.1),
    "adamw": lambda p: poptorch.optim.AdamW(p, lr=0.1, betas=(0.8, 0.9)),
    "rmsprop": lambda p: poptorch.optim.RMSprop(p, lr=0.1),
    "lamb": lambda p: poptorch.optim.LAMB(p, lr=0.1),
}


def with_rates_by_weight(state, rates):
    """A saved state in which each weight has its own learning rate."""
    numbers = {}
    for key, value in state["ipu_param"].items():
        numbers[key] = value
        if "earningRate" in key:
            numbers[key] = value * (rates[key.rpartition("___")[2]] / 0.1)
        elif key.startswith("weightDecayScaleFactor0"):
            numbers[key] = torch.tensor(1.0)  # no decay, whatever the rate
    return {**state, "ipu_param": numbers}


ON_HOST = [("adam", False, False), *one_in(3, ((kind, True, False) for kind in KINDS))]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "is_compiled_first", "on_tiles"), [*ON_HOST, ("momentum", True, True)]
)
def test_numbers_of_each_weight(kind, is_compiled_first, on_tiles, monkeypatch):
    """Loaded numbers are each weight's own: they train it, and are read back as they were."""
    monkeypatch.setenv("POPTORCH_SMALL_IPU_MODEL", "1")
    options = poptorch.Options().useIpuModel(on_tiles)
    reference, expected = training(
        options, optimizer=lambda p: KINDS[kind]([{"params": [w]} for w in p])
    )
    expected(X, Y)
    model = copy.deepcopy(reference)
    rates = {}
    for group, (name, _) in zip(
        expected.current_optimizer.param_groups, reference.named_parameters(), strict=True
    ):
        group["lr"] = rates[name] = 0.05 * (1 + len(rates))
    first = expected.current_optimizer.state_dict()
    expected.setOptimizer(expected.current_optimizer)
    optimizer = KINDS[kind](model.parameters())
    wrapped = poptorch.trainingModel(model, options, optimizer)
    if is_compiled_first:
        wrapped.compile(X, Y)
    loaded = with_rates_by_weight(first, rates)
    optimizer.load_state_dict(
        {**optimizer.state_dict(), **{k: loaded[k] for k in ("ipu_state", "ipu_param")}}
    )
    for _ in range(2):
        expected(X, Y)
        wrapped(X, Y)
    for name, weight in reference.named_parameters():
        torch.testing.assert_close(model.get_parameter(name), weight, rtol=1e-5, atol=1e-6)
    result = optimizer.state_dict()
    torch.testing.assert_close(result["ipu_param"], loaded["ipu_param"], rtol=1e-5, atol=1e-6)
    same = expected.current_optimizer.state_dict()["ipu_state"]
    torch.testing.assert_close(result["ipu_state"], same, rtol=1e-4, atol=1e-6)
    for group in optimizer.param_groups:
        group["lr"] = 0.0
    wrapped.setOptimizer(optimizer)  # sets those of all weights again
    before = model.fc1.weight.detach().clone()
    wrapped(X, Y)
    assert kind == "lamb" or torch.equal(model.fc1.weight, before)


class WithSpares(Model):
    """A model between weights that the loss does not depend on."""

    def __init__(self):
        spare = nn.Linear(3, 4)
        super().__init__()
        modules, self._modules = self._modules, {}
        self.first = spare
        self._modules.update(modules)
        self.last = nn.GRUCell(3, 2)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "on_tiles"), [*one_in(3, ((k, False) for k in KINDS)), ("adam", True)]
)
def test_weights_without_a_gradient(kind, on_tiles, monkeypatch):
    """They stay as they are and have no state; the others train, save and load as without them."""
    monkeypatch.setenv("POPTORCH_SMALL_IPU_MODEL", "1")
    options = poptorch.Options().useIpuModel(on_tiles)
    reference, expected = training(options, optimizer=KINDS[kind])
    model = WithSpares()
    model.load_state_dict(reference.state_dict(), strict=False)
    spares = {n: w.detach().clone() for n, w in model.named_parameters() if not n.startswith("fc")}
    assert len(spares) == 6
    wrapped = poptorch.trainingModel(model, options, KINDS[kind](model.parameters()))
    for _ in range(2):
        expected(X, Y)
        wrapped(X, Y)
    rates = {name: 0.2 for name, _ in reference.named_parameters()}
    rates["fc1.bias"] = 0.1  # other than its group's: compiled again, by weight
    for optimizer in (expected.current_optimizer, wrapped.current_optimizer):
        optimizer.load_state_dict(with_rates_by_weight(optimizer.state_dict(), rates))
    expected(X, Y)
    wrapped(X, Y)
    saved, wanted = wrapped.current_optimizer.state_dict(), expected.current_optimizer.state_dict()
    for name, weight in model.named_parameters():
        same = spares[name] if name in spares else reference.get_parameter(name)
        torch.testing.assert_close(weight, same, rtol=1e-6, atol=0 if name in spares else 1e-6)
    torch.testing.assert_close(saved["ipu_state"], wanted["ipu_state"], rtol=1e-5, atol=1e-6)
    assert saved["ipu_param"].keys() == wanted["ipu_param"].keys()


def test_foreign_states():
    """States of torch's own optimisers, and empty ones, are rejected."""
    model, wrapped = training(optimizer=lambda p: poptorch.optim.Adam(p, lr=0.1))
    wrapped(X, Y)
    foreign = torch.optim.Adam(model.parameters(), lr=0.1).state_dict()
    with pytest.raises(RuntimeError, match="Only IPU optimizer states can be loaded onto the IPU"):
        wrapped.current_optimizer.load_state_dict(foreign)
    with pytest.raises(RuntimeError, match="empty"):
        wrapped.current_optimizer.load_state_dict({})


def test_loss_scaling_is_a_variable():
    """The loss scaling may change without another compilation, and changes no result."""
    model, wrapped = training(optimizer=lambda p: poptorch.optim.SGD(p, lr=0.1, loss_scaling=2.0))
    reference, plain = training(optimizer=lambda p: torch.optim.SGD(p, lr=0.1))
    for scaling in (2.0, 8.0):
        wrapped.current_optimizer.loss_scaling = scaling
        wrapped.setOptimizer(wrapped.current_optimizer)
        wrapped(X, Y)
        plain(X, Y)
    torch.testing.assert_close(model.fc1.weight, reference.fc1.weight)
    assert wrapped.current_optimizer.state_dict()["ipu_param"]["lossScaling_FLOAT"] == 8


@pytest.mark.slow
@pytest.mark.parametrize(("n_iterations", "on_tiles"), [(1, False), (3, False), (2, True)])
def test_automatic_loss_scaling_in_the_state(n_iterations, on_tiles, monkeypatch):
    """The state has the factor of the scale; finalLossScale is what the last step used."""
    monkeypatch.setenv("POPTORCH_SMALL_IPU_MODEL", "1")
    options = poptorch.Options().useIpuModel(on_tiles).deviceIterations(n_iterations)
    options.Training.setAutomaticLossScaling(True)
    options.anchorTensor("scale", "finalLossScale")
    make = lambda p: poptorch.optim.SGD(p, lr=1e-3, loss_scaling=4.0)  # noqa: E731
    model, wrapped = training(options, optimizer=make)
    optimizer = wrapped.current_optimizer
    arguments = torch.cat([X] * n_iterations), torch.cat([Y] * n_iterations)
    wrapped.compile(*arguments)
    for call in range(3):
        factor = optimizer.state_dict()["ipu_state"]["lossScaleUpdateFactor"]
        assert factor == 2.0 ** (call * n_iterations)
        optimizer.param_groups[0]["lr"] = 1e-4
        wrapped.setOptimizer(optimizer)  # a new rate keeps the factor
        wrapped(*arguments)
        assert wrapped.getAnchoredTensor("scale") == 4 * factor * 2 ** (n_iterations - 1)
    saved = optimizer.state_dict()
    assert saved["ipu_param"]["lossScaling_FLOAT"] == 4
    wrapped.destroy()
    again = make(model.parameters())
    wrapped = poptorch.trainingModel(model, options, again)
    again.load_state_dict(saved)
    wrapped(*arguments)
    assert again.state_dict()["ipu_state"]["lossScaleUpdateFactor"] == 2.0 ** (4 * n_iterations)


def test_subclasses_are_told_when_they_are_set(capsys):
    """A subclass is warned about when a model gets it, each one once, not when it compiles."""

    class Mine(poptorch.optim.SGD):
        pass

    text = "Poptorch does not run Python optimizer code directly"
    _, wrapped = training(optimizer=lambda p: Mine(p, lr=0.1))
    assert capsys.readouterr().err.count(text) == 1
    wrapped(X, Y)
    wrapped.setOptimizer(wrapped.current_optimizer)
    assert text not in capsys.readouterr().err
    wrapped.setOptimizer(Mine(wrapped.parameters(), lr=0.2))
    assert capsys.readouterr().err.count(text) == 1
    training(optimizer=lambda p: poptorch.optim.SGD(p, lr=0.1))
    assert text not in capsys.readouterr().err


def test_optimizer_whose_step_is_no_function():
    """An optimiser's step() is never called: whatever it is, the model trains alike."""
    losses = []
    for step in (None, 0):
        _, wrapped = training(optimizer=lambda p: torch.optim.SGD(p, lr=0.1))
        if step is not None:
            wrapped.current_optimizer.step = step
        wrapped(X, Y)
        wrapped.setOptimizer(wrapped.current_optimizer)
        losses.append(wrapped(X, Y)[1])
    assert losses[0].equal(losses[1])
