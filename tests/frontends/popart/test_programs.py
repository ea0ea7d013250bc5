"""Small programs of the structure of public ones: MNIST, execution phases, callbacks."""

import numpy as np
import pytest

import popart

N_PIXELS, N_CLASSES, BATCH, BATCHES_PER_STEP = 64, 10, 4, 5
RNG = np.random.default_rng(3)


def digits(n):
    """Images of which each class has different bright pixels, and their labels."""
    labels = RNG.integers(0, N_CLASSES, n).astype(np.int32)
    images = RNG.random((n, N_PIXELS)).astype(np.float32) * 0.2
    for image, label in zip(images, labels, strict=True):
        image[6 * label : 6 * label + 6] += 1
    return images, labels


def mnist_model(batch):
    """Two fully connected layers, as the public example builds them."""
    builder = popart.Builder()
    image = builder.addInputTensor(popart.TensorInfo("FLOAT", [batch, N_PIXELS]), "image")
    label = builder.addInputTensor(popart.TensorInfo("INT32", [batch]), "label")
    with builder.nameScope("fc"):
        w = builder.addInitializedInputTensor(
            RNG.normal(0, 0.1, (N_PIXELS, 16)).astype(np.float32), "weights"
        )
        b = builder.addInitializedInputTensor(np.zeros(16, np.float32), "bias")
        hidden = builder.aiOnnx.relu([builder.aiOnnx.gemm([image, w, b], 1.0, 1.0, False, False)])
    with builder.nameScope("out"):
        w = builder.addInitializedInputTensor(RNG.normal(0, 0.1, (16, 10)).astype(np.float32), "w")
        scores = builder.aiOnnx.matmul([hidden, w], "scores")
    chances = builder.aiOnnx.softmax([scores], 1)
    loss = builder.aiGraphcore.nllloss([chances, label], popart.ReductionType.Mean, debugPrefix="l")
    best = builder.aiOnnx.argmax([chances], 1, 0)
    builder.addOutputTensor(chances)
    return builder, image, label, loss, best


def test_mnist(tmp_path):
    """Training sessions write a model that a validation session reads and gets right."""
    builder, image, label, loss, best = mnist_model(BATCH)
    proto = builder.getModelProto()
    flow = popart.DataFlow(BATCHES_PER_STEP, [best, loss], popart.AnchorReturnType("All"))
    device = popart.DeviceManager().acquireAvailableDevice(1)
    optimizer = popart.SGD({"defaultLearningRate": (0.5, False), "defaultMomentum": (0.5, False)})
    training = popart.TrainingSession(
        fnModel=proto, dataFlow=flow, loss=loss, optimizer=optimizer, deviceInfo=device
    )
    training.prepareDevice()
    training.weightsFromHost()
    anchors = training.initAnchorArrays()
    assert anchors[loss].shape == (BATCHES_PER_STEP,)
    for _ in range(20):
        images, labels = digits(BATCH * BATCHES_PER_STEP)
        shaped = images.reshape(BATCHES_PER_STEP, BATCH, -1), labels.reshape(-1, BATCH)
        training.run(popart.PyStepIO(dict(zip((image, label), shaped, strict=True)), anchors))
    training.modelToHost(str(tmp_path / "trained.onnx"))
    validation = popart.InferenceSession(proto, flow, device)
    validation.prepareDevice()
    validation.resetHostWeights(str(tmp_path / "trained.onnx"), True)
    validation.weightsFromHost()
    anchors = validation.initAnchorArrays()
    images, labels = digits(BATCH * BATCHES_PER_STEP)
    validation.run(popart.PyStepIO({image: images, label: labels}, anchors))
    assert anchors[best].dtype == np.int32
    np.testing.assert_array_equal(anchors[best].ravel(), labels)


def phased(n_phases):
    """A chain of layers, each in its own phase, with weights outside the chips."""
    builder = popart.Builder()
    x = builder.addInputTensor(popart.TensorInfo("FLOAT", [2, 4]))
    hidden, weights = x, []
    for phase in range(n_phases):
        with builder.executionPhase(phase), builder.nameScope(f"layer{phase}"):
            w = builder.addInitializedInputTensor(np.eye(4, dtype=np.float32) * (phase + 1))
            weights.append(w)
            hidden = builder.aiOnnx.relu([builder.aiOnnx.matmul([hidden, w])])
    with builder.executionPhase(n_phases - 1):
        loss = builder.aiGraphcore.l1loss([hidden], 1.0, popart.ReductionType.Sum)
    return builder, x, weights, loss


def test_execution_phases():
    """A model in phases over two chips trains as the same model without phases does."""
    updated = []
    for has_phases in (True, False):
        builder, x, weights, loss = phased(3)
        opts = popart.SessionOptions()
        if has_phases:
            opts.virtualGraphMode = popart.VirtualGraphMode.ExecutionPhases
            opts.executionPhaseSettings.phases = 3
            opts.executionPhaseSettings.stages = 2
            off_chip = popart.TensorLocationSettings(popart.TensorStorage.OffChip, 0)
            opts.weightTensorLocationSettings = off_chip
            opts.activationTensorLocationSettings = off_chip
        device = popart.DeviceManager().createIpuModelDevice({"numIPUs": 2, "tilesPerIPU": 8})
        flow = popart.DataFlow(1, {loss: popart.AnchorReturnType("Final")})
        session = popart.TrainingSession(
            builder.getModelProto(), flow, loss, popart.ConstSGD(0.1), device, userOptions=opts
        )
        session.prepareDevice()
        session.weightsFromHost()
        anchors = session.initAnchorArrays()
        session.run(popart.PyStepIO({x: np.ones((2, 4), np.float32)}, anchors))
        session.weightsToHost()
        arrays = {w: np.empty((4, 4), np.float32) for w in weights}
        session.readWeights(popart.PyWeightsIO(arrays))
        updated.append([anchors[loss], *arrays.values()])
        assert anchors[loss] == pytest.approx(8 * 6)
    for with_phases, without in zip(*updated, strict=True):
        np.testing.assert_allclose(with_phases, without, 1e-5)


def test_callbacks():
    """Functions feed each micro-batch and receive each anchor; both learn when a transfer ends."""
    builder, image, label, loss, _ = mnist_model(BATCH)
    flow = popart.DataFlow(3, {loss: popart.AnchorReturnType("All")})
    device = popart.DeviceManager().createCpuDevice()
    session = popart.TrainingSession(
        builder.getModelProto(), flow, loss, popart.ConstSGD(0.1), device
    )
    session.prepareDevice()
    session.weightsFromHost()
    images, labels = digits(3 * BATCH)
    feeds = {
        image: iter(images.reshape(3, BATCH, -1)),
        label: iter(labels.reshape(3, BATCH)),
    }
    received, events = [], []

    def output(_id):
        received.append(np.zeros((), np.float32))
        return received[-1]

    stepio = popart.PyStepIOCallback(
        lambda name, _is_prefetch: next(feeds[name]),
        lambda name: events.append(("read", name)),
        output,
        lambda name: events.append(("written", name)),
    )
    session.run(stepio)
    assert [events.count(e) for e in (("read", image), ("read", label), ("written", loss))] == [
        3
    ] * 3
    again = popart.TrainingSession(
        builder.getModelProto(), flow, loss, popart.ConstSGD(0.1), device
    )
    again.prepareDevice()
    again.weightsFromHost()
    anchors = again.initAnchorArrays()
    again.run(popart.PyStepIO({image: images, label: labels}, anchors))
    np.testing.assert_array_equal(received, anchors[loss])
