"""PoplarExecutor: compiling, attaching, hooks, names, anchors, optimisers, inner functions."""

import copy
import json

import pytest
import torch
from torch import nn

import poptorch
import pva


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(3, 4)
        self.relu = nn.ReLU()
        self.fc2 = nn.Linear(4, 2)

    def forward(self, x, y=None):
        out = self.fc2(self.relu(self.fc1(x)))
        return out if y is None else (out, nn.functional.mse_loss(out, y))


X, Y = torch.ones(4, 3), torch.zeros(4, 2)
NOT_COMPILED = "Model has not been compiled or has been destroyed."


def training(options=None, **arguments):
    torch.manual_seed(0)
    model = Model()
    made = {name: make(model.parameters()) for name, make in arguments.items()}
    return model, poptorch.trainingModel(model, options, **made)


# -- compiling -------------------------------------------------------------------------------------


def test_compile_runs_nothing():
    """compile() compiles; a second call is ignored with a warning."""
    model, wrapped = training()
    before = model.fc1.weight.detach().clone()
    assert not wrapped.isCompiled()
    wrapped.compile(X, Y)
    assert wrapped.isCompiled()
    assert torch.equal(model.fc1.weight, before)


def test_compiling_twice(capfd):
    """The second compile() says that it does nothing."""
    _, wrapped = training()
    wrapped.compile(X, Y)
    wrapped.compile(X, Y)
    assert "ignored: the model is already compiled" in capfd.readouterr().err


def test_forward_runs_once():
    """Python code of forward runs once per compilation."""
    seen = []
    layer = nn.Linear(3, 2)
    plain = layer.forward
    layer.forward = lambda x: (seen.append(poptorch.isRunningOnIpu()), plain(x))[1]
    wrapped = poptorch.inferenceModel(layer)
    for _ in range(3):
        wrapped(X)
    assert seen == [True]
    assert not poptorch.isRunningOnIpu()


def test_unknown_options_are_found_when_compiling():
    """Names for the compiler are checked at compile time."""
    options = poptorch.Options()
    options._Popart.set("enableOutlinig", True)
    with pytest.raises(poptorch.Error, match="Unknown bool option enableOutlinig"):
        poptorch.inferenceModel(Model(), options)(X)


def test_options_are_cloned_and_frozen():
    """The caller's options keep their default mode; the model's own are frozen."""
    options = poptorch.Options()
    _, wrapped = training(options)
    assert options.defaultOutputMode()
    assert wrapped.options.output_mode == poptorch.OutputMode.Final
    with pytest.raises(AttributeError, match="Can't modify frozen Options"):
        wrapped.options.deviceIterations(2)


def test_inference_does_not_accumulate():
    """Accumulation is rejected when an inference model is made."""
    options = poptorch.Options()
    options.Training.gradientAccumulation(2)
    with pytest.raises(
        poptorch.Error, match=r"You must set poptorch.Options\(\).Training.gradient"
    ):
        poptorch.inferenceModel(Model(), options)


def test_hooks():
    """Hooks run in order around the recording; removed ones do not; others are rejected."""
    seen = []
    handles = [
        poptorch.registerPreCompileHook(lambda: seen.append("before 1")),
        poptorch.registerPreCompileHook(lambda: seen.append("before 2")),
        poptorch.registerPostCompileHook(lambda: seen.append("after")),
    ]
    layer = nn.Linear(3, 2)
    plain = layer.forward
    layer.forward = lambda x: (seen.append("forward"), plain(x))[1]
    try:
        poptorch.inferenceModel(layer)(X)
    finally:
        for handle in handles:
            handle.remove()
    assert seen == ["before 1", "before 2", "forward", "after"]
    poptorch.inferenceModel(layer)(X)
    assert seen[4:] == ["forward"]
    for register in (poptorch.registerPreCompileHook, poptorch.registerPostCompileHook):
        with pytest.raises(RuntimeError, match="must be callable"):
            register("no function")


def test_attributes_are_those_of_the_module():
    """What the executor lacks the module has; what both lack is an error."""
    model, wrapped = training()
    assert wrapped.fc1 is model.fc1
    assert len(list(wrapped.parameters())) == 4
    wrapped.eval()
    assert not model.training
    with pytest.raises(AttributeError, match="nothing_such"):
        _ = wrapped.nothing_such


