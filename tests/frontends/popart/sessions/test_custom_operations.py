"""`builder.customOp` of operations that `tremula.custom_operation` registers in Python."""

import ctypes

import numpy as np
import pytest

import popart

STAND_IN = """
import torch
import tremula as tr


def leaky(inputs, attributes):
    return [torch.where(inputs[0] < 0, inputs[0] * attributes["alpha"], inputs[0])]


def gradient(inputs, outputs, gradients, attributes):
    return [torch.where(inputs[0] < 0, gradients[0] * attributes["alpha"], gradients[0])]


tr.custom_operation("LeakyTest", "test.popart", 1, host=leaky, gradient=gradient)
"""
X = np.array([[-1, 2], [3, -4]], np.float32)


def _built():
    builder = popart.Builder()
    x = builder.addInputTensor(popart.TensorInfo("FLOAT", [2, 2]))
    weight = builder.addInitializedInputTensor(np.ones((2, 2), np.float32))
    product = builder.aiOnnx.mul([x, weight])
    (y,) = builder.customOp(
        opName="LeakyTest",
        opVersion=1,
        domain="test.popart",
        inputs=[product],
        attributes={"alpha": 0.25},
        numOutputs=1,
    )
    return builder, x, weight, y


def _run(session, x, anchors):
    session.prepareDevice()
    session.weightsFromHost()
    session.run(popart.PyStepIO({x: X}, anchors))


def test_operations_of_a_stand_in_run_and_train(tmp_path):
    """A library that a script loads is a Python file; shapes, values and gradients are right."""
    (tmp_path / "leaky_ops.py").write_text(STAND_IN)
    ctypes.cdll.LoadLibrary(str(tmp_path / "libleaky_ops.so"))
    builder, x, weight, y = _built()
    assert builder.getTensorShape(y) == [2, 2]
    device = popart.DeviceManager().createCpuDevice()
    flow = popart.DataFlow(1, {y: popart.AnchorReturnType("All")})
    session = popart.InferenceSession(builder.getModelProto(), flow, device)
    anchors = session.initAnchorArrays()
    _run(session, x, anchors)
    np.testing.assert_allclose(anchors[y], [[-0.25, 2], [3, -1]])
    loss = builder.aiGraphcore.l1loss([y], 1.0, popart.ReductionType.Sum)
    training = popart.TrainingSession(
        builder.getModelProto(),
        popart.DataFlow(1, {}),
        loss=loss,
        optimizer=popart.ConstSGD(0.1),
        deviceInfo=device,
    )
    _run(training, x, training.initAnchorArrays())
    training.weightsToHost()
    trained = {weight: np.zeros((2, 2), np.float32)}
    training.readWeights(popart.PyWeightsIO(trained))
    np.testing.assert_allclose(trained[weight], 1 - 0.1 * np.abs(X) * [[0.25, 1], [1, 0.25]])


def test_an_operation_that_is_not_registered_is_an_error():
    """The session names the operator that has no entry."""
    builder = popart.Builder()
    x = builder.addInputTensor(popart.TensorInfo("FLOAT", [2, 2]))
    (y,) = builder.customOp("NowhereTest", 1, "test.popart", [x], {}, 1)
    flow = popart.DataFlow(1, {y: popart.AnchorReturnType("All")})
    device = popart.DeviceManager().createCpuDevice()
    with pytest.raises(popart.popart_exception, match=r"test\.popart NowhereTest 1"):
        popart.InferenceSession(builder.getModelProto(), flow, device)
