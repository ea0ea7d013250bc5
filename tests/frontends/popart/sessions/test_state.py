"""What a session holds: weights, states and numbers of optimisers, and the files they are in."""

import numpy as np
import pytest

import popart
from tests.frontends.popart.sessions.models import (
    CPU,
    LABELS,
    W1,
    W2,
    X,
    classifier,
    flow,
    options,
    trained,
    weights_of,
)

MOMENTUM = popart.SGD({"defaultLearningRate": (0.1, True), "defaultMomentum": (0.5, True)})
ADAM = popart.Adam({"defaultLearningRate": (0.1, True)})


def test_numbers_that_sgd_sends():
    """Compound numbers of SGD are anchors by PopART's names, and follow the optimiser."""
    rate = popart.reservedDefaultScaledLearningRate0Prefix() + "FLOAT"
    decay = popart.reservedDefaultWeightDecayScaleFactor0Prefix() + "FLOAT"

    def plain(learning_rate):
        values = {"defaultLearningRate": (learning_rate, False), "defaultWeightDecay": (0.1, False)}
        return popart.SGD({**values, "lossScaling": (4.0, True)})

    kinds = dict.fromkeys([rate, decay], ("Final",))
    session, anchors, _ = trained(classifier(12), flow(1, kinds), plain(0.5))
    np.testing.assert_allclose([anchors[rate], anchors[decay]], [0.125, 0.95], 1e-6)
    session.updateOptimizerFromHost(plain(0.25))
    session.run(popart.PyStepIO({"x": X, "labels": LABELS}, anchors))
    np.testing.assert_allclose(anchors[rate], 0.0625, 1e-6)
    assert {rate, decay, "Gradient___w1"} <= set(session.getTensorIds())


def test_numbers_of_the_velocity():
    """With momentum the numbers are those of the tensor that is velocity and accumulator."""
    values = {"defaultLearningRate": (0.5, False), "defaultMomentum": (0.9, False)}
    values |= {"defaultVelocityScaling": (2.0, False), "lossScaling": (4.0, False)}
    numbers = {"ScaledLearningRate1": 0.25, "ScaledMomentum1": 0.9, "DampeningScaleFactor1": 0.5}
    ids = {getattr(popart, f"reservedDefault{n}Prefix")() + "FLOAT": v for n, v in numbers.items()}
    kinds = dict.fromkeys(ids, ("Final",))
    _, anchors, _ = trained(classifier(12), flow(1, kinds), popart.SGD(values))
    for id, value in ids.items():
        np.testing.assert_allclose(anchors[id], value, 1e-6)


def test_anchors_of_accumulation():
    """Micro-batches send the weight before its update, and the gradients summed so far."""
    kinds = dict.fromkeys(["w1", "Gradient___w1", "Accum___w1", "UpdatedVar___w1"], ("All",))
    opts = options(enableGradientAccumulation=True, accumulationFactor=3)
    _, anchors, last = trained(classifier(2), flow(2, kinds), popart.ConstSGD(0.1), opts)
    np.testing.assert_array_equal(anchors["w1"][0], [W1] * 3)
    np.testing.assert_allclose(
        anchors["Accum___w1"], np.cumsum(anchors["Gradient___w1"], 1), 1e-5, 1e-6
    )
    total = anchors["Accum___w1"][0, -1]
    np.testing.assert_allclose(anchors["w1"][1, 0], W1 - 0.1 * total, 1e-5, 1e-6)
    np.testing.assert_array_equal(anchors["UpdatedVar___w1"][0, 0], anchors["w1"][1, 0])
    np.testing.assert_array_equal(anchors["UpdatedVar___w1"][1, 2], last["w1"])


@pytest.mark.parametrize(("optimizer", "prefixes"), [
    (MOMENTUM, ["Accl___"]), (ADAM, ["Accl1___", "Accl2___", "Step___"]),
])  # fmt: skip
def test_weights_in_files(tmp_path, optimizer, prefixes):
    """Weights in a file are written back to it, states behind them; the model trains further."""
    builder, file, model = classifier(12), tmp_path / "weights.bin", tmp_path / "model.onnx"
    builder.saveInitializersExternally(["w1", "w2"], file)
    assert file.read_bytes() == W1.tobytes() + W2.tobytes()
    kinds = {"loss:0": ("Final",)}
    session, anchors, after = trained(builder, flow(1, kinds), optimizer)
    session.modelToHost(model)
    sizes = {"w1": W1.shape, "w2": W2.shape}
    shapes = {p + n: () if p == "Step___" else s for p in prefixes for n, s in sizes.items()}
    states = {id: np.empty(shape, np.float32) for id, shape in shapes.items()}
    session.readWeights(popart.PyWeightsIO(states))
    expected = [*after.values(), *states.values()]
    assert file.read_bytes() == b"".join(array.tobytes() for array in expected)
    again = popart.TrainingSession(str(model), flow(1, kinds), "loss:0", optimizer, CPU)
    again.prepareDevice()
    again.weightsFromHost()
    inputs, others = {"x": X, "labels": LABELS}, again.initAnchorArrays()
    session.run(popart.PyStepIO(inputs, anchors))
    again.run(popart.PyStepIO(inputs, others))
    np.testing.assert_array_equal(anchors["loss:0"], others["loss:0"])
    np.testing.assert_array_equal(weights_of(session)["w1"], weights_of(again)["w1"])


