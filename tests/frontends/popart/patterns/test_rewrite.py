"""Patterns rewrite the ONNX graph, and leave what it computes."""

import numpy as np
import onnx
import pytest

import popart
from tremula.frontends.onnx.imported import import_model
from tremula.frontends.popart.patterns.rewrite import RULES, rewritten

X = np.arange(12, dtype=np.float32).reshape(2, 6) - 5


def model():
    """A graph in which every pattern finds something."""
    builder = popart.Builder()
    x = builder.addInputTensor("FLOAT", [2, 6], "x")
    two = builder.aiOnnx.constant(np.array(2, np.float32))
    y = builder.aiOnnx.mul([x, two], "doubled")
    y = builder.aiOnnx.sum([y, x], "sum")
    y = builder.aiOnnx.concat([y], axis=0, debugContext="alone")
    y = builder.aiOnnx.transpose([y], perm=[0, 1], debugContext="still")
    left, right = builder.aiOnnx.split([y], 2, axis=1, split=[2, 4], debugContext="parts")
    y = builder.aiGraphcore.scale([right], -1.0, "minus")
    builder.addOutputTensor(builder.aiOnnx.reducesum([y], axes=[1], keepdims=1, debugContext="out"))
    builder.addOutputTensor(builder.aiOnnx.relu([left], "left"))
    return onnx.load_model_from_string(builder.getModelProto())


EXPECTED = {
    "OpToIdentity": ("Concat", "Identity"),
    "SumToAdd": ("Sum", "Add"),
    "TransposeToIdentityOrReshapePattern": ("Transpose", "Identity"),
    "DecomposeBinaryConstScalar": ("Mul", "Scale"),
    "NegativeOneScale": ("Scale", "Neg"),
    "SplitOp": ("Split", "Slice"),
}


def results(proto):
    result = import_model(proto).run({"x": X}, ["out:0", "left:0"])
    return [value.numpy() for value in result.values()]


@pytest.mark.parametrize("name", RULES)
def test_each_pattern(name):
    """A pattern replaces its operation and changes no value; excluded nodes stay."""
    before, gone_made = model(), EXPECTED[name]
    after = rewritten(before, popart.Patterns([name]))
    types = [node.op_type for node in after.graph.node]
    assert gone_made[0] not in types
    assert gone_made[1] in types
    for a, b in zip(results(before), results(after), strict=True):
        np.testing.assert_array_equal(a, b)


def test_all_together():
    """Identities are removed in the end, except those of a requested tensor."""
    wanted = popart.Patterns()
    types = [node.op_type for node in rewritten(model(), wanted).graph.node]
    assert "Identity" not in types
    types = [node.op_type for node in rewritten(model(), wanted, ["alone:0"]).graph.node]
    assert types.count("Identity") == 1
    none = popart.Patterns(popart.PatternsLevel.NoPatterns)
    before = model()
    assert rewritten(before, none).graph == before.graph
