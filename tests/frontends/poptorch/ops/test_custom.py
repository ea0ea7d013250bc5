"""Custom operations: registered with host code, codelets and a gradient; attributes are checked."""

import re

import pytest
import torch
from torch import nn

import poptorch
import tremula as tr
from tests.frontends.poptorch.models import Model, on_host, on_tiles, quiet
from tremula import Input, Output, Vector, Vertex, float32
from tremula.ir.settings import configured

X = torch.tensor([[1.0, -2.0, 3.0], [0.5, 2.0, -1.0]])


class Cube(Vertex):
    """scale * a * a * b"""

    a: Input[Vector[float32]]
    b: Input[Vector[float32]]
    out: Output[Vector[float32]]
    scale: float32

    def compute(self):
        for i in range(len(self.out)):
            value = self.a[i]
            self.out[i] = self.scale * value * value * self.b[i]


def cube_on_tiles(tiles, inputs, attributes):
    a, b = (x.flatten() for x in inputs)
    result = tiles.new(inputs[0].shape, inputs[0].type)
    compute_set = tiles.graph.add_compute_set(tiles.name)
    out = result.flatten()
    for tile, intervals in enumerate(tiles.graph.get_tile_mapping(out)):
        for i in intervals:
            part = slice(i.begin, i.end)
            fields = {"a": a[part], "b": b[part], "out": out[part], "scale": attributes["scale"]}
            tiles.graph.add_vertex(compute_set, Cube, fields, tile=tile)
    tiles.sequence.add(tr.Execute(compute_set))
    return [result]


def scaled(a, b, scale):
    return poptorch.custom_op([a, b], "AAB", "test.ops", 1, [a], {"scale": scale})[0]


def cube_gradients(inputs, _outputs, gradients, attributes):
    a, b = inputs
    scale = attributes["scale"]
    of_b = scaled(a, gradients[0], scale)  # the same operation again
    return [2 * scale * a * b * gradients[0], of_b]


@pytest.fixture(autouse=True)
def _operations():
    tr.custom_operation(
        "AAB",
        "test.ops",
        1,
        host=lambda x, attributes: [attributes["scale"] * x[0] * x[0] * x[1]],
        tiles=cube_on_tiles,
        gradient=cube_gradients,
    )
    tr.custom_operation("HostOnly", "test.ops", host=lambda x, _: [x[0].flip(0), x[0].sum()])


class Cubes(nn.Module):
    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.tensor([1.0, 2.0, -1.0]))

    def forward(self, x):
        y = x * self.w
        return poptorch.identity_loss(scaled(y, y, 0.5), "sum")


@pytest.mark.parametrize("tiles", ["lazy", "run"])
def test_forward_and_gradient(tiles):
    """A cube made of a codelet trains as the same cube made of PyTorch's operations."""
    w = Cubes().w.detach().clone().requires_grad_(True)
    loss = (0.5 * (X * w) ** 3).sum()
    loss.backward()
    model = Cubes()
    with configured(tiles=tiles, host="eager"):
        trained = poptorch.trainingModel(
            model, quiet(), torch.optim.SGD(model.parameters(), lr=0.1)
        )
        torch.testing.assert_close(trained(X), loss.detach())
        trained.copyWeightsToHost()
    torch.testing.assert_close(model.w.data, w.detach() - 0.1 * w.grad)


def test_several_outputs_and_no_tiles():
    """Results are as the examples say; without tiles there is no tile program, and it says so."""

    def function(x):
        return poptorch.custom_op([x], "HostOnly", "test.ops", 1, [torch.zeros(2, 3), x.sum()])

    flipped, total = on_host(function, X)
    torch.testing.assert_close(flipped, X.flip(0))
    torch.testing.assert_close(total, X.sum())
    text = "Unsupported ops found in compiled model: [test.ops::HostOnly:1]"
    with pytest.raises(poptorch.Error, match=re.escape(text)):
        on_tiles(function, X)


def test_outside_of_a_model():
    """On the CPU it gives zeros like the examples."""
    (result,) = poptorch.custom_op([X], "AAB", "test.ops", 1, [X], {"scale": 2.0})
    assert result.shape == X.shape
    assert not result.any()


def test_unregistered_operation():
    """An unknown name is an error that says how to register one, or names the nearest."""
    with pytest.raises(
        poptorch.Error, match=re.escape("No custom operation a.b::Cube:3")
    ) as caught:
        on_host(lambda x: poptorch.custom_op([x], "Cube", "a.b", 3, [x])[0], X)
    assert "register" in str(caught.value)
    with pytest.raises(poptorch.Error, match=r"test\.ops::AAB:1"):
        on_host(lambda x: poptorch.custom_op([x], "AAC", "test.ops", 1, [x])[0], X)


def test_without_gradient():
    """A model whose loss goes through it cannot be trained."""
    model = Model(lambda x: poptorch.identity_loss(
        poptorch.custom_op([x * model.w], "HostOnly", "test.ops", 1, [x, x.sum()])[1], "sum"
    ))  # fmt: skip
    model.w = nn.Parameter(torch.ones(1))
    with pytest.raises(
        poptorch.Error, match="has no gradient, so a model with it cannot be trained"
    ):
        poptorch.trainingModel(model, quiet())(X)


def test_results_unlike_the_examples():
    """A host function that breaks its promise is found when it runs."""
    with pytest.raises(Exception, match="but its example outputs are"):
        on_host(lambda x: poptorch.custom_op([x], "HostOnly", "test.ops", 1, [x, x])[0], X)


@pytest.mark.parametrize(
    ("attributes", "text"),
    [
        ({1: 2.0}, "attribute keys must be str"),
        ({"a": None}, "must be a float, int or str"),
        ({"a": [1, 2.0]}, "must have one type"),
        ({"a": True}, "must be a float, int or str"),
        ({"a": {"b": 1}}, "must be a float, int or str"),
        ({"a": "große"}, "ASCII only"),
        ({"ä": 1}, "ASCII only"),
        ({"a": ["x", "é"]}, "ASCII only"),
        ({"a": 2**70}, "64 bits"),
        ([1], "attributes must be a dict"),
    ],
)
def test_attributes_are_checked(attributes, text):
    """Keys are text; values numbers, ASCII text, or lists of one type."""
    with pytest.raises(ValueError, match=text):
        poptorch.custom_op([X], "AAB", "test.ops", 1, [X], attributes)


def test_access_attributes():
    """The text in a node gives its attributes back."""
    assert poptorch.accessAttributes('{"alpha": 0.5, "sizes": [1, 2]}') == {
        "alpha": 0.5,
        "sizes": [1, 2],
    }
    with pytest.raises(poptorch.Error, match="does not name any attributes"):
        poptorch.accessAttributes("?")