def test_files_that_are_missing(tmp_path):
    """A folder or a file that does not exist is an error that names it."""
    builder = classifier(12)
    with pytest.raises(popart.popart_exception, match="parent directory does not exist"):
        builder.saveInitializersExternally(["w1"], tmp_path / "none" / "weights.bin")
    builder.saveInitializersExternally(["w1"], tmp_path / "weights.bin")
    (tmp_path / "weights.bin").unlink()
    with pytest.raises(popart.popart_exception, match=r"weights\.bin, but it doesn't exist"):
        popart.Builder(builder.getModelProto())


@pytest.mark.parametrize(("values", "text"), [
    ({"defaultLearningRate": (-1.0, False)}, "Negative learning rate"),
    ({"defaultLearningRate": (0.0, True)}, "Constant, zero learning rate"),
    ({"defaultMomentum": (-0.1, False)}, "Negative momentum"),
    ({"defaultVelocityScaling": (0.0, False)}, "velocity scaling in SGD must be positive"),
    ({"defaultLearningRate": 0.1}, "must be a tuple"),
    ({"defaultLearningRate": (0.1,)}, "is_constant"),
])  # fmt: skip
def test_numbers_that_are_mistakes(values, text):
    """Negative numbers, rates that stay zero and values that are no pairs are errors."""
    with pytest.raises(popart.popart_exception, match=text):
        popart.SGD(values)


def test_counters():
    """A weight of integers that the graph updates is not a constant of the program."""
    builder = popart.Builder()
    count = builder.addInitializedInputTensor(np.array([1], np.int32))
    one = builder.aiOnnx.constant(np.array([1], np.int32))
    new = builder.aiGraphcore.copyvarupdate([count, builder.aiOnnx.add([count, one])])
    session = popart.InferenceSession(builder.getModelProto(), flow(1, {new: ("All",)}), CPU)
    session.prepareDevice()
    anchors = session.initAnchorArrays()
    seen = []
    for _ in range(3):
        session.run(popart.PyStepIO({}, anchors))
        seen.append(int(anchors[new][0]))
    assert seen == [2, 3, 4]


def test_inputs_that_do_not_fit():
    """Arrays of another type or in another order of elements are errors; int64 for int32 is not."""
    session, anchors, _ = trained(classifier(12), flow(1, {}), popart.ConstSGD(0.1))
    with pytest.raises(popart.popart_exception, match=r"Type discrepancy .*float64 .*float32"):
        session.run(popart.PyStepIO({"x": X.astype(np.float64), "labels": LABELS}, anchors))
    with pytest.raises(popart.popart_exception, match="'x' as it is not c-contiguous"):
        popart.PyStepIO({"x": np.asfortranarray(X), "labels": LABELS}, anchors)
    session.run(popart.PyStepIO({"x": X, "labels": LABELS.astype(np.int64)}, anchors))


def test_mandatory_patterns():
    """Switching mandatory patterns off is an error, unless the patterns' asserts are off."""
    model, chosen = classifier(12).getModelProto(), popart.Patterns(["PreUniRepl"])
    with pytest.raises(popart.popart_exception, match="Mandatory pattern"):
        popart.InferenceSession(model, flow(1, {}), CPU, patterns=chosen)
    chosen.enableRuntimeAsserts(False)
    popart.InferenceSession(model, flow(1, {}), CPU, patterns=chosen)


def test_engines():
    """A session runs after prepareDevice, which loads the engine or leaves it to the first run."""
    builder, inputs = classifier(12), {"x": X, "labels": LABELS}
    session = popart.InferenceSession(builder.getModelProto(), flow(1, {"found:0": ("All",)}), CPU)
    with pytest.raises(popart.popart_exception, match="no compiled engine"):
        session.loadEngineAndConnectStreams()
    anchors = session.initAnchorArrays()
    with pytest.raises(popart.popart_exception, match="Must call prepareDevice"):
        session.run(popart.PyStepIO(inputs, anchors))
    session.prepareDevice(loadEngine=False)
    session.run(popart.PyStepIO(inputs, anchors))
    np.testing.assert_allclose(anchors["found:0"].sum(1), 1, 1e-5)


def test_devices_that_a_script_replaces(monkeypatch):
    """A script may replace acquireAvailableDevice by a function that tries first."""
    manager = popart.DeviceManager
    monkeypatch.setattr(
        manager, "acquireAvailableDevice", lambda self, n: self.tryAcquireAvailableDevice(n)
    )
    assert manager().acquireAvailableDevice(2).numIpus == 2
    assert manager().createSimDevice({}).tilesPerIPU == 4
    for kind in (popart.DeviceType.IpuModel, popart.DeviceType.Cpu, popart.DeviceType.Ipu):
        assert manager().enumerateDevices(numIpus=4, deviceType=kind)[0].numIpus == 4
