"""Graphs inside operations: calls, loops and branches, their weights and their types."""

import json

import numpy as np
import pytest

import popart
from tests.frontends.popart.sessions.test_operators import DEVICES, step

SQUARE = popart.TensorInfo("FLOAT", [2, 2])


def product(builder, how):
    """A graph that multiplies two matrices, whose inputs are declared in one of three ways."""
    inner = builder.createSubgraphBuilder()
    if how == "typed":
        ids = [inner.addInputTensor(SQUARE) for _ in range(2)]
    elif how == "untyped":
        ids = [inner.addUntypedInputTensor() for _ in range(2)]
    else:
        ids = builder.getInputTensorIds()
        for id in ids:
            inner.addInputTensorFromParentGraph(id)
    inner.addOutputTensor(inner.aiOnnx.matmul(ids))
    return inner


@DEVICES
@pytest.mark.parametrize("how", ["typed", "untyped", "of the parent"])
def test_weights_of_called_graphs_train(device, how):
    """A weight that is an argument of calls gets the sum of their gradients, and is updated."""
    x, w = np.eye(2, dtype=np.float32), np.array([[1, 2], [3, 4]], np.float32)
    builder = popart.Builder()
    x_id, w_id = builder.addInputTensor(SQUARE), builder.addInitializedInputTensor(w)
    inner = product(builder, how)
    first = builder.aiGraphcore.call([x_id, w_id], 1, inner)[0]
    second = builder.aiGraphcore.call([first, w_id], 1, inner)[0]
    assert builder.getTensorShape(second) == [2, 2]
    loss = builder.aiGraphcore.l1loss([second], 1.0, popart.ReductionType.Sum)
    anchors = [second, f"Gradient___{w_id}"]
    session, result = step(builder, {x_id: x}, anchors, loss, device=device)
    ones = np.ones((2, 2), np.float32)
    gradient = w.T @ ones + ones @ w.T
    np.testing.assert_allclose(result[second], w @ w, 1e-5)
    np.testing.assert_allclose(result[anchors[1]], gradient, 1e-5)
    after = np.empty((2, 2), np.float32)
    session.readWeights(popart.PyWeightsIO({w_id: after}))
    np.testing.assert_allclose(after, w - 0.1 * gradient, 1e-5)


def test_calls_that_do_not_fit():
    """Other numbers of inputs or outputs than the callee's are errors that name the call."""
    builder = popart.Builder()
    x, inner = builder.addInputTensor(SQUARE), builder.createSubgraphBuilder()
    inner.addOutputTensor(inner.aiOnnx.relu([inner.addUntypedInputTensor()]))
    with pytest.raises(popart.popart_exception, match=r"CallOp 'c', number of inputs \(2\)"):
        builder.aiGraphcore.call([x, x], 1, inner, "c")
    with pytest.raises(popart.popart_exception, match=r"CallOp '', number of outputs \(2\)"):
        builder.aiGraphcore.call([x], 2, inner)


def test_untyped_bodies():
    """Inputs of loops and scans without a type get that of the arguments, or of their slices."""
    builder = popart.Builder()
    x = builder.addInputTensor("FLOAT", [3, 2])
    start = builder.aiOnnx.constant(np.zeros(2, np.float32))
    count = builder.aiOnnx.constant(np.array(3, np.int64))
    body = builder.createSubgraphBuilder()
    body.addInputTensor("INT64", [])
    goes_on = body.addInputTensor("BOOL", [])
    value = body.addUntypedInputTensor(start)
    body.addOutputTensor(goes_on)
    one = body.aiOnnx.constant(np.ones(2, np.float32))
    body.addOutputTensor(body.aiOnnx.add([value, one]))
    always = builder.aiOnnx.constant(np.array(True))
    (counted,) = builder.aiOnnx.loop([count, always, start], 1, body)
    total = builder.createSubgraphBuilder()
    carried, row = total.addUntypedInputTensor(), total.addUntypedInputTensor()
    summed = total.aiOnnx.add([carried, row])
    for _ in range(2):
        total.addOutputTensor(summed)
    last, sums = builder.aiOnnx.scan([start, x], 2, total, 1)
    assert builder.getTensorShape(counted) == [2]
    assert builder.getTensorShape(sums) == [3, 2]
    array = np.arange(6, dtype=np.float32).reshape(3, 2)
    _, result = step(builder, {x: array}, [counted, last, sums])
    np.testing.assert_array_equal(result[counted], [3, 3])
    np.testing.assert_array_equal(result[last], array.sum(0))
    np.testing.assert_array_equal(result[sums], array.cumsum(0))


def test_loss_of_constants():
    """A loss that depends on no input and no weight is computed, and trains nothing."""
    builder = popart.Builder()
    table = builder.aiOnnx.constant(np.full((2, 2), 3, np.float32))
    loss = builder.aiGraphcore.l1loss([table], 1.0)
    _, result = step(builder, {}, [loss], loss)
    assert result[loss] == 3


def test_gradients_that_do_not_exist():
    """Anchoring the gradient of an integer or of what Detach cuts off is an error."""
    builder = popart.Builder()
    x, i = builder.addInputTensor("FLOAT", [2]), builder.addInputTensor("INT32", [2])
    w = builder.addInitializedInputTensor(np.ones(2, np.float32))
    cut = builder.aiGraphcore.detach([w])
    floats = builder.aiOnnx.cast([i], "FLOAT")
    loss = builder.aiGraphcore.l1loss([builder.aiOnnx.sum([x, cut, floats])], 1.0)
    inputs = {x: np.ones(2, np.float32), i: np.ones(2, np.int32)}
    _, result = step(builder, inputs, [f"Gradient___{x}"], loss)
    np.testing.assert_array_equal(result[f"Gradient___{x}"], [0.5, 0.5])
    for id in (i, w):
        with pytest.raises(popart.popart_exception, match=f"Anchor tensor `Gradient___{id}' not"):
            step(builder, inputs, [f"Gradient___{id}"], loss)


def test_names_of_graphs():
    """The serialised graph has the names that setGraphName gave."""
    builder = popart.Builder()
    builder.setGraphName("main")
    x = builder.addInputTensor("FLOAT", [2])
    branches = []
    for name, method in (("then", "abs"), ("else", "neg")):
        inner = builder.createSubgraphBuilder()
        inner.setGraphName(name)
        inner.addOutputTensor(getattr(inner.aiOnnx, method)([x]))
        branches.append(inner)
    chosen = builder.addInputTensor("BOOL", [])
    y = builder.aiOnnx.logical_if([chosen], 1, branches[1], branches[0])[0]
    session, _ = step(builder, {x: np.ones(2, np.float32), chosen: np.array(True)}, [y])
    graphs = json.loads(session._serializeIr(popart.IrSerializationFormat.JSON))
    assert [row["type"] for row in graphs["main"]] == ["If"]
    assert [row["type"] for name in ("then", "else") for row in graphs[name]] == ["Abs", "Neg"]
