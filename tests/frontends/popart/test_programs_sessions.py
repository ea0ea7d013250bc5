"""Small programs of the structure of public ones: inference, loops, checkpoints, randomness."""

import numpy as np
import pytest
import torch

import popart

pytestmark = pytest.mark.slow


def convolution(builder, x, shape, stride, rng):
    """A convolution with its normalisation, as networks of images have them."""
    n_out = shape[0]
    w = rng.normal(0, 0.3, shape).astype(np.float32)
    pad = shape[-1] // 2
    y = builder.aiOnnx.conv(
        [x, builder.addInitializedInputTensor(w)],
        dilations=[1, 1],
        pads=[pad] * 4,
        strides=[stride] * 2,
    )
    statistics = [np.ones(n_out), np.zeros(n_out), rng.normal(size=n_out), rng.random(n_out) + 0.5]
    statistics = [value.astype(np.float32) for value in statistics]
    ids = [builder.addInitializedInputTensor(value) for value in statistics]
    (y,) = builder.aiOnnx.batchnormalization([y, *ids], 1, 1e-5, 0.1)
    return y, (w, statistics, stride, pad)


def torch_convolution(x, parameters):
    w, statistics, stride, pad = parameters
    y = torch.nn.functional.conv2d(x, torch.tensor(w), stride=stride, padding=pad)
    scale, offset, mean, variance = map(torch.tensor, statistics)
    return torch.nn.functional.batch_norm(y, mean, variance, scale, offset)


def test_images_by_an_inference_session(tmp_path):
    """A residual network from a file, several batches in a step, two replicas: PyTorch's scores."""
    rng = np.random.default_rng(1)
    builder = popart.Builder(opsets={"ai.onnx": 9, "ai.onnx.ml": 1, "ai.graphcore": 1})
    image = builder.addInputTensor(popart.TensorInfo("FLOAT", [2, 3, 8, 8]), "image")
    stem, first = convolution(builder, image, (4, 3, 3, 3), 1, rng)
    stem = builder.aiOnnx.relu([stem])
    branch, second = convolution(builder, stem, (4, 4, 3, 3), 1, rng)
    joined = builder.aiOnnx.relu([builder.aiOnnx.add([branch, stem])])
    pooled = builder.aiOnnx.maxpool([joined], 1, [2, 2], strides=[2, 2])[0]
    flat = builder.aiOnnx.flatten([builder.aiOnnx.globalaveragepool([pooled])], 1)
    w = rng.normal(size=(5, 4)).astype(np.float32)
    bias = rng.normal(size=5).astype(np.float32)
    dense = [builder.addInitializedInputTensor(value) for value in (w, bias)]
    scores = builder.aiOnnx.gemm([flat, *dense], transB=True)
    chances = builder.aiOnnx.softmax([scores])
    builder.addOutputTensor(chances)
    path = str(tmp_path / "network.onnx")
    builder.saveModelProto(path)

    opts = popart.SessionOptions()
    opts.enableReplicatedGraphs = True
    opts.replicatedGraphCount = 2
    patterns = popart.Patterns(popart.PatternsLevel.Default)
    session = popart.InferenceSession(
        fnModel=path,
        dataFlow=popart.DataFlow(3, {chances: popart.AnchorReturnType("All")}),
        deviceInfo=popart.DeviceManager().createIpuModelDevice({"numIPUs": 2, "tilesPerIPU": 8}),
        patterns=patterns,
        userOptions=opts,
    )
    session.prepareDevice()
    session.weightsFromHost()
    anchors = session.initAnchorArrays()
    data = rng.normal(size=(3, 2, 2, 3, 8, 8)).astype(np.float32)
    session.run(popart.PyStepIO({image: data}, anchors))

    x = torch.relu(torch_convolution(torch.tensor(data).flatten(0, 2), first))
    x = torch.relu(torch_convolution(x, second) + x)
    x = torch.nn.functional.max_pool2d(x, 2).mean((2, 3))
    expected = torch.softmax(x @ torch.tensor(w).T + torch.tensor(bias), 1)
    assert anchors[chances].shape == (3, 2, 2, 5)
    np.testing.assert_allclose(anchors[chances].reshape(-1, 5), expected, atol=1e-5)


