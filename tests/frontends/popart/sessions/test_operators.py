"""Operators as sessions run and train them: where PopART differs from ONNX or PyTorch."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import popart
from tests.frontends.popart.sessions.models import CPU, flow, options

MODEL = popart.DeviceManager().createIpuModelDevice({"tilesPerIPU": 16})
DEVICES = pytest.mark.parametrize("device", [CPU, MODEL], ids=["cpu", "model"])
RNG = np.random.default_rng(0)
ALL = ("All",)


def floats(*shape):
    return RNG.uniform(0.1, 1, shape).astype(np.float32)


def step(builder, inputs, anchors, loss=None, opts=None, device=CPU):
    """A session after one step, and its anchors."""
    how = (builder.getModelProto(), flow(1, dict.fromkeys(anchors, ALL)))
    if loss is None:
        session = popart.InferenceSession(*how, device, userOptions=opts)
    else:
        sgd = popart.ConstSGD(0.1)
        session = popart.TrainingSession(*how, loss, sgd, device, userOptions=opts)
    session.prepareDevice()
    session.weightsFromHost()
    result = session.initAnchorArrays()
    session.run(popart.PyStepIO(inputs, result))
    session.weightsToHost()
    return session, result


def weight(session, id):
    info = session.getInfo(id)
    array = np.empty(info.shape(), info.data_type_lcase())
    session.readWeights(popart.PyWeightsIO({id: array}))
    return array


def normalised(x, n_outputs, domain="aiOnnx"):
    """A builder with x·w → batch normalisation → mean, and the ids of x, w, parameters, outputs."""
    builder = popart.Builder()
    x_id = builder.addInputTensor(popart.TensorInfo(x))
    w = builder.addInitializedInputTensor(np.full((1, 2, 1), 2, np.float32))
    values = ([1, 2], [0, 1], [0.5, 0], [1, 2])
    parameters = [builder.addInitializedInputTensor(np.array(v, np.float32)) for v in values]
    hidden = builder.aiOnnx.mul([x_id, w])
    norm = getattr(builder, domain).batchnormalization
    outputs = norm([hidden, *parameters], n_outputs, 1e-5, 0.9)
    loss = builder.aiGraphcore.identityloss([builder.aiOnnx.mul([outputs[0], x_id])])
    return builder, x_id, w, parameters, outputs, loss


@DEVICES
@pytest.mark.parametrize("n_outputs", [1, 5])
def test_batch_norm_trains(device, n_outputs):
    """By statistics of the batch with five outputs, else its own; gradients are torch's."""
    x = floats(4, 2, 3)
    builder, x_id, w, parameters, outputs, loss = normalised(x, n_outputs)
    wanted = [outputs[0], f"Gradient___{w}", f"Gradient___{parameters[0]}"]
    session, result = step(builder, {x_id: x}, wanted, loss, device=device)
    scale, factor = (torch.tensor(v, requires_grad=True) for v in ([1.0, 2.0], [[[2.0], [2.0]]]))
    mean, var = torch.tensor([0.5, 0.0]), torch.tensor([1.0, 2.0])
    hidden = torch.tensor(x) * factor
    bias = torch.tensor([0.0, 1.0])
    y = F.batch_norm(hidden, mean, var, scale, bias, n_outputs == 5, 0.1, 1e-5)
    (y * torch.tensor(x)).mean().backward()
    np.testing.assert_allclose(result[outputs[0]], y.detach(), 1e-4, 1e-5)
    np.testing.assert_allclose(result[wanted[1]], factor.grad, 1e-3, 1e-5)
    np.testing.assert_allclose(result[wanted[2]], scale.grad, 1e-3, 1e-5)
    np.testing.assert_allclose(weight(session, parameters[2]), mean, 1e-5)


@pytest.mark.parametrize(("domain", "n_lost"), [("aiOnnx", 0), ("aiGraphcore", 1)])
def test_running_variance(domain, n_lost):
    """ONNX's running variance divides by n, that of ai.graphcore by n - 1."""
    x = floats(4, 2, 3)
    builder, x_id, _, parameters, outputs, loss = normalised(x, 5, domain)
    session, result = step(builder, {x_id: x}, [outputs[2]], loss)
    expected = np.array([0.9, 1.8]) + 0.1 * (2 * x).var((0, 2), ddof=n_lost)
    np.testing.assert_allclose(result[outputs[2]], expected, 1e-5)
    np.testing.assert_allclose(weight(session, parameters[3]), expected, 1e-5)


