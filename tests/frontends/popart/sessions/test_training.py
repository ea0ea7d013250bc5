"""Training sessions: the same samples in every split, gradients, states, numbers that change."""

import numpy as np
import onnx
import pytest
import torch
import torch.nn.functional as F

import popart

from .models import LABELS, N_SAMPLES, W1, W2, X, classifier, flow, options, trained, weights_of

SUM, MEAN = popart.ReductionType.Sum, popart.ReductionType.Mean
MOMENTUM = {"defaultLearningRate": (0.05, False), "defaultMomentum": (0.8, True)}
SPLITS = [(1, 1), (4, 1), (1, 4), (2, 2), (2, 3), (6, 2), (3, 4)]


def by_torch(make, n_steps, scale=1.0):
    """Weights after steps over all samples at once, the loss their sum times `scale`."""
    weights = [torch.tensor(W1, requires_grad=True), torch.tensor(W2, requires_grad=True)]
    optimizer = make(weights)
    for _ in range(n_steps):
        scores = torch.tanh(torch.tensor(X) @ weights[0]) @ weights[1]
        loss = F.cross_entropy(scores, torch.tensor(LABELS).long(), reduction="sum") * scale
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return {"w1": weights[0].detach().numpy(), "w2": weights[1].detach().numpy()}


def split(n_accumulation, n_replicas, kind=SUM, strategy=None):
    chosen = {
        "enableGradientAccumulation": n_accumulation > 1,
        "accumulationFactor": n_accumulation,
        "enableReplicatedGraphs": n_replicas > 1,
        "replicatedGraphCount": n_replicas,
        "accumulationAndReplicationReductionType": kind,
    }
    if strategy is not None:
        chosen["meanAccumulationAndReplicationReductionStrategy"] = strategy
    return options(**chosen)


@pytest.mark.slow
@pytest.mark.parametrize(("n_accumulation", "n_replicas"), SPLITS)
def test_every_split_of_the_same_samples(n_accumulation, n_replicas):
    """Accumulation and replicas in any split train as one batch does: sums and means."""
    n = N_SAMPLES // (n_accumulation * n_replicas)
    expected = by_torch(lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.8), 3)
    *_, result = trained(
        classifier(n), flow(1, {}), popart.SGD(MOMENTUM), split(n_accumulation, n_replicas),
        n_runs=3,
    )  # fmt: skip
    for id, value in expected.items():
        np.testing.assert_allclose(result[id], value, 1e-4, 1e-5)
    expected = by_torch(lambda p: torch.optim.AdamW(p, 0.05, eps=1e-6), 3, 1 / N_SAMPLES)
    adam = popart.Adam({"defaultLearningRate": (0.05, False), "defaultWeightDecay": (0.01, True)})
    for strategy in (popart.MeanReductionStrategy.Post, popart.MeanReductionStrategy.Running):
        *_, result = trained(
            classifier(n, MEAN), flow(1, {}), adam,
            split(n_accumulation, n_replicas, MEAN, strategy), n_runs=3,
        )  # fmt: skip
        for id, value in expected.items():
            np.testing.assert_allclose(result[id], value, 1e-3, 1e-4)


def test_gradients_of_anything():
    """Gradients of weights, of tensors in the graph and of inputs are autograd's, scaled."""
    ids = ["w1", "hidden:0", "x", "found:0"]
    kinds = {f"Gradient___{id}": ("All",) for id in ids} | {"loss:0": ("All",)}
    _, result, _ = trained(
        classifier(N_SAMPLES),
        flow(1, kinds),
        popart.SGD({"defaultLearningRate": (0.0, False), "lossScaling": (2.0, True)}),
    )
    tensors = {"x": torch.tensor(X, requires_grad=True), "w1": torch.tensor(W1, requires_grad=True)}
    tensors["hidden:0"] = torch.tanh(tensors["x"] @ tensors["w1"])
    tensors["found:0"] = torch.softmax(tensors["hidden:0"] @ torch.tensor(W2), 1)
    loss = F.nll_loss(tensors["found:0"].log(), torch.tensor(LABELS).long(), reduction="sum")
    expected = torch.autograd.grad(loss * 2, [tensors[id] for id in ids])
    for id, gradient in zip(ids, expected, strict=True):
        np.testing.assert_allclose(result[f"Gradient___{id}"], gradient, 1e-4, 1e-5)
    np.testing.assert_allclose(result["loss:0"], loss.item(), 1e-5)


