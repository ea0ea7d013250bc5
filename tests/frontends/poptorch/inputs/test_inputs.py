"""What goes into a model: sizes, static shapes and values, writes to inputs, factories, types."""

import re

import pytest
import torch
from torch import nn

import poptorch


class Returns(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x)


def infer(function, *args, options=None):
    return poptorch.inferenceModel(Returns(function), options)(*args)


class Two(nn.Module):
    def forward(self, a, b, scale=1.0, *, shift=None):
        out = (a + b) * scale
        return out if shift is None else out + shift


A, B = torch.ones(2), torch.full((2,), 2.0)


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda m: m(A, torch.ones(3)), r"Shape mismatch for b: expected torch.Size\(\[2\]\)"),
        (lambda m: m(A, B.int()), "Data type mismatch for b: expected torch.float32 but got"),
        (lambda m: m(A, 3.0), "Type mismatch for b"),
        (lambda m: m(A, B, 2.0), "Value mismatch for scale: expected 1.0 but got 2.0"),
        (lambda m: m(A, B, shift=A), "Type mismatch for shift"),
        (lambda m: m(A), "Mandatory parameter b missing"),
    ],
)
def test_later_calls_must_match(call, text):
    """Shapes, types and values of the first call are fixed; destroy() lets others in."""
    model = poptorch.inferenceModel(Two())
    model(A, B)
    with pytest.raises(poptorch.Error, match=text) as caught:
        call(model)
    if "Mandatory" not in text:
        assert "destroy()" in caught.value.message


def test_destroy_lets_other_inputs_in():
    """An executor compiles again for other shapes."""
    model = poptorch.inferenceModel(Two())
    model(A, B)
    model.destroy()
    assert not model.isCompiled()
    assert model(torch.ones(3), torch.ones(3)).shape == (3,)


def test_keywords_are_normalised():
    """Positional and keyword forms of the same call are the same call."""
    model = poptorch.inferenceModel(Two())
    first = model(A, b=B)
    assert torch.equal(model(b=B, a=A), first)
    assert torch.equal(model(A, B, 1.0, shift=None), first)


def test_too_many_arguments():
    """More positional arguments than forward takes are rejected."""
    with pytest.raises(AssertionError, match="forward takes 3 positional arguments, but 4"):
        poptorch.inferenceModel(Two())(A, B, 1.0, 2.0)


@pytest.mark.parametrize(
    ("iterations", "replicas", "accumulation"), [(2, 1, 1), (1, 2, 2), (3, 2, 2)]
)
def test_batch_dimension(iterations, replicas, accumulation):
    """An input that cannot be cut evenly is rejected, with all numbers of the product."""
    options = poptorch.Options().deviceIterations(iterations).replicationFactor(replicas)
    options.Training.gradientAccumulation(accumulation)
    model = poptorch.trainingModel(nn.Linear(1, 1), options)
    with pytest.raises(AssertionError) as caught:
        model(torch.ones(iterations * replicas * accumulation + 1))
    text = str(caught.value)
    assert "Invalid batch dimension: In the input" in text
    assert f"Options.deviceIterations({iterations})" in text
    assert f"gradientAccumulation({accumulation})" in text


def test_scalars_need_one_micro_batch():
    """A 0-dim tensor counts as a batch of one."""
    assert infer(lambda x: x + 1, torch.tensor(1.0)) == 2
    options = poptorch.Options().deviceIterations(2)
    with pytest.raises(AssertionError, match="Invalid batch dimension"):
        infer(lambda x: x + 1, torch.tensor(1.0), options=options)


def test_inputs_are_written_back():
    """In-place changes of inputs reach the caller's tensors, whatever was copied on the way."""

    def double(x):
        x.mul_(2)
        return x + 0

    x = torch.ones(4)
    out = infer(double, x, options=poptorch.Options().deviceIterations(2))
    assert x.tolist() == out.tolist() == [2.0] * 4
    wide = torch.ones(2, dtype=torch.float64)
    infer(double, wide)
    assert wide.tolist() == [2.0, 2.0]
    strided = torch.ones(2, 3).t()
    infer(double, strided)
    assert strided.sum() == 12


def test_inputs_are_written_back_from_tiles():
    """In-place changes that tiles compute reach the caller's tensors."""

    def add_one(x):
        x.add_(1)
        return x * 2

    x = torch.zeros(4)
    options = poptorch.Options().deviceIterations(2).useIpuModel(True)
    assert infer(add_one, x, options=options).tolist() == [2.0] * 4
    assert x.tolist() == [1.0] * 4