def test_repr_is_the_module_tree():
    """repr shows the modules and where blocks begin."""
    model = Model()
    model.fc2 = poptorch.BeginBlock(model.fc2, "second", ipu_id=1)
    shown = repr(poptorch.inferenceModel(model))
    assert shown.startswith("Model(")
    assert "BeginBlock(user_id=second, ipu_id=1)" in shown


def test_hardware():
    """There is no hardware to ask about."""
    assert not poptorch.ipuHardwareIsAvailable()
    with pytest.raises(AssertionError, match="needs IPU hardware"):
        poptorch.ipuHardwareVersion()
    poptorch.poptorchAtExit()


def test_tensor_ids():
    """Tensors of a recording have different numbers; others have none."""
    seen = []
    layer = nn.Identity()
    layer.forward = lambda x: seen.append(
        (poptorch.getIpuTensorId(x), poptorch.getIpuTensorId(x + 1))
    )
    poptorch.inferenceModel(layer)(X)
    assert len(set(seen[0])) == 2
    with pytest.raises(AssertionError, match="inside forward"):
        poptorch.getIpuTensorId(X)


# -- attaching -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "method",
    "attachToDevice detachFromDevice copyWeightsToHost copyWeightsToDevice _debugGetPopartIR"
    " copyNamedBuffersToDevice".split(),
)
def test_device_methods_need_a_program(method):
    """Before compiling and after destroy() there is no device to speak to."""
    _, wrapped = training()
    with pytest.raises(poptorch.Error, match=NOT_COMPILED):
        getattr(wrapped, method)()
    wrapped.compile(X, Y)
    wrapped.destroy()
    with pytest.raises(poptorch.Error, match=NOT_COMPILED):
        getattr(wrapped, method)()


def test_rng_state_needs_a_program():
    """There is no state of random numbers before there is a program."""
    with pytest.raises(poptorch.Error, match=NOT_COMPILED):
        _ = training()[1].rng_state


def test_connection_always():
    """By default a model is attached when it is compiled."""
    _, wrapped = training()
    assert not wrapped.isAttachedToDevice()
    wrapped.compile(X, Y)
    assert wrapped.isAttachedToDevice()
    with pytest.raises(poptorch.Error, match="Device is already attached"):
        wrapped.attachToDevice()
    wrapped.detachFromDevice()
    assert not wrapped.isAttachedToDevice()
    with pytest.raises(poptorch.Error, match="Device is not attached"):
        wrapped.detachFromDevice()


def test_connection_on_demand():
    """OnDemand attaches at the first run."""
    options = poptorch.Options().connectionType(poptorch.ConnectionType.OnDemand)
    _, wrapped = training(options)
    wrapped.compile(X, Y)
    assert not wrapped.isAttachedToDevice()
    wrapped(X, Y)
    assert wrapped.isAttachedToDevice()


@pytest.mark.parametrize("offline", [False, True])
def test_connection_never(offline):
    """Never compiles, but does not run; nor does an offline target."""
    options = poptorch.Options().useIpuModel(False)
    if offline:
        options.useOfflineIpuTarget()
    else:
        options.connectionType(poptorch.ConnectionType.Never)
    _, wrapped = training(options)
    wrapped.compile(X, Y)
    assert not wrapped.isAttachedToDevice()
    with pytest.raises(AssertionError, match="Trying to run a model on an offline device"):
        wrapped(X, Y)


def test_the_model_of_an_ipu_is_never_offline():
    """ConnectionType.Never makes no sense for the IPU model."""
    options = poptorch.Options().connectionType(poptorch.ConnectionType.Never).useIpuModel(True)
    with pytest.raises(poptorch.Error, match="The IPU model does not support"):
        poptorch.inferenceModel(Model(), options).compile(X)


def test_detaching_keeps_everything():
    """A detached model goes on where it was: weights, momentum, and attaches by itself."""
    make = lambda p: poptorch.optim.SGD(p, lr=0.1, momentum=0.9)  # noqa: E731
    (steady, one), (moving, two) = training(optimizer=make), training(optimizer=make)
    for _ in range(3):
        one(X, Y)
        two(X, Y)
        two.detachFromDevice()
    assert torch.equal(steady.fc1.weight, moving.fc1.weight)
    assert not two.isAttachedToDevice()