def test_values_of_weights():
    """An anchored weight is what it is after the update of each batch."""
    kinds = {"w1": ("All",), "UpdatedVar___w2": ("Final",), "Accl___w1": ("Final",)}
    batches = {"x": X.reshape(3, 4, 3), "labels": LABELS.reshape(3, 4)}
    session, result, last = trained(
        classifier(4), flow(3, kinds), popart.SGD(MOMENTUM), inputs=batches
    )
    step = 0.05
    assert result["w1"].shape == (3, *W1.shape)
    np.testing.assert_array_equal(result["w1"][2], last["w1"])
    np.testing.assert_array_equal(result["UpdatedVar___w2"], last["w2"])
    velocity = (result["w1"][1] - result["w1"][2]) / step
    np.testing.assert_allclose(result["Accl___w1"], velocity * 0.8, 1e-3, 1e-4)
    assert session.getInfo("Accl___w1").shape() == list(W1.shape)


def test_numbers_that_change():
    """Variable numbers are sent by updateOptimizerFromHost; constant ones are rejected."""
    kinds = {"learningRate___default___FLOAT": ("Final",), "lossScaling_FLOAT": ("Final",)}
    session, anchors, before = trained(
        classifier(N_SAMPLES), flow(1, kinds), popart.SGD({"defaultLearningRate": (0.5, False)})
    )
    assert anchors["learningRate___default___FLOAT"] == 0.5
    assert anchors["lossScaling_FLOAT"] == 1
    session.updateOptimizerFromHost(popart.SGD({"defaultLearningRate": (0.0, False)}))
    session.run(popart.PyStepIO({"x": X, "labels": LABELS}, anchors))
    np.testing.assert_array_equal(weights_of(session)["w1"], before["w1"])
    with pytest.raises(popart.popart_exception, match="learningRate can not be replaced"):
        session.updateOptimizerFromHost(popart.SGD({"defaultLearningRate": (0.5, True)}))


def test_automatic_loss_scaling():
    """The scale doubles while gradients are small, and weights train as without it."""
    opts = options()
    opts.automaticLossScalingSettings.enabled = True
    adam = {"defaultLearningRate": (0.05, False), "lossScaling": (4, False)}
    kinds = {"lossScaling_FLOAT": ("Final",)}
    _, anchors, result = trained(
        classifier(N_SAMPLES), flow(1, kinds), popart.SGD(adam), opts, n_runs=3
    )
    expected = by_torch(lambda p: torch.optim.SGD(p, lr=0.05), 3)
    np.testing.assert_allclose(result["w1"], expected["w1"], 1e-4, 1e-5)
    assert anchors["lossScaling_FLOAT"] == 4 * 2**3


def test_models_written_and_trained_further(tmp_path):
    """modelToHost writes a valid model; a session of it goes on where the first one was."""
    adam = popart.Adam({"defaultLearningRate": (0.05, False)})
    *_, whole = trained(classifier(N_SAMPLES), flow(1, {}), adam, n_runs=4)
    session, *_ = trained(classifier(N_SAMPLES), flow(1, {}), adam, n_runs=2)
    path = tmp_path / "model.onnx"
    session.modelToHost(str(path))
    model = onnx.load(path)
    onnx.checker.check_model(model)
    assert "Accl1___w1" in {t.name for t in model.graph.initializer}
    *_, parts = trained(popart.Builder(str(path)), flow(1, {}), adam, n_runs=2)
    for id, value in whole.items():
        np.testing.assert_allclose(parts[id], value, 1e-6, 1e-7)


def test_weights_from_and_to_the_host():
    """writeWeights and resetHostWeights change the host's copy, weightsFromHost the device's."""
    session, anchors, _ = trained(
        classifier(N_SAMPLES), flow(1, {}), popart.SGD({"defaultLearningRate": (0.0, False)})
    )
    session.writeWeights(popart.PyWeightsIO({"w1": W1 * 2}))
    np.testing.assert_array_equal(weights_of(session)["w1"], W1)  # fetched over it
    session.writeWeights(popart.PyWeightsIO({"w1": W1 * 2}))
    session.weightsFromHost()
    session.run(popart.PyStepIO({"x": X, "labels": LABELS}, anchors))
    np.testing.assert_array_equal(weights_of(session)["w1"], W1 * 2)
    session.resetHostWeights(classifier(N_SAMPLES).getModelProto())
    session.weightsFromHost()
    np.testing.assert_array_equal(weights_of(session)["w1"], W1)
    with pytest.raises(popart.popart_exception, match="No weight 'w3'"):
        session.readWeights(popart.PyWeightsIO({"w3": np.zeros(3)}))
    with pytest.raises(popart.popart_exception, match=r"has shape \[3, 5\]"):
        session.readWeights(popart.PyWeightsIO({"w1": np.zeros(3)}))