def test_no_inputs():
    """A model may take nothing, and return constants."""

    class Constant(nn.Module):
        def forward(self):
            return torch.tensor([1, 2]), torch.zeros(3)

    model = poptorch.inferenceModel(Constant())
    for _ in range(2):
        ints, zeros = model()
        assert ints.tolist() == [1, 2]
        assert ints.dtype is torch.int32
        assert zeros.tolist() == [0.0] * 3


def test_weights_without_inputs():
    """A model without inputs may train."""

    class Shrinks(nn.Module):
        def __init__(self):
            super().__init__()
            self.w = nn.Parameter(torch.ones(2))

        def forward(self):
            return poptorch.identity_loss(self.w**2, "sum")

    model = Shrinks()
    wrapped = poptorch.trainingModel(model, optimizer=torch.optim.SGD(model.parameters(), 0.25))
    assert wrapped().tolist() == 2.0
    assert model.w.tolist() == [0.5, 0.5]


def test_returned_inputs():
    """A model may return what it was given."""
    x = torch.ones(3)
    got = infer(lambda t: t, x)
    assert torch.equal(got, x)
    assert got.data_ptr() != x.data_ptr()


def test_zero_sized_inputs():
    """Tensors without elements are rejected."""
    with pytest.raises(
        poptorch.Error, match=r"Zero-sized tensors are unsupported \(Got shape \[2, 0\]\)"
    ):
        infer(lambda x: x, torch.ones(2, 0))


def test_exceptions_of_forward_pass_through():
    """What forward raises comes out as it is; the executor stays uncompiled and usable."""

    class Own(Exception):
        pass

    def picky(x):
        if x.shape[0] == 2:
            raise Own("two")
        return x + 1

    model = poptorch.inferenceModel(Returns(picky))
    with pytest.raises(Own, match=r"^two$"):
        model(torch.ones(2))
    assert not model.isCompiled()
    assert model(torch.ones(3)).tolist() == [2.0] * 3


def test_errors_of_torch_pass_through():
    """PyTorch's own complaints are raised as PyTorch raises them."""
    with pytest.raises(RuntimeError, match=r"size of tensor a \(2\) must match"):
        infer(lambda x: x + torch.ones(3), torch.ones(2))


def test_failed_training_can_be_tried_again():
    """A training model that could not be recorded keeps its weights and compiles later."""
    layer = nn.Linear(2, 2)
    model = poptorch.trainingModel(layer)
    with pytest.raises(poptorch.Error, match="Couldn't find a loss in graph!"):
        model(torch.ones(1, 2))
    assert not model.isCompiled()
    assert type(layer.weight.data) is torch.Tensor
    assert torch.isfinite(layer.weight).all()


