"""ONNX models as PyTorch modules: inputs, weights, names, and the two executions."""

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper

import poptorch
import tremula
from tremula.frontends.onnx import OnnxError, UnsupportedOnnx, import_model


def model_of(nodes, inputs, outputs, weights=None, opset=17, domains=()):
    """A model: inputs are name -> shape, floats; weights are name -> array."""
    infos = [
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in group]
        for group in (inputs.items(), [(name, None) for name in outputs])
    ]
    tensors = [numpy_helper.from_array(np.asarray(a), name) for name, a in (weights or {}).items()]
    graph = helper.make_graph(nodes, "graph", *infos, tensors)
    imports = [helper.make_opsetid("", opset), *(helper.make_opsetid(d, 1) for d in domains)]
    return helper.make_model(graph, opset_imports=imports)


@pytest.fixture(scope="module")
def layer():
    """A layer that is reshaped by arithmetic on the shape of its input."""
    rng = np.random.default_rng(0)
    node = helper.make_node
    nodes = [
        node("Gemm", ["x", "fc.weight", "fc.bias"], ["hidden"], name="fc/Gemm"),
        node("Relu", ["hidden"], ["positive"]),
        node("Shape", ["x"], ["sizes"]),
        node("Gather", ["sizes", "zero"], ["n"], axis=0),
        node("Unsqueeze", ["n", "first"], ["rows"]),
        node("Concat", ["rows", "inner"], ["target"], axis=0),
        node("Reshape", ["positive", "target"], ["y"]),
    ]
    weights = {
        "fc.weight": rng.random((4, 8), np.float32) - 0.5,
        "fc.bias": rng.random(8, np.float32),
        "zero": np.int64(0),
        "first": np.array([0]),
        "inner": np.array([2, 4]),
    }
    return import_model(model_of(nodes, {"x": ["batch", 4]}, ["y"], weights).SerializeToString())


def test_weights_are_parameters_and_others_buffers(layer):
    """Floating-point initialisers train; integers are buffers; both are found by ONNX name."""
    names = {name for name, _ in layer.module.named_parameters()}
    assert names == {"fc_weight", "fc_bias"}
    assert set(layer.parameters_by_name) == {"fc.weight", "fc.bias", "zero", "first", "inner"}
    assert layer.parameters_by_name["fc.weight"] is layer.module.fc_weight


def test_inputs_and_outputs_say_what_they_are(layer):
    """Initialisers are no inputs; sizes that are not fixed have their names."""
    assert [str(value) for value in layer.inputs] == ["x: float[batch, 4]"]
    assert layer.inputs[0].static_shape is None
    assert [value.name for value in layer.outputs] == ["y"]


def test_any_tensor_can_be_asked_for(layer):
    """Intermediate tensors have their ONNX names; arrays are taken, too."""
    x = np.ones((3, 4), np.float32)
    result = layer.run({"x": x}, ["target", "hidden"])
    assert result["target"].tolist() == [3, 2, 4]
    expected = x @ layer.module.fc_weight.detach().numpy() + layer.module.fc_bias.detach().numpy()
    np.testing.assert_allclose(result["hidden"].detach().numpy(), expected, rtol=1e-5)
    with pytest.raises(OnnxError, match=r"no tensor 'hiden'.*\n.*'hidden'"):
        layer.run({"x": x}, ["hiden"])
    with pytest.raises(OnnxError, match="input 'x' is missing"):
        layer.run({}, ["hidden"])


@pytest.mark.parametrize("tiles", ["lazy", "run"])
def test_it_runs_on_the_host_and_on_tiles(layer, tiles):
    """The captured step gives what the module gives; shape arithmetic is no part of it."""
    x = torch.linspace(-1, 1, 12).reshape(3, 4)
    (expected,) = layer.module(x)
    with tremula.configured(tiles=tiles):
        (result,) = poptorch.inferenceModel(layer.module)(x)
    torch.testing.assert_close(result, expected.detach(), rtol=1e-5, atol=1e-6)