@pytest.mark.parametrize("n_outputs", [1, 5])
def test_batch_norm_of_elements(n_outputs):
    """spatial = 0 normalises each element of a sample over the batch; wrong shapes are errors."""
    x, values = floats(4, 2, 3), [floats(2, 3) for _ in range(4)]
    builder = popart.Builder(opsets={"ai.onnx": 7, "ai.graphcore": 1})
    ids = [builder.addInputTensor(popart.TensorInfo(a)) for a in (x, *values)]
    y = builder.aiOnnxOpset7.batchnormalization(ids, n_outputs, 1e-5, 0.9, 0)[0]
    _, result = step(builder, dict(zip(ids, (x, *values), strict=True)), [y])
    mean, var = (x.mean(0), x.var(0)) if n_outputs == 5 else values[2:]
    expected = (x - mean) / np.sqrt(var + 1e-5) * values[0] + values[1]
    np.testing.assert_allclose(result[y], expected, 1e-4, 1e-5)
    other = builder.aiOnnxOpset7.batchnormalization(ids, 1, 1e-5, 0.9, 1)[0]
    with pytest.raises(popart.popart_exception, match=r"expected shape .* scale .* to be \[2\]"):
        step(builder, dict(zip(ids, (x, *values), strict=True)), [other])


@DEVICES
def test_strided_groups(device):
    """groupNormStridedChannelGrouping puts every n-th channel into a group."""
    x, scale, bias = floats(2, 4, 3), floats(4), floats(4)
    builder = popart.Builder()
    ids = [builder.addInputTensor(popart.TensorInfo(a)) for a in (x, scale, bias)]
    y, mean, _ = builder.aiGraphcore.groupnormalization(ids, 2)
    inputs = dict(zip(ids, (x, scale, bias), strict=True))
    opts = options(groupNormStridedChannelGrouping=True)
    _, result = step(builder, inputs, [y, mean], opts=opts, device=device)
    order = [0, 2, 1, 3]
    moved = F.group_norm(torch.tensor(x[:, order]), 2)[:, order].numpy()
    expected = moved * scale[:, None] + bias[:, None]
    np.testing.assert_allclose(result[y], expected, 1e-4, 1e-5)
    np.testing.assert_allclose(result[mean], x[:, order].reshape(4, 6).mean(1), 1e-5)


def test_dropouts():
    """Dropouts drop in training only, shaped ones whole slices; a ratio of 1 is an error."""
    for train in (False, True):
        builder = popart.Builder()
        x = builder.addInputTensor("FLOAT", [64, 4])
        y = builder.aiGraphcore.shapeddropout([x], [64, 1], 0.5)
        z = builder.aiOnnx.dropout([x], 1, 0.25)[0]
        loss = builder.aiGraphcore.l1loss([builder.aiOnnx.add([y, z])], 1.0)
        ones = np.ones((64, 4), np.float32)
        _, result = step(builder, {x: ones}, [y, z], loss if train else None)
        assert set(np.unique(result[y])) == ({0, 2} if train else {1})
        assert (result[y] == result[y][:, :1]).all()
        assert (result[z] == 1).all() != train
    for method, how in (("dropout", (1, 1.0)), ("dropout", (1, -0.1))):
        builder = popart.Builder()
        x = builder.addInputTensor("FLOAT", [4])
        y = getattr(builder.aiOnnx, method)([x], *how)[0]
        with pytest.raises(popart.popart_exception, match=r"in the interval \[0,1\)$"):
            step(builder, {x: np.ones(4, np.float32)}, [y])


@DEVICES
@pytest.mark.parametrize("kind", ["UINT32", "UINT16"])
def test_unsigned_inputs(device, kind):
    """Indices and labels may be unsigned; results of such types come back as they are declared."""
    builder = popart.Builder()
    table = builder.addInitializedInputTensor(np.arange(12, dtype=np.float32).reshape(4, 3))
    rows = builder.addInputTensor(kind, [2])
    picked = builder.aiOnnx.gather([table, rows])
    total = builder.aiOnnx.add([rows, rows])
    chances = builder.aiOnnx.softmax([picked], 1)
    loss = builder.aiGraphcore.nllloss([chances, rows])
    values = np.array([0, 2], kind.lower())
    _, result = step(builder, {rows: values}, [picked, total, loss], loss, device=device)
    np.testing.assert_array_equal(result[picked], [[0, 1, 2], [6, 7, 8]])
    np.testing.assert_array_equal(result[total], [0, 4])
    assert result[total].dtype == values.dtype
    chance = np.exp([0, 1, 2]) / np.exp([0, 1, 2]).sum()
    expected = -(np.log(chance[0]) + np.log(chance[2])) / 2
    np.testing.assert_allclose(result[loss], expected, 1e-5)