def test_attaching_uploads_the_weights():
    """Weights changed while detached are used afterwards."""
    model = Model()
    wrapped = poptorch.inferenceModel(model)
    wrapped(X)
    wrapped.detachFromDevice()
    with torch.no_grad():
        model.fc2.bias.fill_(5)
        model.fc2.weight.zero_()
    assert wrapped(X).tolist() == [[5.0, 5.0]] * 4


def test_one_device_has_one_model():
    """Two models that ask for the same device conflict until one lets go."""
    first = poptorch.inferenceModel(Model(), poptorch.Options().useIpuId(7))
    second = poptorch.inferenceModel(Model(), poptorch.Options().useIpuId(7))
    first(X)
    with pytest.raises(poptorch.Error, match="Failed to acquire device 7"):
        second(X)
    first.detachFromDevice()
    second(X)
    second.destroy()
    first(X)


@pytest.mark.parametrize("kind", list(poptorch.ConnectionType))
@pytest.mark.parametrize("is_training", [False, True])
def test_a_model_without_its_device_is_not_compiled(kind, is_training):
    """compile() that cannot attach leaves the model uncompiled; other models attach later."""
    holder = poptorch.inferenceModel(Model(), poptorch.Options().useIpuId(8))
    holder(X)
    options = poptorch.Options().connectionType(kind)
    if kind is not poptorch.ConnectionType.Never:
        options.useIpuId(8)
    wrapper = poptorch.trainingModel if is_training else poptorch.inferenceModel
    model = wrapper(Model(), options)
    arguments = (X, Y) if is_training else (X,)
    if kind is poptorch.ConnectionType.Always:
        with pytest.raises(poptorch.Error, match="Failed to acquire device 8"):
            model.compile(*arguments)
    else:
        model.compile(*arguments)
    assert model.isCompiled() == (kind is not poptorch.ConnectionType.Always)
    assert not model.isAttachedToDevice()
    holder.destroy()
    if kind is not poptorch.ConnectionType.Never:
        model(*arguments)
        assert model.isCompiled()
        assert model.isAttachedToDevice()
        model.destroy()


def test_an_offline_target_has_no_id():
    """A device that is never attached cannot be one of those that are there."""
    options = poptorch.Options().useOfflineIpuTarget().useIpuId(1)
    with pytest.raises(poptorch.Error, match="Offline compilation targeting a specific id"):
        poptorch.inferenceModel(Model(), options).compile(X)


# -- optimisers ------------------------------------------------------------------------------------


def test_set_optimizer():
    """A new learning rate matters after setOptimizer, and only then."""
    model, wrapped = training(optimizer=lambda p: torch.optim.SGD(p, lr=0.0))
    before = model.fc1.weight.detach().clone()
    wrapped._optimizer.param_groups[0]["lr"] = 0.1
    wrapped(X, Y)
    changed = not torch.equal(model.fc1.weight, before)
    assert changed  # the values at the first call are those compiled
    before = model.fc1.weight.detach().clone()
    wrapped._optimizer.param_groups[0]["lr"] = 0.0
    wrapped(X, Y)
    assert not torch.equal(model.fc1.weight, before)
    before = model.fc1.weight.detach().clone()
    wrapped.setOptimizer(wrapped._optimizer)
    wrapped(X, Y)
    assert torch.equal(model.fc1.weight, before)


def test_optimizer_state():
    """state_dict: nothing before compiling, the device's values after it, also after destroy()."""
    make = lambda p: poptorch.optim.Adam(p, lr=0.1, loss_scaling=4.0)  # noqa: E731
    _, wrapped = training(optimizer=make)
    optimizer = wrapped._optimizer
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
    assert wrapped._optimizer.state_dict()["ipu_state"] is None


@pytest.mark.slow
def test_a_loaded_state_goes_on():
    """A state that is loaded into another optimiser continues the training exactly."""
    make = lambda p: poptorch.optim.Adam(p, lr=0.1)  # noqa: E731
    model, wrapped = training(optimizer=make)
    wrapped(X, Y)
    saved_model, saved = copy.deepcopy(model), wrapped._optimizer.state_dict()
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
    optimizer = wrapped._optimizer
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


