"""Small training programs of the structure of public ones, each against NumPy or PyTorch."""

import numpy as np
import pytest
import torch

import popart

pytestmark = pytest.mark.slow


def run_steps(session, feeds, anchors):
    """Upload weights, run a step for each dictionary of inputs, copy each step's anchors."""
    session.prepareDevice()
    session.weightsFromHost()
    results = []
    for feed in feeds:
        session.run(popart.PyStepIO(feed, anchors))
        results.append({name: value.copy() for name, value in anchors.items()})
    return results


def read(session, shapes):
    """Weights, from the device, by their names."""
    session.weightsToHost()
    arrays = {name: np.empty(shape, np.float32) for name, shape in shapes.items()}
    session.readWeights(popart.PyWeightsIO(arrays))
    return arrays


def test_linear_regression_with_a_falling_rate():
    """A new optimizer's learning rate reaches a running session, whose rate is not constant."""
    rng = np.random.default_rng(1)
    data = rng.normal(size=(5, 8, 3)).astype(np.float32)
    target = data @ np.array([[1.0], [-2.0], [0.5]], np.float32)
    builder = popart.Builder(opsets={"ai.onnx": 10, "ai.graphcore": 1})
    x = builder.addInputTensor(popart.TensorInfo("FLOAT", [8, 3]), "x")
    y = builder.addInputTensor(popart.TensorInfo("FLOAT", [8, 1]), "y")
    w = builder.addInitializedInputTensor(np.zeros((3, 1), np.float32), "w")
    error = builder.aiOnnx.sub([builder.aiOnnx.matmul([x, w]), y])
    square = builder.aiOnnx.mul([error, error])
    loss = builder.aiOnnx.reducemean([square], axes=[0, 1], keepdims=False, debugContext="mse")
    session = popart.TrainingSession(
        builder.getModelProto(),
        dataFlow=popart.DataFlow(1, {loss: popart.AnchorReturnType("Final")}),
        loss=loss,
        optimizer=popart.SGD({"defaultLearningRate": (0.1, False)}),
        deviceInfo=popart.DeviceManager().createIpuModelDevice({"numIPUs": 1, "tilesPerIPU": 4}),
    )
    session.prepareDevice()
    session.weightsFromHost()
    anchors = session.initAnchorArrays()
    expected = np.zeros((3, 1))
    for step in range(5):
        rate = 0.1 * 0.5**step
        session.updateOptimizerFromHost(popart.SGD({"defaultLearningRate": (rate, False)}))
        session.run(popart.PyStepIO({x: data[step], y: target[step]}, anchors))
        residual = data[step] @ expected - target[step]
        np.testing.assert_allclose(anchors[loss], np.mean(residual**2), rtol=1e-4)
        expected -= rate * 2 / 8 * data[step].T @ residual
    np.testing.assert_allclose(read(session, {w: (3, 1)})[w], expected, atol=1e-5)


def stages(n_stages, rng):
    """Layers of which each is a stage on its own chip, and a loss on the last."""
    builder = popart.Builder()
    x = builder.addInputTensor(popart.TensorInfo("FLOAT", [2, 4]), "x")
    label = builder.addInputTensor(popart.TensorInfo("INT32", [2]), "label")
    hidden, weights = x, {}
    for i in range(n_stages):
        with builder.virtualGraph(i), builder.pipelineStage(i), builder.nameScope(f"layer{i}"):
            value = rng.normal(0, 0.5, (4, 4)).astype(np.float32)
            w = builder.addInitializedInputTensor(value, "w")
            weights[w] = value
            hidden = builder.aiOnnx.tanh([builder.aiOnnx.matmul([hidden, w])])
    with builder.virtualGraph(n_stages - 1), builder.pipelineStage(n_stages - 1):
        chances = builder.aiOnnx.softmax([hidden], axis=1)
        loss = builder.aiGraphcore.nllloss([chances, label], popart.ReductionType.Mean)
    return builder, x, label, weights, loss


