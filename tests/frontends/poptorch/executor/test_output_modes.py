"""What a call returns: output modes, structures, types, constants, the first dimension."""

from collections import namedtuple

import pytest
import torch
from torch import nn
from torch.utils._pytree import tree_flatten

import poptorch


class Doubled(nn.Module):
    def forward(self, x):
        return 2 * x


def run(x, mode=None, period=None, iterations=1, replicas=1, model=None):
    options = poptorch.Options().deviceIterations(iterations).replicationFactor(replicas)
    if mode is not None:
        options.outputMode(mode, period)
    return poptorch.inferenceModel(model or Doubled(), options)(x)


def numbered(n_batches, size=2):
    return torch.arange(float(n_batches * size * 3)).reshape(n_batches * size, 3)


def test_all_is_the_default_of_inference():
    """All returns every micro-batch in the order of the input."""
    x = numbered(6)
    assert torch.equal(run(x, iterations=3, replicas=2), 2 * x)


def test_final_returns_the_last_of_each_replica():
    """Final keeps the last device iteration of all replicas."""
    x = numbered(6)
    assert torch.equal(run(x, poptorch.OutputMode.Final, None, 3, 2), 2 * x[-4:])


def test_every_n_counts_from_one():
    """EveryN with period 5 of 10 iterations returns iterations 4 and 9."""
    x = numbered(10)
    got = run(x, poptorch.OutputMode.EveryN, 5, 10)
    assert torch.equal(got, 2 * torch.cat([x[8:10], x[18:20]]))


def test_every_n_longer_than_the_call_returns_nothing():
    """A period that is never reached gives an empty first dimension."""
    got = run(numbered(2), poptorch.OutputMode.EveryN, 3, 2)
    assert got.shape == (0, 3)


def test_sum_is_per_replica_and_not_averaged():
    """Sum adds iterations, replica by replica."""
    x = numbered(6, size=1)
    got = run(x, poptorch.OutputMode.Sum, None, 3, 2)
    assert torch.equal(got, 2 * x.reshape(3, 2, 3).sum(0))


@pytest.mark.parametrize(
    ("mode", "shape"),
    [
        (poptorch.OutputMode.All, (12,)),
        (poptorch.OutputMode.Final, (2,)),
        (poptorch.OutputMode.EveryN, (12,)),
        (poptorch.OutputMode.Sum, (2,)),
    ],
)
def test_shapes_of_scalars_in_training(mode, shape):
    """A scalar becomes a vector of the number of micro-batches its mode returns."""
    options = poptorch.Options().deviceIterations(3).replicationFactor(2)
    options.Training.gradientAccumulation(2)
    options.outputMode(mode, 1 if mode is poptorch.OutputMode.EveryN else None)
    model = poptorch.trainingModel(WithLoss(), options)
    loss = model(torch.ones(12, 3), torch.zeros(12, 1))[1]
    assert loss.shape == shape


