"""PoplarExecutor: compiling, attaching, hooks, inner functions."""

import pytest
import torch
from torch import nn

import poptorch
from tests.frontends.poptorch.executor.small_model import NOT_COMPILED, Model, X, Y, training

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