class TwoLosses(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(2, 2)

    def forward(self, x):
        out = self.linear(x)
        return nn.functional.mse_loss(out, x), nn.functional.l1_loss(out, x)


def test_two_losses_are_named():
    """Losses that feed no common one are an error with the line of each."""
    line = r"\S*inputs.py:\d+"
    text = rf"Multiple independent losses(.|\n)*losses: \S+ at {line}; \S+ at {line}"
    with pytest.raises(poptorch.Error, match=text):
        poptorch.trainingModel(TwoLosses())(torch.ones(2, 2))


def test_printing_inside_forward(capfd):
    """A tensor that is printed while forward is recorded has no values to show."""

    def show(x):
        print(x, f"{x.sum()}")
        return x + 1

    model = poptorch.inferenceModel(Returns(show))
    model(torch.ones(2))
    model(torch.ones(2))
    shown = capfd.readouterr().out
    assert shown.count("<unavailable>") == 2
    assert "tensor(<unavailable>, size=[2], dtype=torch.float32)" in shown


@pytest.mark.parametrize(
    "make",
    [
        lambda: torch.arange(2),
        lambda: torch.full((2,), 1.0),
        lambda: torch.linspace(0, 1, 2),
        lambda: torch.ones(2),
        lambda: torch.rand(2),
        lambda: torch.randint(0, 5, (2,)),
        lambda: torch.randperm(2),
        lambda: torch.tensor([1.0, 2.0]),
        lambda: torch.zeros(2),
        lambda: torch.normal(0.0, 1.0, (2,)),
    ],
)
def test_factories_warn(make, capfd):
    """Functions that make tensors say that they make them on the IPU."""
    out = infer(lambda x: x + make(), torch.zeros(2))
    assert out.shape == (2,)
    assert "(): forcing to IPU" in capfd.readouterr().err


def test_factories_with_a_device_are_quiet(capfd):
    """A device that is given is not mentioned."""
    infer(lambda x: x + torch.ones(2, device=x.device), torch.zeros(2))
    assert "forcing to IPU" not in capfd.readouterr().err


def test_repeated_warnings_are_limited(capfd):
    """maxRepeatLogs says how often the same message is shown."""

    def many(x):
        for _ in range(8):
            x = x + torch.ones(2)
        return x

    infer(many, torch.zeros(2), options=poptorch.Options().maxRepeatLogs(3))
    assert capfd.readouterr().err.count("No device set in torch.ones(): forcing to IPU") == 3


def test_cpu_tensors_leaking_in():
    """A tensor from outside used in forward is an error that says what it is."""
    outside = torch.LongTensor([1, 2])
    with pytest.raises(
        poptorch.Error,
        match=r"Expected an IPU tensor but got tensor\(device=cpu, shape=\[2\], dtype=Long\)",
    ):
        infer(lambda x: x + outside, torch.ones(2))


class Lookup(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(4, 2)

    def forward(self, numbers):
        return self.table(numbers) * 2


def test_errors_while_running_name_the_line():
    """What PyTorch raises in a call keeps its type; a note says in which operation."""
    model = poptorch.inferenceModel(Lookup())
    model(torch.tensor([0, 3]))
    with pytest.raises(IndexError) as caught:
        model(torch.tensor([0, 4]))
    (note,) = caught.value.__notes__
    assert re.search(r"in aten::embedding of module table, forward, at \S*inputs.py:\d+", note)


def test_numpy_in_forward():
    """Arrays of NumPy have no place in a recorded model: the error says so at the line."""
    text = r"Tensor.numpy is only supported in eager mode[\s\S]*inputs.py[\s\S]*poptorch.CPU"
    with pytest.raises(poptorch.Error, match=text):
        infer(lambda x: torch.tensor(x.numpy() * 2), torch.ones(2))


def test_models_are_modules():
    """A function is no model."""
    with pytest.raises(poptorch.Error, match=r"'model' is of type .*Expected torch.nn.Module"):
        poptorch.inferenceModel(lambda x: x)


@pytest.mark.parametrize("use", [lambda x: x.sum().item(), lambda x: x[x > 0], torch.nonzero])
def test_data_dependence_is_rejected(use):
    """Values and shapes that only running would tell are errors."""
    with pytest.raises(poptorch.Error, match=r"only supported in eager mode|depends on values"):
        infer(use, torch.ones(2))


@pytest.mark.parametrize("kind", [torch.int64, torch.float64])
def test_wide_types_warn(kind, capfd):
    """Types the device lacks are converted, with a warning that names the input."""
    infer(lambda x: x + 1, torch.ones(2).to(kind))
    assert f"Input x has the type {kind}" in capfd.readouterr().err


@pytest.mark.parametrize(("data", "weight"), [("half", "float"), ("float", "half")])
def test_products_have_the_type_of_the_activation(data, weight):
    """Mixed half and float products take the type of their first operand."""
    layer = getattr(nn.Linear(3, 2), weight)()
    x = getattr(torch.ones(4, 3), data)()
    assert poptorch.inferenceModel(layer)(x).dtype == x.dtype


def test_gradients_of_inputs_are_dropped(capfd):
    """An input that requires a gradient is detached, with a warning."""
    x = torch.ones(2, requires_grad=True)
    assert not infer(lambda t: t * 2, x).requires_grad
    text = (
        "Input tensor has requires_grad=True set. This tensor will be detached because backward "
        "pass via inputs is not supported."
    )
    assert text in capfd.readouterr().err


def test_invalid_options():
    """Options must be poptorch.Options."""
    with pytest.raises(
        poptorch.Error,
        match=r"Invalid type: 'options' is of type <class 'dict'> \(Expected poptorch.Options\)",
    ):
        poptorch.inferenceModel(Two(), {})


def test_indices_may_have_32_bits():
    """Labels and indices of int32, the device's own type, go where PyTorch wants int64."""

    class Net(nn.Module):
        def forward(self, x: torch.Tensor, labels: torch.Tensor) -> tuple:
            picked = x.gather(1, labels[:, None])
            return picked, nn.functional.cross_entropy(x, labels)

    x, labels = torch.randn(4, 5), torch.tensor([0, 3, 4, 1])
    picked, loss = poptorch.inferenceModel(Net())(x, labels.int())
    torch.testing.assert_close(loss, nn.functional.cross_entropy(x, labels))
    assert torch.equal(picked, x.gather(1, labels[:, None]))


def test_an_optimizer_of_another_model_is_rejected():
    """An optimiser made from a copy holds nothing that trains: the error says so."""
    model = TwoLosses()
    other = torch.optim.SGD(TwoLosses().parameters(), lr=0.1)
    model.forward = lambda x: nn.functional.mse_loss(model.linear(x), x)
    with pytest.raises(poptorch.Error, match="holds none of the model's parameters"):
        poptorch.trainingModel(model, None, other)(torch.ones(2, 2))
