"""Two copies of the weights: who copies what, when; wrapped modules; copies, pickles, ties."""

import copy
import io
import pickle
import types

import pytest
import torch
from torch import nn

import poptorch


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(3, 2)
        self.register_buffer("count", torch.zeros(()))

    def forward(self, x, y=None):
        self.count += 1
        out = self.linear(x)
        if y is None:
            return out
        return out, nn.functional.mse_loss(out, y)


X, Y = torch.ones(4, 3), torch.zeros(4, 2)


def make(**options):
    torch.manual_seed(0)
    model = Model()
    wrapped = poptorch.trainingModel(model, **options)
    return model, wrapped


def count_copies(wrapped):
    """Replace copyWeightsToHost on the object by one that counts."""
    calls = []
    original = wrapped.copyWeightsToHost

    def counting(self):
        calls.append(1)
        original()

    wrapped.copyWeightsToHost = types.MethodType(counting, wrapped)
    return calls


READS = {
    "parameter": lambda m: m.linear.weight.sum(),
    "buffer": lambda m: float(m.count),
    "state_dict": lambda m: m.state_dict(),
    "forward": lambda m: m(X),
    "print": lambda m: str(m.linear.bias),
    "numpy": lambda m: m.linear.bias.detach().numpy(),
    "deepcopy": copy.deepcopy,
    "pickle": pickle.dumps,
    "foreach": lambda m: torch._foreach_norm(list(m.parameters())),
    "part": lambda m: m.linear.state_dict(),
    "write": lambda m: nn.init.zeros_(m.linear.bias),
}


@pytest.mark.parametrize("how", READS)
def test_reading_fetches_once(how):
    """Any way of reading a trained module fetches the weights once, by the object's method."""
    model, wrapped = make()
    calls = count_copies(wrapped)
    wrapped(X, Y)
    wrapped(X, Y)
    assert not calls
    assert wrapped._dirty_host_weights
    READS[how](model)
    READS[how](model)
    assert len(calls) == 1
    assert not wrapped._dirty_host_weights


def test_asking_for_shapes_fetches_nothing():
    """Facts about a tensor that values do not matter for leave the weights where they are."""
    model, wrapped = make()
    calls = count_copies(wrapped)
    wrapped(X, Y)
    assert model.linear.weight.shape == (2, 3)
    assert model.linear.weight.dtype is torch.float32
    assert model.linear.weight.requires_grad
    assert not calls


def test_training_equals_pytorch():
    """What is read after training is what PyTorch's own training gives."""
    model, wrapped = make()
    reference = copy.deepcopy(model)
    optimizer = torch.optim.SGD(reference.parameters(), lr=0.01)
    for _ in range(3):
        wrapped(X, Y)
        optimizer.zero_grad()
        reference(X, Y)[1].backward()
        optimizer.step()
    torch.testing.assert_close(model.linear.weight, reference.linear.weight)
    assert model.count == reference.count == 3


def test_compiling_makes_no_optimiser_states():
    """They take several times the memory of the model, and only a run or a question needs them."""
    model = Model()
    optimizer = poptorch.optim.AdamW(model.parameters())
    wrapped = poptorch.trainingModel(model, optimizer=optimizer)
    wrapped.compile(X, Y)
    session = wrapped.compiled_program().session
    assert not session.state.states
    before = optimizer.state_dict()["ipu_state"]
    assert len(before) == len(session.state.states) > 0
    assert not any(state.any() for state in before.values())
    wrapped(X, Y)
    assert any(state.any() for state in optimizer.state_dict()["ipu_state"].values())


def test_no_flush_before_upload():
    """copyWeightsToDevice overwrites trained weights with what the host has, old as it is."""
    model, wrapped = make()
    before = model.linear.weight.detach().clone()
    wrapped(X, Y)
    wrapped.copyWeightsToDevice()
    wrapped.copyWeightsToHost()
    assert torch.equal(model.linear.weight, before)


def test_host_changes_are_invisible_until_copied():
    """A compiled model does not see changes of the host's weights before copyWeightsToDevice."""
    model = Model()
    wrapped = poptorch.inferenceModel(model)
    first = wrapped(X)
    with torch.no_grad():
        model.linear.weight.add_(1)
    assert torch.equal(wrapped(X), first)
    wrapped.copyWeightsToDevice()
    assert torch.equal(wrapped(X), first + 3)


def test_copies_count_versions():
    """Each copy to the host makes a new version; copyWeightsToHostIfNeeded says if it copied."""
    _, wrapped = make()
    wrapped(X, Y)
    version = wrapped._host_weights_version
    assert wrapped.copyWeightsToHostIfNeeded()
    assert not wrapped.copyWeightsToHostIfNeeded()
    assert wrapped._host_weights_version == version + 1
    wrapped.copyWeightsToHost()
    assert wrapped._host_weights_version == version + 2


