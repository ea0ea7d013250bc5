"""Inference sessions: anchors, buffers, callbacks, devices, files, random numbers."""

import json

import numpy as np
import pytest

import popart

from .models import CPU, N_SAMPLES, W1, W2, X, classifier, flow, options, ran

N_BATCHES, N_REPLICAS = 6, 2


def doubler(broadcasts=False):
    """y = 2·x for two numbers at a time."""
    builder = popart.Builder()
    settings = [popart.InputSettings(popart.ReplicatedStreamMode.Broadcast)] * broadcasts
    x = builder.addInputTensor("FLOAT", [2], *settings, debugContext="x")
    builder.addOutputTensor(builder.aiOnnx.add([x, x], "y"))
    return builder


DATA = np.arange(N_BATCHES * N_REPLICAS * 2, dtype=np.float32)
PARTS = 2 * DATA.reshape(N_BATCHES, N_REPLICAS, 2)
EXPECTED = {
    ("All",): PARTS,
    ("Final",): PARTS[-1],
    ("Sum",): PARTS.sum(0),
    ("EveryN", 3): PARTS[2::3],
}


@pytest.mark.parametrize("kind", EXPECTED)
def test_anchors(kind):
    """All values, the last, the sum, or every n-th come back, replicas innermost."""
    opts = options(enableReplicatedGraphs=True, replicatedGraphCount=N_REPLICAS)
    session = popart.InferenceSession(
        doubler().getModelProto(), flow(N_BATCHES, {"y:0": kind}), CPU, userOptions=opts
    )
    session.prepareDevice()
    anchors = session.initAnchorArrays()
    session.run(popart.PyStepIO({"x": DATA}, anchors))
    np.testing.assert_array_equal(anchors["y:0"], EXPECTED[kind])
    assert (session.replicationFactor, session.accumulationFactor) == (N_REPLICAS, 1)


def test_callbacks():
    """Callbacks are called for every micro-batch, in order, and again when it is complete."""
    batches, taken, completed = iter(DATA.reshape(-1, 2)), [], []

    def output(id):
        taken.append(np.zeros(2, np.float32))
        return taken[-1]

    session = popart.InferenceSession(
        doubler().getModelProto(), flow(N_BATCHES * N_REPLICAS, {"y:0": ("All",)}), CPU
    )
    session.prepareDevice()
    session.run(
        popart.PyStepIOCallback(
            lambda _id, _prefetch: next(batches),
            completed.append,
            output,
            completed.append,
        )
    )
    np.testing.assert_array_equal(np.concatenate(taken), 2 * DATA)
    assert completed == ["x"] * 12 + ["y:0"] * 12


def test_inputs_that_replicas_share():
    """A broadcast input has one micro-batch for all replicas."""
    opts = options(enableReplicatedGraphs=True, replicatedGraphCount=3)
    _, result = ran(doubler(True), {"x": np.ones(2, np.float32)}, ["y:0"], opts)
    assert result["y:0"].tolist() == [[2, 2]] * 3


def test_collectives_inside_a_step():
    """Replicas cannot meet inside a step, and that is an error."""
    builder = popart.Builder()
    x = builder.addInputTensor("FLOAT", [1], "x")
    y = builder.aiGraphcore.replicatedallreduce([x])
    data = {"x": np.ones(2, np.float32)}
    opts = options(enableReplicatedGraphs=True, replicatedGraphCount=2)
    with pytest.raises(popart.popart_exception, match="joins values of replicas inside a step"):
        ran(builder, data, [y], opts)


def test_any_tensor_and_its_info():
    """Every tensor can be anchored and asked for its type."""
    ids = ["x", "hidden:0", "scores:0", "found:0", "w1"]
    session, result = ran(classifier(N_SAMPLES), {"x": X}, ids)
    hidden = np.tanh(X @ W1)
    np.testing.assert_allclose(result["hidden:0"], hidden, 1e-5, 1e-6)
    np.testing.assert_allclose(result["scores:0"], hidden @ W2, 1e-5, 1e-5)
    np.testing.assert_array_equal(result["x"], X)
    np.testing.assert_array_equal(result["w1"], W1)
    assert session.getInfo("hidden:0") == popart.TensorInfo("FLOAT", [N_SAMPLES, 5])
    assert set(ids) <= set(session.getAllTensorIds())
    with pytest.raises(popart.popart_exception, match=r"TensorInfo for 'hiden:0' not found"):
        session.getInfo("hiden:0")