def test_groups_of_replicas():
    """Replicas of a group share a weight, groups do not; all of them, or one of each, come back."""
    builder = popart.Builder()
    x = builder.addInputTensor("FLOAT", [1], "x")
    values = np.array([[1.0], [10.0]], np.float32)
    group = popart.CommGroup(popart.CommGroupType.Consecutive, 2)
    w = builder.addInitializedInputTensor(values, popart.VariableSettings(group), "w")
    y = builder.aiOnnx.mul([x, w], "y")
    builder.aiGraphcore.identityloss([y], SUM, "loss")
    opts = options(enableReplicatedGraphs=True, replicatedGraphCount=4)
    data_flow = flow(1, {y: ("All",), w: ("All",)})
    session = popart.TrainingSession(
        builder.getModelProto(), data_flow, "loss:0", popart.ConstSGD(1.0),
        popart.DeviceManager().createCpuDevice(), userOptions=opts,
    )  # fmt: skip
    session.prepareDevice()
    anchors = session.initAnchorArrays()
    inputs = np.array([1, 2, 3, 4], np.float32)
    session.run(popart.PyStepIO({x: inputs}, anchors))
    assert anchors[y].reshape(-1).tolist() == [1, 2, 30, 40]
    assert anchors[w].reshape(-1).tolist() == [-2, -2, 3, 3]  # less 1 + 2, less 3 + 4
    back = {w: np.zeros((2, 1), np.float32)}
    session.weightsToHost()
    session.readWeights(popart.PyWeightsIO(back))
    assert back[w].tolist() == [[-2], [3]]


def test_norms_keep_statistics():
    """A norm that trains normalises with its batch, and moves its mean and variance."""
    builder = popart.Builder()
    x = builder.addInputTensor("FLOAT", [4, 2, 3, 3], "x")
    ones, zeros = np.ones(2, np.float32), np.zeros(2, np.float32)
    scale, bias, mean, var = (
        builder.addInitializedInputTensor(value, name)
        for value, name in ((ones, "s"), (zeros, "b"), (zeros, "m"), (ones, "v"))
    )
    y, *_ = builder.aiOnnx.batchnormalization([x, scale, bias, mean, var], 5, 1e-5, 0.9)
    builder.aiGraphcore.l1loss([y], 1.0, SUM, "loss")
    data = np.random.default_rng(0).standard_normal((4, 2, 3, 3)).astype(np.float32) + 3
    session = popart.TrainingSession(
        builder.getModelProto(), flow(1, {y: ("All",)}), "loss:0", popart.ConstSGD(0.1),
        popart.DeviceManager().createCpuDevice(),
    )  # fmt: skip
    session.prepareDevice()
    anchors = session.initAnchorArrays()
    session.run(popart.PyStepIO({x: data}, anchors))
    expected = F.batch_norm(torch.tensor(data), None, None, training=True)
    np.testing.assert_allclose(anchors[y], expected, 1e-4, 1e-4)
    back = {"m": np.zeros(2, np.float32), "s": np.zeros(2, np.float32)}
    session.weightsToHost()
    session.readWeights(popart.PyWeightsIO(back))
    np.testing.assert_allclose(back["m"], data.mean((0, 2, 3)) * 0.1, 1e-4)
    assert not np.array_equal(back["s"], ones)


def test_what_training_rejects():
    """A loss that is no scalar or not there, and half-set accumulation, are errors."""
    builder, sgd = classifier(N_SAMPLES), popart.ConstSGD(0.1)
    device = popart.DeviceManager().createCpuDevice()
    proto = builder.getModelProto()
    for loss, text in (
        ("found:0", "must be a scalar tensor$"),
        ("los:0", "Could not find loss tensor"),
    ):
        with pytest.raises(popart.popart_exception, match=text):
            popart.TrainingSession(proto, flow(1, {}), loss, sgd, device)
    with pytest.raises(popart.popart_exception, match="enableGradientAccumulation is false"):
        trained(builder, flow(1, {}), sgd, options(accumulationFactor=2))
    with pytest.raises(popart.popart_exception, match=r"must be a popart\.Optimizer"):
        popart.TrainingSession(proto, flow(1, {}), "loss:0", None, device)


@pytest.mark.slow
def test_the_same_on_tiles():
    """Two replicas on tiles train as on the host: Lamb, clipped; gradients too."""
    device = popart.DeviceManager().createIpuModelDevice({"tilesPerIPU": 4})
    numbers = {"defaultLearningRate": (0.05, False), "defaultWeightDecay": (0.01, True)}
    clips = [popart.ClipNormSettings.clipAllWeights(1.0)]
    lamb = popart.Adam(numbers, popart.AdamMode.Lamb, clip_norm_settings=clips)
    data_flow = flow(1, {"Gradient___w1": ("All",)})
    result = [
        trained(classifier(N_SAMPLES // 2), data_flow, lamb, split(1, 2), *where, n_runs=2)
        for where in ((device,), ())
    ]
    for of_tiles, of_host in zip(result[0][1:], result[1][1:], strict=True):
        for id, value in of_host.items():
            np.testing.assert_allclose(of_tiles[id], value, 1e-4, 1e-5)