@pytest.mark.parametrize("inference_first", [False, True])
def test_inference_follows_training(inference_first):
    """An inference model of the same module computes with the weights trained last."""
    torch.manual_seed(0)
    model = Model()
    inference = poptorch.inferenceModel(model) if inference_first else None
    training = poptorch.trainingModel(model)
    inference = inference or poptorch.inferenceModel(model)
    before = inference(X)
    training(X, Y)
    calls = count_copies(training)
    after = inference(X)
    assert not torch.equal(before, after)
    assert torch.equal(inference(X), after)
    assert len(calls) == 1
    torch.testing.assert_close(after, model(X).detach())
    training(X, Y)
    assert not torch.equal(inference(X), after)


def test_inference_from_an_executor():
    """A wrapped model may be given instead of the module."""
    model, training = make()
    inference = poptorch.inferenceModel(training)
    training(X, Y)
    torch.testing.assert_close(inference(X), model(X).detach())
    assert inference.model is not model
    assert type(inference.model) is Model


def test_buffers_of_inference_stay_on_the_device():
    """A buffer that inference changes reaches the host with an explicit copy only."""
    model = Model()
    wrapped = poptorch.inferenceModel(model)
    wrapped(X)
    wrapped(X)
    assert model.count == 0
    wrapped.copyWeightsToHost()
    assert model.count == 2


def test_wrapped_classes():
    """Module, parameters and buffers become subclasses and go back to what they were."""
    model, wrapped = make()
    assert type(model).__name__ == "PoptorchModel"
    assert isinstance(model, Model)
    assert isinstance(model.linear.weight, nn.Parameter)
    assert type(model.linear.weight) is not nn.Parameter
    wrapped.destroy()
    assert type(model) is Model
    assert type(model.linear.weight) is nn.Parameter
    assert type(model.count) is torch.Tensor


def test_wrapping_twice():
    """A module in training cannot be wrapped again before it is destroyed."""
    model, wrapped = make()
    with pytest.raises(
        RuntimeError,
        match=r"Model has already been wrapped in 'poptorch.trainingModel'. Call model.destroy\(\)",
    ):
        poptorch.trainingModel(model)
    with pytest.raises(RuntimeError, match="parameter weight is shared"):
        poptorch.trainingModel(model.linear)
    wrapped(X, Y)
    model.destroy()
    assert not wrapped.isCompiled()
    again = poptorch.trainingModel(model)
    again(X, Y)
    with pytest.raises(RuntimeError, match="already been wrapped"):
        wrapped(X, Y)


def test_buffers_of_other_classes():
    """A buffer must be a plain tensor."""

    class Own(torch.Tensor):
        pass

    model = Model()
    model.register_buffer("own", torch.zeros(2).as_subclass(Own))
    with pytest.raises(poptorch.Error, match=r"The buffer own is a .*Own"):
        poptorch.trainingModel(model)


def test_destroy_flushes():
    """Destroying keeps what was trained, and the executor compiles again."""
    model, wrapped = make()
    before = model.linear.weight.detach().clone()
    wrapped(X, Y)
    wrapped.destroy()
    assert not torch.equal(model.linear.weight, before)
    before = model.linear.weight.detach().clone()
    wrapped(X, Y)
    assert type(model).__name__ == "PoptorchModel"
    assert not torch.equal(model.linear.weight, before)


def test_weights_outlive_the_executor():
    """Dropping the executor loses nothing: the module still fetches what was trained."""
    model, wrapped = make()
    before = model.linear.weight.detach().clone()
    wrapped(X, Y)
    del wrapped
    assert not torch.equal(model.linear.weight, before)


def test_state_dict_is_plain():
    """The state dictionary holds plain tensors, and aliases of one memory."""
    model, wrapped = make()
    wrapped(X, Y)
    state = model.state_dict()
    assert {type(value) for value in state.values()} == {torch.Tensor}
    assert state["linear.weight"].data_ptr() == model.linear.weight.data_ptr()
    assert list(state) == ["count", "linear.weight", "linear.bias"]
    assert list(wrapped.state_dict()) == list(state)


COPIES = {
    "deepcopy": copy.deepcopy,
    "pickle": lambda m: pickle.loads(pickle.dumps(m)),
    "save": lambda m: _saved(m),  # noqa: PLW0108 - defined below
}


def _saved(model):
    stream = io.BytesIO()
    torch.save(model, stream)
    stream.seek(0)
    return torch.load(stream, weights_only=False)


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(3, 3, bias=False)
        self.second = nn.Linear(3, 3, bias=False)
        self.second.weight = self.first.weight
        self.register_buffer("shown", torch.zeros(2))

    def forward(self, x):
        return poptorch.identity_loss(self.second(self.first(x)), "mean")