def test_wrong_buffers():
    """Arrays that are missing, of the wrong size or not contiguous are errors with both sizes."""
    builder = doubler()
    with pytest.raises(popart.popart_exception, match=r"expected 2 .*got 3"):
        ran(builder, {"x": np.ones(3, np.float32)}, ["y:0"])
    with pytest.raises(popart.popart_exception, match="No data for the input 'x'"):
        ran(builder, {"z": np.ones(2, np.float32)}, ["y:0"])
    with pytest.raises(popart.popart_exception, match="Anchor tensor `z' not in Ir Tensors"):
        ran(builder, {"x": np.ones(2, np.float32)}, ["z"])
    with pytest.raises(popart.popart_exception, match="Anchor tensor `Gradient___x' not in"):
        ran(builder, {"x": np.ones(2, np.float32)}, ["Gradient___x"])
    session, _ = ran(builder, {"x": np.ones(2, np.float32)}, ["y:0"])
    with pytest.raises(popart.popart_exception, match=r"must be contiguous and of shape \[2\]"):
        session.run(popart.PyStepIO({"x": np.ones(2, np.float32)}, {"y:0": np.ones(3, np.float32)}))
    fresh = popart.InferenceSession(builder.getModelProto(), flow(1, {}), CPU)
    with pytest.raises(popart.popart_exception, match="Must call prepareDevice"):
        fresh.run(popart.PyStepIO({}, {}))


@pytest.mark.parametrize(
    ("args", "text"),
    [
        (("INVALID",), "Invalid anchor return type ID supplied: INVALID"),
        (("EveryN",), "Must specify return period with option 'EVERYN'"),
        (("EveryN", 0), "Anchor return period must be greater than zero"),
        (("All", 2), "A return period should not be supplied for this anchor return type"),
    ],
)
def test_return_types(args, text):
    """Return types are known by name, in any case; only EveryN has a period."""
    assert popart.AnchorReturnType("aLL").id() == popart.AnchorReturnTypeId.All
    with pytest.raises(popart.popart_exception) as error:
        popart.AnchorReturnType(*args)
    assert error.value.args[0] == text


def test_periods_that_do_not_divide():
    """A period divides the batches of a step."""
    kind = popart.AnchorReturnType("EveryN", 4)
    with pytest.raises(popart.popart_exception, match="Return period must be <="):
        popart.DataFlow(3, {"y": kind})
    with pytest.raises(popart.popart_exception, match="Return period must be a factor"):
        popart.DataFlow(6, {"y": kind})
    assert popart.DataFlow(2, ["a", "b"], popart.AnchorReturnType("Sum")).nAnchors() == 2


@pytest.fixture(scope="module")
def on_tiles():
    """The classifier computed by tiles, with its cycles."""
    device = popart.DeviceManager().createIpuModelDevice({"numIPUs": 1, "tilesPerIPU": 4})
    opts = options(instrumentWithHardwareCycleCounter=True)
    return ran(classifier(N_SAMPLES), {"x": X}, ["found:0"], opts, device)


def test_the_same_on_tiles(on_tiles):
    """The IPU model computes what the CPU does; cycles and a summary come from the program."""
    session, result = on_tiles
    _, expected = ran(classifier(N_SAMPLES), {"x": X}, ["found:0"])
    np.testing.assert_allclose(result["found:0"], expected["found:0"], 1e-4, 1e-5)
    assert session.getCycleCount() > 1000
    low, high = session.getCycleInterval()
    assert low < session.getCycleCount() < high
    assert "Memory Usage" in session.getSummaryReport()


def test_programs_in_files(on_tiles, tmp_path):
    """A tile program that was written is read instead of compiled."""
    session, _ = on_tiles
    path = tmp_path / "deep" / "program"
    session.compileAndExport(path)
    again = popart.InferenceSession(
        classifier(N_SAMPLES).getModelProto(),
        flow(1, {"found:0": ("All",)}),
        popart.DeviceManager().createIpuModelDevice({"tilesPerIPU": 4}),
        userOptions=options(instrumentWithHardwareCycleCounter=True),
    )
    again.loadExecutable(path)
    again.prepareDevice()
    assert again._program.program.tiles.seconds == 0
    assert again.getCycleCount() == session.getCycleCount()
    with pytest.raises(popart.popart_exception, match="comes before prepareDevice"):
        again.loadExecutable(path)