ON_HOST = [("adam", False, False), *((kind, True, False) for kind in KINDS)]


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
        expected._optimizer.param_groups, reference.named_parameters(), strict=True
    ):
        group["lr"] = rates[name] = 0.05 * (1 + len(rates))
    first = expected._optimizer.state_dict()
    expected.setOptimizer(expected._optimizer)
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
    same = expected._optimizer.state_dict()["ipu_state"]
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
@pytest.mark.parametrize(("kind", "on_tiles"), [*((k, False) for k in KINDS), ("adam", True)])
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
    for optimizer in (expected._optimizer, wrapped._optimizer):
        optimizer.load_state_dict(with_rates_by_weight(optimizer.state_dict(), rates))
    expected(X, Y)
    wrapped(X, Y)
    saved, wanted = wrapped._optimizer.state_dict(), expected._optimizer.state_dict()
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
        wrapped._optimizer.load_state_dict(foreign)
    with pytest.raises(RuntimeError, match="empty"):
        wrapped._optimizer.load_state_dict({})


def test_loss_scaling_is_a_variable():
    """The loss scaling may change without another compilation, and changes no result."""
    model, wrapped = training(optimizer=lambda p: poptorch.optim.SGD(p, lr=0.1, loss_scaling=2.0))
    reference, plain = training(optimizer=lambda p: torch.optim.SGD(p, lr=0.1))
    for scaling in (2.0, 8.0):
        wrapped._optimizer.loss_scaling = scaling
        wrapped.setOptimizer(wrapped._optimizer)
        wrapped(X, Y)
        plain(X, Y)
    torch.testing.assert_close(model.fc1.weight, reference.fc1.weight)
    assert wrapped._optimizer.state_dict()["ipu_param"]["lossScaling_FLOAT"] == 8


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
    optimizer = wrapped._optimizer
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
    wrapped.setOptimizer(wrapped._optimizer)
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
            wrapped._optimizer.step = step
        wrapped(X, Y)
        wrapped.setOptimizer(wrapped._optimizer)
        losses.append(wrapped(X, Y)[1])
    assert losses[0].equal(losses[1])


# -- names and anchors -----------------------------------------------------------------------------


def test_names():
    """Parameters, layers, the loss, gradients and updated weights have names."""
    _, wrapped = training()
    with pytest.raises(AssertionError, match="after the model has been compiled"):
        wrapped.getTensorNames()
    wrapped.compile(X, Y)
    names = wrapped.getTensorNames()
    expected = {"fc1.weight", "input", "loss", "Gradient___fc2.bias", "UpdatedVar___fc1.weight"}
    assert expected <= set(names)
    assert "fc1/Gemm:0" in names
    assert "relu/Relu:0" in names
    assert len(names) == len(set(names))


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (torch.optim.SGD, {"scaledLearningRate0": 0.5, "weightDecayScaleFactor0": 0.95}),
        (poptorch.optim.AdamW, {"learningRate": 0.5, "weightDecay": 0.1}),
    ],
)
def test_hyperparameters_have_names(make, expected):
    """Learning rate and weight decay of each weight are named and can be anchored."""
    options = poptorch.Options()
    for name in expected:
        options.anchorTensor(name, f"{name}___specific___fc1.weight")
    model = Model()
    optimizer = make(model.parameters(), lr=1.0, weight_decay=0.1)
    wrapped = poptorch.trainingModel(model, options, optimizer)
    wrapped(X, Y)
    assert {f"{name}___specific___fc2.bias" for name in expected} <= set(wrapped.getTensorNames())
    optimizer.param_groups[0]["lr"] = 0.5
    wrapped.setOptimizer(optimizer)
    wrapped(X, Y)
    values = {name: float(wrapped.getAnchoredTensor(name)) for name in expected}
    assert values == pytest.approx(expected)


def test_anchors():
    """Anchored tensors are returned by name, each with its own mode."""
    options = poptorch.Options().deviceIterations(2)
    options.anchorTensor("grad", "Gradient___fc2.bias", poptorch.OutputMode.All)
    options.anchorTensor("loss", "loss")
    options.anchorTensor("hidden", "relu/Relu:0", poptorch.OutputMode.Sum)
    options.anchorTensor("new", "UpdatedVar___model.fc2.bias")  # as older PopTorch names weights
    options.anchorTensor("scale", "finalLossScale")
    model, wrapped = training(options)
    reference = copy.deepcopy(model)
    with pytest.raises(AssertionError, match="known after the first call"):
        wrapped.getAnchoredTensor("loss")
    _, loss = wrapped(torch.cat([X, 2 * X]), torch.cat([Y, Y]))
    assert wrapped.getAnchoredTensor("loss") == loss
    assert wrapped.getAnchoredTensor("hidden").shape == (4, 4)
    assert wrapped.getAnchoredTensor("scale") == 1
    assert torch.equal(wrapped.getAnchoredTensor("new"), model.fc2.bias)
    reference(X, Y)[1].backward()
    torch.testing.assert_close(wrapped.getAnchoredTensor("grad")[:2], reference.fc2.bias.grad)
    assert wrapped.getAnchoredTensor("grad").shape == (4,)
    with pytest.raises(AssertionError, match="'other' is not anchored"):
        wrapped.getAnchoredTensor("other")