@pytest.mark.parametrize("how", COPIES)
def test_copies_are_unwrapped_and_tied(how):
    """Copies have the user's classes, the trained values, and tied parameters are one."""
    model = Tied()
    wrapped = poptorch.trainingModel(model)
    wrapped(X)
    made = COPIES[how](model)
    assert type(made) is Tied
    assert type(made.first.weight) is nn.Parameter
    assert type(made.shown) is torch.Tensor
    assert made.second.weight is made.first.weight
    assert torch.equal(made.first.weight, model.first.weight)
    assert made.first.weight.data_ptr() != model.first.weight.data_ptr()
    assert type(model).__name__ == "PoptorchTied"
    poptorch.trainingModel(made)(X)


def test_tied_parameters_train_as_one():
    """A parameter under two names is updated once, by the gradient of both uses."""
    torch.manual_seed(0)
    model = Tied()
    reference = copy.deepcopy(model)
    poptorch.trainingModel(model)(X)
    reference(X).backward()
    expected = reference.first.weight - 0.01 * reference.first.weight.grad
    torch.testing.assert_close(model.first.weight, expected)
    assert model.second.weight is model.first.weight


def test_load_state_dict_uploads_when_attached():
    """The executor's load_state_dict changes host and device."""
    model, wrapped = make()
    wrapped(X, Y)
    new = {name: torch.ones_like(value) for name, value in model.state_dict().items()}
    wrapped.load_state_dict(new)
    out, _ = wrapped(X, Y)
    assert torch.equal(out, torch.full((4, 2), 4.0))


def test_named_buffers():
    """copyNamedBuffersToDevice sends the buffers the options name, nothing else."""
    options = poptorch.Options().updatableNamedBuffers(["count"])
    model = Model()
    wrapped = poptorch.inferenceModel(model, options)
    first = wrapped(X)
    model.count.fill_(10)
    with torch.no_grad():
        model.linear.weight.add_(1)
    wrapped.copyNamedBuffersToDevice()
    assert torch.equal(wrapped(X), first)
    wrapped.copyWeightsToHost()
    assert model.count == 11


def test_named_buffers_must_be_named():
    """Without the option there is nothing to send."""
    wrapped = poptorch.inferenceModel(Model())
    wrapped(X)
    text = "No named buffers marked as updatable via updatableNamedBuffers option"
    with pytest.raises(poptorch.Error, match=text):
        wrapped.copyNamedBuffersToDevice()


@pytest.mark.parametrize("wrapper", [poptorch.trainingModel, poptorch.inferenceModel])
@pytest.mark.parametrize("names", [["cuont"], ["count", "cuont"], ["linear.weight"]])
def test_named_buffers_must_exist(names, wrapper):
    """A name that no buffer has is an error when the model is compiled."""
    wrapped = wrapper(Model(), poptorch.Options().updatableNamedBuffers(names))
    text = f"updatableNamedBuffers names '{names[-1]}', but the model has no such buffer"
    with pytest.raises(poptorch.Error, match=text):
        wrapped.compile(X, Y)
    assert not wrapped.isCompiled()


def test_parameter_as_attribute():
    """A parameter reached through the executor is itself, and has replicaGrouping."""
    layer = nn.Linear(2, 2)
    layer.scale = nn.Parameter(torch.tensor(2.0))
    wrapped = poptorch.inferenceModel(layer)
    assert wrapped.weight.shape == (2, 2)
    assert torch.equal(wrapped.weight + 0, layer.weight)
    group = (poptorch.CommGroupType.NoGrouping, 0, poptorch.VariableRetrievalMode.OnePerGroup)
    wrapped.weight.replicaGrouping(poptorch.CommGroupType.All, 0, group[2])
    with pytest.raises(
        poptorch.Error, match="Scalars cannot be passed as per-replica weight tensor values"
    ):
        wrapped.scale.replicaGrouping(*group)


def test_tensors_added_later_are_wrapped_too():
    """What is registered after wrapping asks as well, from the next compilation on."""
    model, wrapped = make()
    model.register_buffer("late", torch.zeros(2))
    model.linear.bias = nn.Parameter(torch.ones(2))
    wrapped.compile(X, Y)
    assert type(model.late) is type(model.count)
    assert type(model.linear.bias) is type(model.linear.weight)
    wrapped.destroy()
    assert type(model.late) is torch.Tensor
    assert type(model.linear.bias) is nn.Parameter