def test_a_loop_and_a_scan():
    """A body repeated on its own result, and one over rows: powers and running sums."""
    rng = np.random.default_rng(2)
    builder = popart.Builder(opsets={"ai.onnx": 11, "ai.graphcore": 1})
    vector = builder.addInputTensor(popart.TensorInfo("FLOAT", [3]), "vector")
    matrix = rng.normal(0, 0.5, (3, 3)).astype(np.float32)
    w = builder.addInitializedInputTensor(matrix, "matrix")

    body = builder.createSubgraphBuilder()
    body.setGraphName("power")
    body.addInputTensor(popart.TensorInfo("INT32", []))
    going_on = body.addInputTensor(popart.TensorInfo("BOOL", []))
    state = body.addInputTensor(popart.TensorInfo("FLOAT", [3]))
    moved = body.aiOnnx.tanh([body.aiOnnx.matmul([state, w])])
    body.addOutputTensor(going_on)
    body.addOutputTensor(moved)
    n_trips = builder.aiOnnx.constant(np.array(4, np.int64), "trips")
    keep_going = builder.aiOnnx.constant(np.array(True), "keep_going")
    (last,) = builder.aiOnnx.loop([n_trips, keep_going, vector], 1, body)

    rows = builder.addInputTensor(popart.TensorInfo("FLOAT", [5, 3]), "rows")
    step = builder.createSubgraphBuilder()
    total = step.addInputTensor(popart.TensorInfo("FLOAT", [3]))
    row = step.addInputTensor(popart.TensorInfo("FLOAT", [3]))
    added = step.aiOnnx.add([total, row])
    step.addOutputTensor(added)
    step.addOutputTensor(step.aiOnnx.mul([added, added]))
    final, squares = builder.aiOnnx.scan([last, rows], 2, step, 1)

    anchor_ids = [last, final, squares]
    session = popart.InferenceSession(
        builder.getModelProto(),
        popart.DataFlow(1, anchor_ids),
        popart.DeviceManager().createIpuModelDevice({"numIPUs": 1, "tilesPerIPU": 4}),
    )
    session.prepareDevice()
    session.weightsFromHost()
    anchors = session.initAnchorArrays()
    x = rng.normal(size=3).astype(np.float32)
    data = rng.normal(size=(5, 3)).astype(np.float32)
    session.run(popart.PyStepIO({vector: x, rows: data}, anchors))
    for _ in range(4):
        x = np.tanh(x @ matrix)
    sums = x + np.cumsum(data, 0)
    for name, expected in zip(anchor_ids, (x, sums[-1], sums**2), strict=True):
        np.testing.assert_allclose(anchors[name].reshape(expected.shape), expected, atol=1e-5)


def counted(builder, rate):
    """A weight that moves by a known amount in each update, and its gradient's name."""
    x = builder.addInputTensor(popart.TensorInfo("FLOAT", [2, 2]), "x")
    w = builder.addInitializedInputTensor(np.full((2, 2), 3.0, np.float32), "w")
    y = builder.aiOnnx.mul([x, w])
    loss = builder.aiGraphcore.identityloss([y], popart.ReductionType.Sum)
    flow = popart.DataFlow(
        4,
        {
            loss: popart.AnchorReturnType("EveryN", 2),
            popart.reservedGradientPrefix() + w: popart.AnchorReturnType("All"),
            w: popart.AnchorReturnType("Final"),
        },
    )
    device = popart.DeviceManager().createCpuDevice()
    proto = builder.getModelProto()
    return x, w, loss, popart.TrainingSession(proto, flow, loss, popart.ConstSGD(rate), device)