def test_anchors_must_exist():
    """An unknown name suggests the nearest; updated weights are known at the end only."""
    with pytest.raises(poptorch.Error, match=r"No tensor Gradient___fc2.bia to anchor.*fc2.bias"):
        training(poptorch.Options().anchorTensor("g", "Gradient___fc2.bia"))[1].compile(X, Y)
    options = poptorch.Options().deviceIterations(2)
    options.anchorTensor("g", "UpdatedVar___fc2.bias", poptorch.OutputMode.All)
    with pytest.raises(poptorch.Error, match="after the last device iteration"):
        training(options)[1].compile(X, Y)


def test_ir_as_text():
    """The graph can be read as JSON."""
    _, wrapped = training()
    wrapped.compile(X, Y)
    graph = json.loads(wrapped._debugGetPopartIR())["maingraph"]
    assert {"Gemm", "Relu"} <= {operation["type"] for operation in graph}


def test_profile_folder(tmp_path):
    """enableProfiling makes a folder for each model and writes what is known of its program."""
    options = poptorch.Options().enableProfiling(tmp_path).modelName("small")
    poptorch.inferenceModel(nn.Identity(), options)(X)
    assert (tmp_path / "small" / "profile.txt").read_text()
    assert pva.openReport(str(tmp_path / "small" / "profile.pop")).compilation.target.numIPUs == 1


def test_the_environment_names_the_profile_folder(tmp_path, monkeypatch):
    """As for engines: the environment wins over the script, and what it says wrong is told."""
    variable = "POPLAR_ENGINE_OPTIONS"
    folder = {"autoReport.directory": str(tmp_path / "outer")}
    monkeypatch.setenv(variable, json.dumps(folder))
    options = poptorch.Options().enableProfiling(tmp_path / "own").modelName("small")
    poptorch.inferenceModel(nn.Identity(), options)(X)
    assert [path.name for path in tmp_path.iterdir()] == ["outer"]
    monkeypatch.setenv(variable, "{autoReport")
    with pytest.raises(poptorch.Error, match="POPLAR_ENGINE_OPTIONS is not valid JSON"):
        poptorch.inferenceModel(nn.Identity())(X)


@pytest.mark.slow
def test_weights_stay_in_their_groups():
    """An optimiser that has a weight in another group than the compiled one is rejected."""

    def in_groups(of_parameters):
        first, *rest = of_parameters
        return poptorch.optim.SGD([{"params": [first]}, {"params": rest}], lr=0.1)

    model, wrapped = training(optimizer=in_groups)
    wrapped.compile(X, Y)
    wrapped.setOptimizer(in_groups(model.parameters()))
    with pytest.raises(poptorch.Error, match="was compiled as a member of group 0"):
        wrapped.setOptimizer(in_groups(reversed(list(model.parameters()))))


@pytest.mark.parametrize("on_tiles", [False, True])
def test_one_report_for_a_model(tmp_path, monkeypatch, on_tiles):
    """An engine that computes a model's results writes no second report beside the model's."""
    engine_options = {"autoReport.all": "true", "autoReport.directory": str(tmp_path)}
    monkeypatch.setenv("POPLAR_ENGINE_OPTIONS", json.dumps(engine_options))
    options = poptorch.Options().useIpuModel(on_tiles).modelName("small")
    poptorch.inferenceModel(nn.ReLU(), options)(X)
    assert [path.parent.name for path in tmp_path.rglob("profile.pop")] == ["small"]


# -- floating point --------------------------------------------------------------------------------

EXCEPTIONS = {
    "0/0": lambda x: (x - x) / (x - x),
    "x/0": lambda x: x / (x - x),
    "inf-inf": lambda x: (x * float("inf")) - (x * float("inf")),
    "0*inf": lambda x: (x - x) * (x * float("inf")),
    "sqrt(-1)": lambda x: torch.sqrt(-x),
    "exp overflow": lambda x: torch.exp(x * 1000),
}


