"""Small models and helpers that tests of sessions share."""

import numpy as np

import popart

RNG = np.random.default_rng(7)
W1 = (RNG.standard_normal((3, 5)) * 0.5).astype(np.float32)
W2 = (RNG.standard_normal((5, 4)) * 0.5).astype(np.float32)
N_SAMPLES, N_CLASSES = 12, 4
X = RNG.standard_normal((N_SAMPLES, 3)).astype(np.float32)
LABELS = RNG.integers(0, N_CLASSES, N_SAMPLES).astype(np.int32)
CPU = popart.DeviceManager().createCpuDevice()


def classifier(n, reduction=popart.ReductionType.Sum, chips=(None, None)):
    """x → tanh(x·w1)·w2 → softmax → loss, for micro-batches of n; the builder and the ids."""
    builder = popart.Builder()
    x = builder.addInputTensor("FLOAT", [n, 3], "x")
    labels = builder.addInputTensor("INT32", [n], "labels")
    w1 = builder.addInitializedInputTensor(W1, "w1")
    w2 = builder.addInitializedInputTensor(W2, "w2")
    hidden = builder.aiOnnx.tanh([builder.aiOnnx.matmul([x, w1])], "hidden")
    scores = builder.aiOnnx.matmul([hidden, w2], "scores")
    result = builder.aiOnnx.softmax([scores], 1, "found")
    loss = builder.aiGraphcore.nllloss([result, labels], reduction, debugContext="loss")
    builder.addOutputTensor(result)
    first = ["MatMul:0", hidden]
    for ids, chip in zip((first, [scores, result, loss]), chips, strict=True):
        if chip is not None:
            builder.virtualGraph(ids, chip)
    return builder


def options(**chosen):
    result = popart.SessionOptions()
    for name, value in chosen.items():
        setattr(result, name, value)
    return result


def flow(n_batches, kinds):
    return popart.DataFlow(n_batches, {id: popart.AnchorReturnType(*k) for id, k in kinds.items()})


def trained(builder, data_flow, optimizer, opts=None, device=CPU, inputs=None, n_runs=1):
    """A session after some steps, its anchors and its weights."""
    session = popart.TrainingSession(
        builder.getModelProto(), data_flow, "loss:0", optimizer, device, userOptions=opts
    )
    session.prepareDevice()
    session.weightsFromHost()
    anchors = session.initAnchorArrays()
    feeds = {"x": X, "labels": LABELS} if inputs is None else inputs
    for _ in range(n_runs):
        session.run(popart.PyStepIO(feeds, anchors))
    return session, anchors, weights_of(session)


def weights_of(session, ids=("w1", "w2")):
    session.weightsToHost()
    shapes = {"w1": W1.shape, "w2": W2.shape}
    result = {id: np.zeros(shapes[id], np.float32) for id in ids}
    session.readWeights(popart.PyWeightsIO(result))
    return result


def ran(builder, inputs, anchors, opts=None, device=CPU, patterns=None, n_batches=1):
    """Anchors of an inference."""
    session = popart.InferenceSession(
        builder.getModelProto(),
        flow(n_batches, dict.fromkeys(anchors, ("All",))),
        device,
        userOptions=opts,
        patterns=patterns,
    )
    session.prepareDevice()
    result = session.initAnchorArrays()
    session.run(popart.PyStepIO(inputs, result))
    return session, result