def test_checkpoints(tmp_path):
    """A run written to a file and continued elsewhere is one run; gradients are anchors."""
    data = np.arange(32, dtype=np.float32).reshape(2, 4, 2, 2)
    x, w, loss, session = counted(popart.Builder(), 0.25)
    session.prepareDevice()
    session.weightsFromHost()
    anchors = session.initAnchorArrays()
    session.run(popart.PyStepIO({x: data[0]}, anchors))
    gradient = popart.reservedGradientPrefix() + w
    np.testing.assert_allclose(anchors[gradient], data[0])
    weights = 3.0 - 0.25 * np.concatenate([np.zeros((1, 2, 2)), np.cumsum(data[0], 0)])
    np.testing.assert_allclose(anchors[loss], [(weights[i] * data[0][i]).sum() for i in (1, 3)])
    np.testing.assert_allclose(anchors[w], weights[4])
    checkpoint = str(tmp_path / "checkpoint.onnx")
    session.modelToHost(checkpoint)

    _, _, _, other = counted(popart.Builder(), 0.25)
    other.prepareDevice()
    other.resetHostWeights(checkpoint)
    other.weightsFromHost()
    anchors = other.initAnchorArrays()
    other.run(popart.PyStepIO({x: data[1]}, anchors))
    np.testing.assert_allclose(anchors[w], weights[4] - 0.25 * data[1].sum(0))

    written = popart.PyWeightsIO({w: np.full((2, 2), -1.0, np.float32)})
    other.writeWeights(written)
    other.weightsFromHost()
    other.run(popart.PyStepIO({x: data[0]}, anchors))
    np.testing.assert_allclose(anchors[w], -1.0 - 0.25 * data[0].sum(0))


def dropped(seed, data, n_runs=1):
    """What a dropout and noise of a training session give, for a seed of the session."""
    builder = popart.Builder()
    x = builder.addInputTensor(popart.TensorInfo("FLOAT", [64]), "x")
    w = builder.addInitializedInputTensor(np.ones(64, np.float32), "w")
    scaled = builder.aiOnnx.mul([x, w])
    (y,) = builder.aiOnnx.dropout([scaled], 1, 0.25)
    noise = builder.aiOnnx.randomnormal(shape=[64], dtype=1, mean=2.0, scale=0.5)
    loss = builder.aiGraphcore.l1loss([builder.aiOnnx.add([y, noise])], 1.0)
    gradient = popart.reservedGradientPrefix() + scaled
    session = popart.TrainingSession(
        builder.getModelProto(),
        popart.DataFlow(2, [y, noise, gradient]),
        loss,
        popart.SGD({"defaultLearningRate": (0.0, False)}),
        popart.DeviceManager().createCpuDevice(),
    )
    session.prepareDevice()
    session.setRandomSeed(seed)
    session.weightsFromHost()
    anchors = session.initAnchorArrays()
    for _ in range(n_runs):
        session.run(popart.PyStepIO({x: data}, anchors))
    return anchors[y], anchors[noise], anchors[gradient]


def test_dropout_follows_the_seed():
    """A seed gives its draws again, others differ; what is dropped has no gradient."""
    data = np.random.default_rng(3).random((2, 64)).astype(np.float32) + 1
    first, again, other = dropped(7, data), dropped(7, data), dropped(8, data)
    for one, two in zip(first, again, strict=True):
        np.testing.assert_array_equal(one, two)
    assert all((a != b).any() for a, b in zip(first, other, strict=True))
    assert all((a != b).any() for a, b in zip(first, dropped(7, data, n_runs=2), strict=True))
    y, noise, gradient = first
    has_value = y != 0
    np.testing.assert_allclose(y, np.where(has_value, data / 0.75, 0), rtol=1e-6)
    np.testing.assert_array_equal(has_value, gradient != 0)
    assert 0.6 < has_value.mean() < 0.9
    assert (has_value[0] != has_value[1]).any()
    assert abs(noise.mean() - 2) < 0.2
    assert abs(noise.std() - 0.5) < 0.15