@pytest.mark.parametrize("how", EXCEPTIONS)
def test_floating_point_exceptions(how):
    """With the option on, the operation that goes wrong is an error; by default values pass."""
    layer = nn.Identity()
    layer.forward = EXCEPTIONS[how]
    assert not torch.isfinite(poptorch.inferenceModel(layer)(torch.ones(2))).any()
    options = poptorch.Options()
    options.Precision.enableFloatingPointExceptions(True)
    with pytest.raises(poptorch.Error, match="Floating point exception: aten"):
        poptorch.inferenceModel(layer, options)(torch.ones(2))


def test_comparing_with_nan():
    """A comparison with a NaN is an exception; masks of infinities are not."""
    options = poptorch.Options()
    options.Precision.enableFloatingPointExceptions(True)
    layer = nn.Identity()
    layer.forward = lambda x: x > 0
    with pytest.raises(poptorch.Error, match="compares with a NaN"):
        poptorch.inferenceModel(layer, options)(torch.tensor([float("nan")]))
    layer.forward = lambda x: torch.softmax(x.masked_fill(x > 1, float("-inf")), 0)
    assert poptorch.inferenceModel(layer, options)(torch.tensor([1.0, 2.0])).tolist() == [1, 0]


def test_floating_point_exceptions_of_tiles():
    """Tiles stop as well."""
    options = poptorch.Options().useIpuModel(True)
    options.Precision.enableFloatingPointExceptions(True)
    layer = nn.Identity()
    layer.forward = EXCEPTIONS["x/0"]
    with pytest.raises(poptorch.Error, match=r"(?i)floating.point"):
        poptorch.inferenceModel(layer, options)(torch.ones(2))


INFINITIES = {
    "masked softmax": lambda x: torch.softmax(x.masked_fill(x > 0.5, float("-inf")), 0),
    "where": lambda x: torch.where(x > 0.5, x, torch.full_like(x, float("inf"))),
    "scatter max": lambda x: x.new_zeros(40, 2).scatter_reduce(
        0, torch.arange(300).view(-1, 1).expand(-1, 2) % 39, x, "amax", include_self=False
    ),
    "scatter min": lambda x: x.new_zeros(40, 2).scatter_reduce(
        0, torch.arange(300).view(-1, 1).expand(-1, 2) % 39, x, "amin"
    ),
}


@pytest.mark.parametrize("how", INFINITIES)
def test_infinities_of_tiles_that_nothing_overflowed_to(how):
    """Tiles do not stop at an infinity that a mask or the start of a maximum holds."""
    options = poptorch.Options().useIpuModel(True)
    options.Precision.enableFloatingPointExceptions(True)
    layer, x = nn.Identity(), torch.rand(300, 2, generator=torch.Generator().manual_seed(0))
    layer.forward = INFINITIES[how]
    torch.testing.assert_close(poptorch.inferenceModel(layer, options)(x), INFINITIES[how](x))


def test_variables_of_the_ipu_model(monkeypatch):
    """Scripts choose the modelled machine by PopTorch's variables: its version, and a small one."""
    monkeypatch.setenv("POPTORCH_SMALL_IPU_MODEL", "1")
    monkeypatch.setenv("POPTORCH_IPU_MODEL_VERSION", "ipu1")
    model, x = nn.Linear(3, 2), torch.ones(4, 3)
    wrapped = poptorch.inferenceModel(model)
    torch.testing.assert_close(wrapped(x), model(x).detach())
    target = wrapped.tile_program().device().target
    assert target.n_tiles == 4
    assert target.chip.name == "GC2"


@pytest.mark.parametrize("make", [nn.LSTM, nn.GRU, nn.RNN])
def test_a_recurrent_net_that_is_the_model(make):
    """Compiled or not, it is called natively as before: no tensor of the recording stays in it."""
    net = make(4, 3)
    x = torch.linspace(-1, 1, 24).reshape(3, 2, 4)
    wanted, _ = net(x)
    weights = list(net._flat_weights)
    with pytest.raises(RuntimeError):
        poptorch.inferenceModel(net)(x[..., :2])
    result, _ = poptorch.inferenceModel(net)(x)
    torch.testing.assert_close(result, wanted)
    assert torch.equal(net(x)[0], wanted)
    assert all(a is b for a, b in zip(net._flat_weights, weights, strict=True))