def test_devices():
    """Devices of every kind exist; offline ones run nothing; options are checked."""
    manager = popart.DeviceManager()
    assert manager.acquireAvailableDevice(2).numIpus == 2
    assert manager.createIpuModelDevice({"tilesPerIPU": 7}).tilesPerIPU == 7
    assert manager.createIpuModelDevice({"ipuVersion": "ipu1"}).tilesPerIPU == 1216
    assert manager.enumerateDevices()[0].type == popart.DeviceType.Ipu
    offline = manager.createOfflineIPUDevice({"numIPUs": 1, "tilesPerIPU": 4})
    assert manager.createOfflineIpuFromSystemString("ipu1", 2).tilesPerIPU == 1216
    with pytest.raises(popart.popart_exception, match="offline device runs nothing"):
        ran(doubler(), {"x": np.ones(2, np.float32)}, ["y:0"], device=offline)
    with pytest.raises(popart.popart_exception, match="cannot be attached"):
        offline.attach()
    with pytest.raises(popart.popart_exception, match="did you mean 'numIPUs'"):
        manager.createIpuModelDevice({"numIPU": 2})
    with manager.acquireAvailableDevice() as device:
        assert device.isAttached
    assert not device.isAttached


def test_random_numbers():
    """A seed makes random numbers again; a state goes on from where it was."""
    builder = popart.Builder()
    y = builder.aiOnnx.randomnormal([64])
    builder.addOutputTensor(y)
    session, anchors = ran(builder, {}, [y])
    draws = []
    for seed in (1, 2, 1, None, None):
        if seed is not None:
            session.setRandomSeed(seed)
        session.run(popart.PyStepIO({}, anchors))
        draws.append(anchors[y].copy())
        state = session.getRNGState() if len(draws) == 4 else None
        later = state or locals().get("later")
    np.testing.assert_array_equal(draws[0], draws[2])
    assert not np.array_equal(draws[0], draws[1])
    assert not np.array_equal(draws[3], draws[2])
    session.setRNGState(later)
    session.run(popart.PyStepIO({}, anchors))
    np.testing.assert_array_equal(anchors[y], draws[4])
    assert session.getRandomSeed() == 1


def test_variables_that_the_graph_writes():
    """CopyVarUpdate stores a value in a weight: the next batch finds it there."""
    builder = popart.Builder()
    x = builder.addInputTensor("FLOAT", [1], "x")
    total = builder.addInitializedInputTensor(np.zeros(1, np.float32), "total")
    y = builder.aiGraphcore.copyvarupdate([total, builder.aiOnnx.add([total, x])])
    session, result = ran(builder, {"x": np.array([1, 2, 3], np.float32)}, [y], n_batches=3)
    assert result[y].reshape(-1).tolist() == [1, 3, 6]
    session.weightsToHost()
    back = {total: np.zeros(1, np.float32)}
    session.readWeights(popart.PyWeightsIO(back))
    assert back[total] == 6


def test_synthetic_data():
    """With synthetic data nothing is read from the script."""
    opts = options(syntheticDataMode=popart.SyntheticDataMode.Zeros)
    _, result = ran(doubler(), {}, ["y:0"], opts)
    assert result["y:0"].tolist() == [0, 0]


def test_shapes_that_a_model_leaves_open():
    """InputShapeInfo fixes them; without it, the error says so."""
    builder = popart.Builder()
    import onnx
    from onnx import helper

    builder.addOutputTensor(builder.aiOnnx.relu([builder.addInputTensor("FLOAT", [1], "x")], "y"))
    model = onnx.load_model_from_string(builder.getModelProto())
    model.graph.input[0].CopyFrom(helper.make_tensor_value_info("x", 1, ["n"]))
    del model.graph.value_info[:]
    model.graph.output[0].ClearField("type")
    shapes = popart.InputShapeInfo()
    data_flow = flow(1, {"y:0": ("All",)})
    with pytest.raises(popart.popart_exception, match="shape of the input 'x' is not known"):
        popart.InferenceSession(model, data_flow, CPU).prepareDevice()
    shapes.add("x", popart.TensorInfo("FLOAT", [3]))
    session = popart.InferenceSession(model, data_flow, CPU, shapes)
    session.prepareDevice()
    assert session.initAnchorArrays()["y:0"].shape == (3,)


def test_the_graph_as_text():
    """_serializeIr lists operations with their types, inputs, outputs and attributes."""
    session, _ = ran(classifier(N_SAMPLES), {"x": X}, ["found:0"])
    rows = json.loads(session._serializeIr(popart.IrSerializationFormat.JSON))["maingraph"]
    assert [row["type"] for row in rows] == [
        "MatMul",
        "TanhInplace",
        "MatMul",
        "SoftmaxInplace",
        "Nll",
    ]
    assert rows[0]["inputs"][1] == {"name": "w1", "index": 1, "shape": "[3 5]", "type": "float"}
    assert rows[4]["attributes"]["reduction"] == "Sum"