def test_restore_wrapper():
    """The inner function that wraps a module again leaves others alone."""
    model, _ = make()
    shared = copy.copy(model)
    assert type(shared) is Model
    assert type(poptorch._impl._restoreWrapperIfNecessary(shared)).__name__ == "PoptorchModel"
    plain = Model()
    assert type(poptorch._impl._restoreWrapperIfNecessary(plain)) is Model


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ("self.y = x.sum(0)", "Buffer y is reassigned within the model when calling the forward"),
        ("del self.y", "Buffer y is removed from the model when calling the forward method"),
        ("self._parameters['w'] = x", "Parameter w is reassigned within the model"),
    ],
)
def test_rebinding_is_rejected(change, text):
    """A static program cannot follow a registered tensor that is replaced or removed."""
    source = f"def forward(self, x):\n    z = x + self.y + self.w\n    {change}\n    return z"
    scope = {}
    exec(source, scope)
    kind = type("Kind", (nn.Module,), {"forward": scope["forward"]})
    model = kind()
    model.register_buffer("y", torch.zeros(3))
    model.w = nn.Parameter(torch.zeros(3))
    with pytest.raises(poptorch.Error, match=text):
        poptorch.inferenceModel(model)(X)
    assert torch.equal(model.y, torch.zeros(3))


def test_plain_tensors_are_constants():
    """A tensor that is no buffer is frozen when the model is compiled."""

    class Holds(nn.Module):
        def __init__(self):
            super().__init__()
            self.shift = torch.tensor([1.0, 2.0, 3.0])

        def forward(self, x):
            return x + self.shift

    model = Holds()
    wrapped = poptorch.inferenceModel(model)
    first = wrapped(X)
    model.shift = torch.zeros(3)
    assert torch.equal(wrapped(X), first)


def test_training_on_the_cpu():
    """A wrapped module trains on the CPU as well; the device sees it after an upload."""
    model, wrapped = make()
    wrapped(X, Y)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    model(X, Y)[1].backward()
    before = model.linear.weight.detach().clone()
    optimizer.step()
    assert not torch.equal(model.linear.weight, before)
    expected = model.linear(X).detach()
    assert not torch.allclose(wrapped(X, Y)[0], expected)
    with torch.no_grad():
        model.linear.weight.fill_(2)
        model.linear.bias.fill_(1)
    wrapped.copyWeightsToDevice()
    assert wrapped(X, Y)[0].tolist() == [[7.0, 7.0]] * 4


@pytest.mark.filterwarnings("ignore:.*weight_norm:FutureWarning")
def test_weight_norm():
    """Modules that cannot be copied, with tensors that other tensors make, train in place."""
    torch.manual_seed(0)
    layer = torch.nn.utils.weight_norm(nn.Linear(3, 2))
    reference = torch.nn.utils.weight_norm(nn.Linear(3, 2))
    reference.load_state_dict(layer.state_dict())
    for module in (layer, reference):
        plain = module.forward
        module.forward = lambda x, f=plain: poptorch.identity_loss(f(x) ** 2, "mean")
    optimizer = torch.optim.SGD(reference.parameters(), lr=0.01)
    wrapped = poptorch.trainingModel(layer)
    for _ in range(2):
        wrapped(X)
        optimizer.zero_grad()
        reference(X).backward()
        optimizer.step()
    torch.testing.assert_close(layer.weight_g, reference.weight_g)
    torch.testing.assert_close(layer.weight_v, reference.weight_v)


def test_modules_reached_through_closures():
    """A module that forward reaches without `self` holds the same tensors."""
    inner = nn.Linear(3, 2)

    class Outer(nn.Module):
        def __init__(self):
            super().__init__()
            self.listed = nn.ModuleList([inner])

        def forward(self, x):
            return poptorch.identity_loss(inner(x), "sum")

    before = inner.bias.detach().clone()
    poptorch.trainingModel(Outer())(X)
    torch.testing.assert_close(inner.bias, before - 0.04)


def test_trained_tensors_print_as_others():
    """Parameters and buffers of a module in training look as they always do."""
    module = nn.BatchNorm1d(2)
    shown = repr(module.weight), repr(module.running_mean)
    wrapped = poptorch.trainingModel(module)
    assert (repr(module.weight), repr(module.running_mean)) == shown
    wrapped.destroy()


def test_errors_name_tensors_and_parameters():
    """Weights of a module in training are called what they are called in PyTorch."""
    model = nn.BatchNorm1d(4)
    poptorch.trainingModel(model)
    with pytest.raises(TypeError, match=r"for \+: 'Parameter' and 'str'"):
        model.weight + "text"
    with pytest.raises(AttributeError, match="'Tensor' object has no attribute 'no_such_thing'"):
        model.running_mean.no_such_thing  # noqa: B018
    with pytest.raises(TypeError, match="must be tuple of Tensors, not Parameter"):
        torch.cat(model.weight)