class WithLoss(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(3, 1)

    def forward(self, x, y):
        out = self.linear(x)
        return out, nn.functional.mse_loss(out, y)


def test_default_loss_is_a_scalar():
    """One replica, mode Final: the loss has no dimension."""
    model = poptorch.trainingModel(WithLoss())
    assert model(torch.ones(4, 3), torch.zeros(4, 1))[1].shape == ()


Pair = namedtuple("Pair", "first second")


class Structured(nn.Module):
    def forward(self, x):
        y = x + 1
        return {"pair": Pair(x * 2, [y, y]), "nothing": None, "word": "text"}


def test_structure_is_what_forward_returned():
    """Named tuples, lists, dictionaries, None and constants come back; a tensor twice, twice."""
    x = torch.ones(2)
    got = run(x, model=Structured())
    assert isinstance(got["pair"], Pair)
    assert torch.equal(got["pair"].first, 2 * x)
    assert [t.tolist() for t in got["pair"].second] == [[2.0, 2.0]] * 2
    assert got["pair"].second[0].data_ptr() != got["pair"].second[1].data_ptr()
    assert got["nothing"] is None
    assert got["word"] == "text"


class Returns(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x)


def test_none():
    """A model that returns None returns None."""
    assert run(torch.ones(2), model=Returns(lambda _x: None)) is None


@pytest.mark.parametrize(
    ("passed", "returned"),
    [
        (torch.int64, torch.int32),
        (torch.float64, torch.float32),
        (torch.bfloat16, torch.float32),
        (torch.int8, torch.int8),
        (torch.uint8, torch.uint8),
        (torch.bool, torch.bool),
        (torch.float16, torch.float16),
    ],
)
def test_types(passed, returned):
    """64-bit results come back narrow, all others as they are."""
    x = torch.ones(3, dtype=passed)
    assert run(x, model=Returns(lambda t: t.clone())).dtype == returned


def test_models_of_bfloat16_stay_models_of_bfloat16():
    """Inputs and results keep the type of the weights."""
    model, x = nn.Linear(4, 2).bfloat16(), torch.randn(3, 4).bfloat16()
    result = run(x, model=model)
    assert result.dtype is torch.bfloat16
    torch.testing.assert_close(result, model(x))


def test_constants_are_not_repeated():
    """What depends on no input is returned once, whatever the mode."""
    model = Returns(lambda x: (x, torch.tensor([1.0, 2.0]), torch.ones(2)))
    for mode in (poptorch.OutputMode.All, poptorch.OutputMode.Sum):
        _, constant, ones = run(torch.ones(4), mode, None, 4, model=model)
        assert constant.tolist() == [1.0, 2.0]
        assert ones.tolist() == [1.0, 1.0]


def test_a_cpu_constant_is_kept_with_a_warning(capfd):
    """A tensor that never was in the model comes back, and the log says so."""
    constant = torch.tensor([3.0])
    model = Returns(lambda x: (x, constant))
    _, got = run(torch.ones(2), model=model)
    assert got.tolist() == [3.0]
    assert "Output expected to be on the IPU but is on cpu" in capfd.readouterr().err


def test_outputs_are_fresh():
    """Returned inputs and weights are copies: changing them changes nothing."""
    layer = nn.Linear(2, 2)
    layer.forward = lambda x: (x, layer.weight)
    model = poptorch.inferenceModel(layer)
    x = torch.ones(2)
    first = model(x)
    first[0].zero_(), first[1].zero_()
    assert x.tolist() == [1.0, 1.0]
    assert torch.equal(model(x)[1], layer.weight)
    assert not first[1].requires_grad


def test_backward_is_rejected():
    """Outputs cannot be differentiated."""
    out = run(torch.ones(2))
    with pytest.raises(poptorch.Error, match=r"backward\(\) cannot be called explicitly"):
        out.backward()


def test_tiles_return_the_same():
    """All modes return the same from tiles as from the host."""
    x = numbered(4, size=1)
    for mode, period in ((None, None), (poptorch.OutputMode.EveryN, 2)):
        options = poptorch.Options().deviceIterations(4).useIpuModel(True)
        if mode is not None:
            options.outputMode(mode, period)
        got = poptorch.inferenceModel(Doubled(), options)(x)
        assert torch.equal(got, run(x, mode, period, 4))


KINDS = {
    "result": lambda x: 2 * x,
    "input": lambda x: x,
    "constant": lambda _x: torch.ones(2),
    "scalar": lambda x: x.sum(),
    "number": lambda x: x.argmax(),
    "nested": lambda x: [(x + 1, {"a": x})],
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("wrapper", [poptorch.trainingModel, poptorch.inferenceModel])
def test_no_output_goes_backwards(kind, wrapper):
    """backward() of any output of any model is an error that says what to do."""

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.w = nn.Parameter(torch.ones(1))

        def forward(self, x):
            return KINDS[kind](x), poptorch.identity_loss(self.w * x, "sum")

    outputs, _ = tree_flatten(wrapper(Model())(torch.arange(4.0)))
    assert outputs
    text = r"backward\(\) cannot be called explicitly .* you should use a trainingModel instead\."
    for output in outputs:
        with pytest.raises(poptorch.Error, match=text):
            output.backward()
