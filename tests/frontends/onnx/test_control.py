"""Branches, loops and functions: known at compile time, or computed by the program."""

import numpy as np
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper

import poptorch
from tremula.frontends.onnx import UnsupportedOnnx, import_model
from tremula.frontends.onnx.compiled import compile_model, static_inputs

node = helper.make_node


def info(name, kind=TensorProto.FLOAT, shape=None):
    return helper.make_tensor_value_info(name, kind, shape)


def model_of(nodes, inputs, outputs, weights=()):
    graph = helper.make_graph(nodes, "main", inputs, outputs, list(weights))
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])


def branch_model(condition):
    """2x or -x, by a condition that is an input or computed."""
    then_branch = helper.make_graph([node("Add", ["x", "x"], ["a"])], "then", [], [info("a")])
    else_branch = helper.make_graph([node("Neg", ["x"], ["b"])], "else", [], [info("b")])
    choice = node("If", ["c"], ["y"], then_branch=then_branch, else_branch=else_branch)
    return model_of([*condition, choice], [info("x", shape=[3])], [info("y", shape=[3])])


COMPUTED = [
    node("ReduceMax", ["x"], ["most"], keepdims=0),
    node("Constant", [], ["zero"], value_float=0.0),
    node("Greater", ["most", "zero"], ["c"]),
]


@pytest.mark.parametrize("on_tiles", [False, True])
def test_a_computed_condition_is_a_branch_of_the_program(on_tiles):
    """One program takes either branch, by the values of each call."""
    imported = import_model(branch_model(COMPUTED))
    up, down = torch.tensor([1.0, 2, 3]), torch.tensor([-1.0, -2, -3])
    compiled = compile_model(imported, {"x": up}, on_tiles=on_tiles, n_tiles=4)
    assert compiled(up)[0].tolist() == [2, 4, 6]
    assert compiled(down)[0].tolist() == [1, 2, 3]


def test_a_known_condition_chooses_at_once():
    """The other branch is no part of the program."""
    known = [node("Constant", [], ["c"], value=numpy_helper.from_array(np.array(False)))]
    imported = import_model(branch_model(known))
    compiled = compile_model(imported, {"x": torch.ones(3)})
    targets = [str(n.target) for n in compiled.program.step.graph.nodes if n.op == "call_function"]
    assert targets == ["aten.neg.default"]


def test_gradients_flow_through_a_branch():
    """In training both branches are computed and one is chosen."""
    imported = import_model(branch_model(COMPUTED))

    class Step(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.scale = torch.nn.Parameter(torch.tensor(1.0))
            self.inner = imported.module

        def forward(self, x):
            (y,) = self.inner(x * self.scale)
            return y, poptorch.identity_loss(y, reduction="sum")

    model = Step()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    step = poptorch.trainingModel(model, optimizer=optimizer)
    step(torch.tensor([1.0, 0.0, 0.0]))
    step.copyWeightsToHost()
    assert model.scale.item() == 0.0  # 1 - 0.5 · d(2 · scale)/d(scale)


def loop_model(condition_output):
    """Doubles x in each round; `condition_output` are the nodes that make the next condition."""
    body = helper.make_graph(
        [node("Add", ["v", "v"], ["w"]), *condition_output],
        "body",
        [info("i", TensorProto.INT64, []), info("c_in", TensorProto.BOOL, []), info("v")],
        [info("c_out", TensorProto.BOOL, []), info("w", shape=[2])],
    )
    nodes = [node("Loop", ["n", "start", "x"], ["y"], body=body)]
    inputs = [info("n", TensorProto.INT64, []), info("start", TensorProto.BOOL, [])]
    return model_of(nodes, [*inputs, info("x", shape=[2])], [info("y")])


def test_trip_counts_must_be_known_and_unroll():
    """A count that is an input is fixed when the model is compiled."""
    imported = import_model(loop_model([node("Identity", ["c_in"], ["c_out"])]))
    assert static_inputs(imported.module.graph) == ["n", "start"]
    x = torch.tensor([1.0, -1.0])
    inputs = {"n": torch.tensor(3), "start": torch.tensor(True), "x": x}
    assert compile_model(imported, inputs)(x)[0].tolist() == [8, -8]
    inputs["start"] = torch.tensor(False)
    assert compile_model(imported, inputs)(x)[0].tolist() == [1, -1]


def test_a_computed_end_of_a_loop_masks_later_rounds():
    """The program runs all rounds there can be; values stay after the last that counts."""
    small = [
        node("ReduceMax", ["w"], ["most"], keepdims=0),
        node("Constant", [], ["limit"], value_float=10.0),
        node("Less", ["most", "limit"], ["c_out"]),
    ]
    imported = import_model(loop_model(small))
    x = torch.tensor([1.0, 3.0])
    inputs = {"n": torch.tensor(6), "start": torch.tensor(True), "x": x}
    expected = imported.module(*inputs.values())[0]
    assert expected.tolist() == [4, 12]
    compiled = compile_model(imported, inputs)
    assert torch.equal(compiled(x)[0], expected)
    assert compiled(torch.tensor([1.0, 1.0]))[0].tolist() == [16, 16]


def test_sequences_are_values_of_the_host():
    """They pass between nodes while a model is compiled, and are no outputs of programs."""
    nodes = [
        node("SequenceConstruct", ["x", "x"], ["s"]),
        node("SequenceInsert", ["s", "x"], ["t"]),
        node("ConcatFromSequence", ["t"], ["y"], axis=0),
    ]
    imported = import_model(model_of(nodes, [info("x", shape=[2])], [info("y")]))
    x = torch.tensor([1.0, 2.0])
    assert compile_model(imported, {"x": x})(x)[0].tolist() == [1, 2] * 3
    sequence = helper.make_tensor_sequence_value_info("t", TensorProto.FLOAT, None)
    imported = import_model(model_of(nodes[:2], [info("x", shape=[2])], [sequence]))
    assert len(imported.module(x)[0]) == 3
    with pytest.raises(UnsupportedOnnx, match="'t' is a sequence"):
        compile_model(imported, {"x": x})
