"""Names of tensors, anchors, and what a compiled model writes: its IR and reports."""

import copy
import json

import pytest
import torch
from torch import nn

import poptorch
import pva
from tests.frontends.poptorch.executor.small_model import Model, X, Y, training


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