def test_pipeline_with_accumulation_and_replicas():
    """Two stages, four accumulated micro-batches, two replicas: one update by their mean."""
    rng = np.random.default_rng(2)
    builder, x, label, weights, loss = stages(2, rng)
    n_accumulated, n_replicas, n_updates = 4, 2, 2
    opts = popart.SessionOptions()
    opts.virtualGraphMode = popart.VirtualGraphMode.Manual
    opts.enablePipelining = True
    opts.enableGradientAccumulation = True
    opts.accumulationFactor = n_accumulated
    opts.enableReplicatedGraphs = True
    opts.replicatedGraphCount = n_replicas
    opts.accumulationAndReplicationReductionType = popart.ReductionType.Mean
    device = popart.DeviceManager().createIpuModelDevice({"numIPUs": 4, "tilesPerIPU": 4})
    session = popart.TrainingSession(
        builder.getModelProto(),
        popart.DataFlow(n_updates, {loss: popart.AnchorReturnType("All")}),
        loss,
        popart.SGD({"defaultLearningRate": (0.5, True), "defaultMomentum": (0.9, True)}),
        device,
        userOptions=opts,
    )
    n = n_updates * n_accumulated * n_replicas
    images = rng.normal(size=(n, 2, 4)).astype(np.float32)
    labels = rng.integers(0, 4, (n, 2)).astype(np.int32)
    shape = (n_updates, n_accumulated, n_replicas)
    feed = {x: images.reshape(*shape, 2, 4), label: labels.reshape(*shape, 2)}
    (results,) = run_steps(session, [feed], session.initAnchorArrays())
    assert results[loss].shape == shape

    layers = [torch.tensor(value, requires_grad=True) for value in weights.values()]
    optimizer = torch.optim.SGD(layers, 0.5, momentum=0.9)
    for i in range(n_updates):
        losses = []
        for batch in range(i * n // n_updates, (i + 1) * n // n_updates):
            hidden = torch.tensor(images[batch])
            for layer in layers:
                hidden = torch.tanh(hidden @ layer)
            labels_of = torch.tensor(labels[batch]).long()
            losses.append(torch.nn.functional.cross_entropy(hidden, labels_of))
        np.testing.assert_allclose(
            results[loss][i].ravel(), [each.item() for each in losses], atol=1e-5
        )
        optimizer.zero_grad()
        torch.stack(losses).mean().backward()
        optimizer.step()
    arrays = read(session, dict.fromkeys(weights, (4, 4)))
    for own, other in zip(arrays.values(), layers, strict=True):
        np.testing.assert_allclose(own, other.detach(), atol=1e-5)


def test_adam_with_decay_and_scaled_losses():
    """AdamW with specific settings for a bias: PyTorch's groups of parameters."""
    rng = np.random.default_rng(3)
    data = rng.normal(size=(4, 6, 5)).astype(np.float32)
    first = rng.normal(size=(5, 3)).astype(np.float32), rng.normal(size=3).astype(np.float32)
    builder = popart.Builder()
    x = builder.addInputTensor("FLOAT", [6, 5])
    w = builder.addInitializedInputTensor(first[0], "weight")
    b = builder.addInitializedInputTensor(first[1], "bias")
    out = builder.aiGraphcore.gelu([builder.aiOnnx.gemm([x, w, b])])
    loss = builder.aiGraphcore.l1loss([out], 0.5, popart.ReductionType.Sum)
    optimizer = popart.Adam(
        {
            "defaultLearningRate": (0.05, False),
            "defaultBeta1": (0.9, True),
            "defaultBeta2": (0.99, True),
            "defaultEps": (1e-6, True),
            "defaultWeightDecay": (0.1, True),
            "lossScaling": (128.0, False),
        },
        mode=popart.AdamMode.Adam,
        weight_decay_mode=popart.WeightDecayMode.Decay,
    )
    optimizer.insertSpecific(b, {"weightDecay": (0.0, True)})
    session = popart.TrainingSession(
        builder.getModelProto(),
        popart.DataFlow(4, {loss: popart.AnchorReturnType("Sum")}),
        loss,
        optimizer,
        popart.DeviceManager().createCpuDevice(),
    )
    results = run_steps(session, [{x: data}] * 2, session.initAnchorArrays())

    weight, bias = (torch.tensor(value, requires_grad=True) for value in first)
    groups = [{"params": [weight], "weight_decay": 0.1}, {"params": [bias], "weight_decay": 0.0}]
    reference = torch.optim.AdamW(groups, 0.05, (0.9, 0.99), 1e-6)
    for result in results:
        total = 0.0
        for batch in torch.tensor(data):
            own = torch.nn.functional.gelu(batch @ weight + bias, approximate="tanh")
            value = 0.5 * own.abs().sum()
            total += value.item()
            reference.zero_grad()
            value.backward()
            reference.step()
        np.testing.assert_allclose(result[loss], total, rtol=1e-4)
    arrays = read(session, {w: (5, 3), b: (3,)})
    np.testing.assert_allclose(arrays[w], weight.detach(), atol=1e-4)
    np.testing.assert_allclose(arrays[b], bias.detach(), atol=1e-4)


def language_model(builder, words, rng, sizes):
    """An embedding, an LSTM and a projection onto words, with weights by their names."""
    n_words, hidden = sizes
    values = {
        "embedding": rng.normal(0, 0.5, (n_words, hidden)),
        "lstm": rng.normal(0, 0.5, (1, 4 * hidden, hidden)),
        "recurrence": rng.normal(0, 0.5, (1, 4 * hidden, hidden)),
        "projection": rng.normal(0, 0.5, (hidden, n_words)),
    }
    values = {name: value.astype(np.float32) for name, value in values.items()}
    ids = {name: builder.addInitializedInputTensor(v, name) for name, v in values.items()}
    x = builder.aiOnnx.gather([ids["embedding"], words], axis=0)
    y, _, _ = builder.aiOnnx.lstm([x, ids["lstm"], ids["recurrence"]], 3)
    y = builder.aiOnnx.squeeze([y], axes=[1])
    builder.recomputeOutputInBackwardPass(y)
    with builder.nameScope("words"):
        scores = builder.aiOnnx.matmul([y, ids["projection"]])
    return values, ids, scores


def test_language_model_with_recomputation():
    """Embedding, LSTM and tokens: the losses and weights that PyTorch's layers have."""
    rng = np.random.default_rng(4)
    length, batch, n_words, hidden = 4, 2, 9, 3
    builder = popart.Builder()
    words = builder.addInputTensor(popart.TensorInfo("INT32", [length, batch]), "words")
    following = builder.addInputTensor(popart.TensorInfo("INT32", [length, batch]), "next")
    values, ids, scores = language_model(builder, words, rng, (n_words, hidden))
    chances = builder.aiOnnx.softmax([scores], axis=2)
    loss = builder.aiGraphcore.nllloss([chances, following], popart.ReductionType.Mean, 0)
    opts = popart.SessionOptions()
    opts.autoRecomputation = popart.RecomputationType.Standard
    session = popart.TrainingSession(
        builder.getModelProto(),
        popart.DataFlow(3, {loss: popart.AnchorReturnType("All")}),
        loss,
        popart.ConstSGD(0.2),
        popart.DeviceManager().createIpuModelDevice({"numIPUs": 1, "tilesPerIPU": 8}),
        userOptions=opts,
    )
    texts = rng.integers(0, n_words, (3, length + 1, batch)).astype(np.int32)
    feed = {words: texts[:, :-1].copy(), following: texts[:, 1:].copy()}
    (results,) = run_steps(session, [feed], session.initAnchorArrays())

    tensors = {name: torch.tensor(value, requires_grad=True) for name, value in values.items()}
    for i, text in enumerate(torch.tensor(texts).long()):
        x = tensors["embedding"][text[:-1]]
        order = [0, 2, 3, 1]  # ONNX has the gates i, o, f, c; PyTorch i, f, c, o
        gates = [
            torch.cat([tensors[name][0].chunk(4)[k] for k in order])
            for name in ("lstm", "recurrence")
        ]
        state = torch.zeros(1, batch, hidden)
        y, _, _ = torch._VF.lstm(x, (state, state), gates, False, 1, 0.0, True, False, False)
        own = torch.nn.functional.cross_entropy(
            (y @ tensors["projection"]).flatten(0, 1), text[1:].flatten(), ignore_index=0
        )
        np.testing.assert_allclose(results[loss][i], own.item(), atol=1e-5)
        gradients = torch.autograd.grad(own, list(tensors.values()))
        with torch.no_grad():
            for tensor, gradient in zip(tensors.values(), gradients, strict=True):
                tensor -= 0.2 * gradient
    arrays = read(session, {ids[name]: value.shape for name, value in values.items()})
    for name, tensor in tensors.items():
        np.testing.assert_allclose(arrays[ids[name]], tensor.detach(), atol=1e-5)


def attention(builder, sizes):
    """A layer of attention as a subgraph, called with other weights each time."""
    length, hidden, heads = sizes
    graph = builder.createSubgraphBuilder()
    x = graph.addInputTensor(popart.TensorInfo("FLOAT", [length, hidden]))
    qkv = graph.addInputTensor(popart.TensorInfo("FLOAT", [hidden, 3 * hidden]))
    scale = graph.addInputTensor(popart.TensorInfo("FLOAT", [hidden]))
    offset = graph.addInputTensor(popart.TensorInfo("FLOAT", [hidden]))
    parts = graph.aiOnnx.split([graph.aiOnnx.matmul([x, qkv])], 3, axis=1, split=[hidden] * 3)
    shape = graph.aiOnnx.constant(np.array([length, heads, hidden // heads], np.int64))
    query, value = (
        graph.aiOnnx.transpose([graph.aiOnnx.reshape([parts[i], shape])], perm=[1, 0, 2])
        for i in (0, 2)
    )
    key = graph.aiOnnx.transpose([graph.aiOnnx.reshape([parts[1], shape])], perm=[1, 2, 0])
    root = graph.aiOnnx.constant(np.array((hidden // heads) ** -0.5, np.float32))
    scores = graph.aiOnnx.mul([graph.aiOnnx.matmul([query, key]), root])
    mixed = graph.aiOnnx.matmul([graph.aiOnnx.softmax([scores], axis=2), value])
    mixed = graph.aiOnnx.transpose([mixed], perm=[1, 0, 2])
    shape = graph.aiOnnx.constant(np.array([length, hidden], np.int64))
    total = graph.aiOnnx.add([x, graph.aiOnnx.reshape([mixed, shape])])
    normalised = graph.aiGraphcore.groupnormalization([total, scale, offset], 1, 1e-5)[0]
    graph.addOutputTensor(normalised)
    return graph


def test_attention_layers_that_share_a_subgraph():
    """One subgraph called with two sets of weights: both learn as PyTorch's layers do."""
    rng = np.random.default_rng(5)
    length, hidden, heads = 4, 6, 2
    builder = popart.Builder()
    x = builder.addInputTensor(popart.TensorInfo("FLOAT", [length, hidden]))
    graph = attention(builder, (length, hidden, heads))
    y, values = x, {}
    for i in range(2):
        with builder.nameScope(f"layer{i}"):
            arrays = [rng.normal(0, 0.4, (hidden, 3 * hidden)), np.ones(hidden), np.zeros(hidden)]
            arrays = [array.astype(np.float32) for array in arrays]
            ids = [builder.addInitializedInputTensor(array) for array in arrays]
            values.update(zip(ids, arrays, strict=True))
            (y,) = builder.aiGraphcore.call([y, *ids], 1, graph)
    loss = builder.aiGraphcore.l1loss([y], 0.1, popart.ReductionType.Mean)
    session = popart.TrainingSession(
        builder.getModelProto(),
        popart.DataFlow(1, [loss, y]),
        loss,
        popart.ConstSGD(0.3),
        popart.DeviceManager().createCpuDevice(),
    )
    data = rng.normal(size=(3, length, hidden)).astype(np.float32)
    results = run_steps(session, [{x: batch} for batch in data], session.initAnchorArrays())

    tensors = [torch.tensor(value, requires_grad=True) for value in values.values()]
    optimizer = torch.optim.SGD(tensors, 0.3)
    for batch, result in zip(torch.tensor(data), results, strict=True):
        own = batch
        for qkv, scale, offset in (tensors[:3], tensors[3:]):
            q, k, v = (
                part.view(length, heads, -1).transpose(0, 1) for part in (own @ qkv).chunk(3, 1)
            )
            mixed = torch.nn.functional.scaled_dot_product_attention(q, k, v)
            own = own + mixed.transpose(0, 1).reshape(length, hidden)
            own = torch.nn.functional.layer_norm(own, [hidden], scale, offset)
        np.testing.assert_allclose(result[y].reshape(own.shape), own.detach(), atol=1e-4)
        optimizer.zero_grad()
        (0.1 * own.abs().mean()).backward()
        optimizer.step()
    arrays = read(session, {name: value.shape for name, value in values.items()})
    for own, other in zip(arrays.values(), tensors, strict=True):
        np.testing.assert_allclose(own, other.detach(), atol=1e-4)