def test_a_shape_that_depends_on_data_is_an_error():
    """Compiled, the error names the node and its operand; eagerly it runs."""
    nodes = [
        helper.make_node("Cast", ["x"], ["sizes"], to=TensorProto.INT64),
        helper.make_node("Reshape", ["x", "sizes"], ["y"], name="cut"),
    ]
    imported = import_model(model_of(nodes, {"x": [2]}, ["y"]))
    x = torch.tensor([2.0, 1.0])
    assert imported.module(x)[0].shape == (2, 1)
    with pytest.raises(poptorch.Error, match="operand 'shape' of Reshape 'cut' depends on"):
        poptorch.inferenceModel(imported.module)(x)


def test_unknown_operators_are_named_at_import():
    """One error lists all of them, with the nearest name."""
    nodes = [helper.make_node("Rellu", ["x"], ["y"], name="act")]
    with pytest.raises(UnsupportedOnnx, match=r"ai.onnx Rellu 17 \(node Rellu 'act'\)") as failure:
        import_model(model_of(nodes, {"x": [2]}, ["y"]))
    assert "Relu" in str(failure.value)


def test_functions_of_the_model_are_expanded():
    """A local function computes with the attributes of its call, or their defaults."""
    node = helper.make_node("LeakyRelu", ["a"], ["b"])
    node.attribute.append(onnx.AttributeProto(name="alpha", ref_attr_name="slope", type=1))
    function = helper.make_function(
        "mine", "Steep", ["a"], ["b"], [node], [helper.make_opsetid("", 17)],
        attributes=[], attribute_protos=[helper.make_attribute("slope", 2.0)],
    )  # fmt: skip
    nodes = [
        helper.make_node("Steep", ["x"], ["u"], domain="mine"),
        helper.make_node("Steep", ["u"], ["y"], domain="mine", slope=3.0),
    ]
    model = model_of(nodes, {"x": [2]}, ["y"], domains=["mine"])
    model.functions.append(function)
    (y,) = import_model(model).module(torch.tensor([-1.0, 1.0]))
    assert y.tolist() == [-6.0, 1.0]


def test_failures_name_the_node_and_its_operands():
    """What PyTorch says is shown with the node's name, types and shapes."""
    nodes = [helper.make_node("MatMul", ["x", "w"], ["y"], name="product")]
    weights = {"w": np.ones((3, 3), np.float32)}
    imported = import_model(model_of(nodes, {"x": ["n", "m"]}, ["y"], weights))
    with pytest.raises(
        OnnxError, match=r"MatMul 'product' of \(float32\[2, 2\], float32\[3, 3\]\)"
    ):
        imported.module(torch.ones(2, 2))


@pytest.mark.parametrize("tiles", ["lazy", "run"])
def test_weights_train(tiles):
    """Three steps change the weights as the same layer of PyTorch changes."""
    rng = np.random.default_rng(1)
    weights = {"w": rng.random((4, 3), np.float32), "b": rng.random(3, np.float32)}
    nodes = [
        helper.make_node("Gemm", ["x", "w", "b"], ["scores"]),
        helper.make_node("LogSoftmax", ["scores"], ["y"], axis=1),
    ]
    imported = import_model(model_of(nodes, {"x": [5, 4]}, ["y"], weights))
    plain = torch.nn.Linear(4, 3)
    with torch.no_grad():
        plain.weight.copy_(torch.from_numpy(weights["w"].T))
        plain.bias.copy_(torch.from_numpy(weights["b"]))

    class WithLoss(torch.nn.Module):
        def __init__(self, inner):
            super().__init__()
            self.inner = inner

        def forward(self, x, labels):
            (result,) = self.inner(x)
            return result, torch.nn.functional.nll_loss(result, labels)

    x, labels = torch.randn(5, 4, generator=torch.Generator().manual_seed(2)), torch.arange(5) % 3
    model = WithLoss(imported.module)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    with tremula.configured(tiles=tiles):
        step = poptorch.trainingModel(model, optimizer=optimizer)
        reference = torch.optim.SGD(plain.parameters(), lr=0.5)
        for _ in range(3):
            step(x, labels)
            reference.zero_grad()
            torch.nn.functional.cross_entropy(plain(x), labels).backward()
            reference.step()
        step.copyWeightsToHost()
    trained = imported.parameters_by_name["w"].detach()
    torch.testing.assert_close(trained, plain.weight.detach().T, rtol=1e-4, atol=1e-5)