def test_index_types():
    """ArgMax and ArgMin give int32, TopK uint32: the device has no 64-bit integers."""
    builder = popart.Builder()
    x = builder.addInputTensor("FLOAT", [2, 3])
    best, least = builder.aiOnnx.argmax([x], 1, 0), builder.aiOnnx.argmin([x], 1, 0)
    k = builder.aiOnnx.constant(np.array([2], np.int64))
    values, places = builder.aiOnnx.topk([x, k], 1)
    assert builder.getTensorDtypeString(best) == "int32"
    array = np.array([[1, 3, 2], [9, 7, 8]], np.float32)
    _, result = step(builder, {x: array}, [best, least, values, places])
    np.testing.assert_array_equal(result[best], np.array([1, 0], np.int32), strict=True)
    np.testing.assert_array_equal(result[least], np.array([0, 1], np.int32), strict=True)
    np.testing.assert_array_equal(
        result[places], np.array([[1, 2], [0, 2]], np.uint32), strict=True
    )


def test_resize():
    """Sizes are floors of products in float32; nearest_mode has PyTorch's; scales may be halves."""
    x = floats(1, 1, 10)
    builder = popart.Builder(opsets={"ai.onnx": 11, "ai.graphcore": 1})
    x_id = builder.addInputTensor(popart.TensorInfo(x))
    onnx = builder.aiOnnxOpset11
    region = onnx.constant(np.array([], np.float32), False)
    scales = onnx.constant(np.array([1, 1, 0.7], np.float32), False, "scales")
    halves = onnx.constant(np.array([1, 1, 2], np.float16))
    sizes = onnx.constant(np.array([1, 1, 4], np.int64))
    y = onnx.resize([x_id, region, scales], nearest_mode="pytorch")
    twice = onnx.resize([x_id, region, halves])
    four = onnx.resize([x_id, region, "", sizes])
    assert builder.getTensorShape(y) == [1, 1, 7]
    _, result = step(builder, {x_id: x}, [y, twice, four])
    np.testing.assert_array_equal(result[y], F.interpolate(torch.tensor(x), size=7))
    np.testing.assert_array_equal(result[twice], x.repeat(2, 2))
    assert result[four].shape == (1, 1, 4)


def test_resize_of_version_10():
    """The attribute nearest_mode chooses a rounding between centres of pixels."""
    x = np.arange(6, dtype=np.float32).reshape(1, 1, 6)
    builder = popart.Builder()
    x_id = builder.addInputTensor(popart.TensorInfo(x))
    scales = builder.aiOnnx.constant(np.array([1, 1, 0.51], np.float32))
    plain, rounded = (builder.aiOnnx.resize([x_id, scales]) for _ in range(2))
    builder.addNodeAttribute("nearest_mode", "round_prefer_floor", {rounded})
    _, result = step(builder, {x_id: x}, [plain, rounded])
    np.testing.assert_array_equal(result[plain].ravel(), [0, 1, 3])
    np.testing.assert_array_equal(result[rounded].ravel(), [0, 2, 4])


@DEVICES
def test_convolutions_with_biases(device):
    """multiconv takes biases; the bias of a transposed convolution covers output padding."""
    x, w, bias = floats(1, 2, 5), floats(3, 2, 3), floats(3)
    builder = popart.Builder()
    ids = [builder.addInputTensor(popart.TensorInfo(a)) for a in (x, w, bias)]
    first, second = builder.aiGraphcore.multiconv(
        [ids, ids[:2]], pads=[[0, 0], [1, 1]], strides=[[1], [2]]
    )
    swapped = builder.aiOnnx.transpose([ids[1]], [1, 0, 2])
    third = builder.aiOnnx.convtranspose([ids[0], swapped, ids[2]], strides=[2], output_padding=[1])
    inputs = dict(zip(ids, (x, w, bias), strict=True))
    _, result = step(builder, inputs, [first, second, third], device=device)
    tx, tw, tb = map(torch.tensor, (x, w, bias))
    np.testing.assert_allclose(result[first], F.conv1d(tx, tw, tb), 1e-5)
    np.testing.assert_allclose(result[second], F.conv1d(tx, tw, None, 2, 1), 1e-5)
    expected = F.conv_transpose1d(tx, tw.transpose(0, 1), tb, 2, 0, 1)
    np.testing.assert_allclose(result[third], expected, 1e-5)


@DEVICES
def test_slices_and_scatters(device):
    """Lengths of sequences may be inputs; indices smaller than the source cover a part of it."""
    rows = np.arange(8, dtype=np.float32).reshape(4, 2)
    numbers = [np.array(v, np.uint32) for v in ([2, 1], [1, 3], [0, 3])]
    index = np.array([[1], [1]], np.uint32)
    builder = popart.Builder()
    source = builder.addInputTensor(popart.TensorInfo(rows))
    ids = [builder.addInputTensor(popart.TensorInfo(a)) for a in (*numbers, index)]
    into = builder.aiGraphcore.init([4, 2], popart.DataType.FLOAT, popart.InitType.Zero, "zeros")
    moved = builder.aiGraphcore.sequenceslice([source, into, *ids[:3]])
    total = builder.aiGraphcore.scatterreduce(
        [source, ids[3]], axis_size=2, axis=0, enable_index_broadcast=False
    )
    product = builder.aiGraphcore.scatterreduce(
        [source, ids[3]], axis_size=2, axis=0, reduction=popart.ScatterReduction.Mul,
        enable_index_broadcast=False,
    )  # fmt: skip
    inputs = dict(zip([source, *ids], [rows, *numbers, index], strict=True))
    _, result = step(builder, inputs, [moved, total, product], device=device)
    np.testing.assert_array_equal(result[moved], [[2, 3], [4, 5], [0, 0], [6, 7]])
    np.testing.assert_array_equal(result[total], [[0, 0], [2, 0]])
    np.testing.assert_array_equal(result[product], [[1, 1], [0, 1]])


def test_nothing_reduced():
    """Reductions over an empty list of axes reduce nothing; without a list they reduce all."""
    builder = popart.Builder()
    x = builder.addInputTensor("FLOAT", [2, 3])
    y, z = builder.aiOnnx.reducesum([x], axes=[]), builder.aiOnnx.reducesum([x], keepdims=0)
    assert builder.getTensorShape(y) == [2, 3]
    array = floats(2, 3)
    _, result = step(builder, {x: array}, [y, z])
    np.testing.assert_array_equal(result[y], array)
    np.testing.assert_allclose(result[z], array.sum(), 1e-5)


def test_types_that_onnx_rejects():
    """Equal of floats, shapes of 32 bits, negative axes, scales of integers: PopART takes them."""
    builder = popart.Builder()
    x = builder.addInputTensor("FLOAT", [2, 1])
    i = builder.addInputTensor("INT32", [2])
    shape = builder.aiOnnx.constant(np.array([2, 3], np.int32))
    same = builder.aiOnnx.equal([x, x])
    wide, flat = builder.aiOnnx.expand([x, shape]), builder.aiOnnx.flatten([x], -1)
    twice = builder.aiGraphcore.scale([i], 2)
    assert builder.getTensorShape(wide) == [2, 3]
    assert builder.getTensorDtypeString(same) == "bool"
    inputs = {x: floats(2, 1), i: np.array([1, 2], np.int32)}
    _, result = step(builder, inputs, [same, wide, flat, twice])
    assert result[same].all()
    np.testing.assert_array_equal(result[twice], np.array([2, 4], np.int32), strict=True)


def test_increments_of_negatives():
    """incrementmod is C's remainder."""
    builder = popart.Builder()
    x = builder.addInputTensor("INT32", [3])
    y = builder.aiGraphcore.incrementmod([x], 1, 3)
    _, result = step(builder, {x: np.array([-5, 2, 4], np.int32)}, [y])
    np.testing.assert_array_equal(result[y], [-1, 0, 2])


@DEVICES
def test_abort(device):
    """Abort stops the step if its condition is true, or if it has none."""
    builder = popart.Builder()
    stops = builder.addInputTensor("BOOL", [])
    builder.aiGraphcore.abort([stops])
    y = builder.aiOnnx.logical_not([stops])
    _, result = step(builder, {stops: np.array(False)}, [y], device=device)
    assert result[y]
    with pytest.raises(popart.poplar_application_runtime_error, match="Abort Program"):
        step(builder, {stops: np.array(True)}, [y], device=device)


@pytest.mark.parametrize("axis", [1, 2, -1])
def test_grouped_scatters(axis):
    """One index for each slice of a group, along any axis of it."""
    source = floats(2, 3, 3, 3)
    index = np.array([[0, 1, 0], [1, 1, 0]], np.uint32)
    builder = popart.Builder()
    ids = [builder.addInputTensor(popart.TensorInfo(a)) for a in (source, index)]
    total = builder.aiGraphcore.groupedscatterreduce(ids, axis_size=2, axis=axis, group_size=2)
    _, result = step(builder, dict(zip(ids, (source, index), strict=True)), [total])
    for group in range(2):
        inner = axis if axis < 0 else axis - 1
        zeros = np.zeros([2 if d == inner % 3 else 3 for d in range(3)], np.float32)
        rows = torch.tensor(index[group].astype(np.int64))
        expected = torch.tensor(zeros).index_add(inner, rows, torch.tensor(source[group]))
        np.testing.assert_allclose(result[total][group], expected, 1e-5)


def test_labels_that_do_not_fit():
    """Labels have the shape of the probabilities without their classes."""
    builder = popart.Builder()
    chances = builder.addInputTensor("FLOAT", [2, 4, 3])
    labels = builder.addInputTensor("INT32", [2, 5])
    loss = builder.aiGraphcore.nllloss([chances, labels])
    with pytest.raises(popart.popart_exception, match=r"INT32 +\[2 5\]\) must have shape \[2 4\]"):
        step(builder, {}, [loss], loss)
