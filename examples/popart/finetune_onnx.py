"""Fine-tuning an ONNX model that came from elsewhere: new last layer, the others slower or frozen.

python finetune_onnx.py
"""

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import popart


def body_from_elsewhere(path):
    """Some exporter's model: features of eight numbers, in two dense layers."""
    rng = np.random.default_rng(1)
    weights = {"w1": (8, 16), "w2": (16, 16)}
    graph = helper.make_graph(
        [
            helper.make_node("MatMul", ["x", "w1"], ["h1"]),
            helper.make_node("Tanh", ["h1"], ["a1"]),
            helper.make_node("MatMul", ["a1", "w2"], ["h2"]),
            helper.make_node("Tanh", ["h2"], ["features"]),
        ],
        "body",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [32, 8])],
        [helper.make_tensor_value_info("features", TensorProto.FLOAT, [32, 16])],
        [
            numpy_helper.from_array((rng.standard_normal(s) / s[0] ** 0.5).astype(np.float32), n)
            for n, s in weights.items()
        ],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)]), path)


if __name__ == "__main__":
    body_from_elsewhere("body.onnx")

    # Continue where the file ends: a head of two classes and a loss.
    builder = popart.Builder("body.onnx")
    labels = builder.addInputTensor("INT32", [32], "labels")
    head = builder.addInitializedInputTensor(np.zeros((16, 2), np.float32), "head")
    probabilities = builder.aiOnnx.softmax([builder.aiOnnx.matmul(["features", head])], axis=-1)
    loss = builder.aiGraphcore.nllloss([probabilities, labels])
    builder.addOutputTensor(probabilities)
    print("weights:", builder.getTrainableTensorIds())

    # The first layer becomes a constant; the second learns ten times as slowly as the head.
    transformer = popart.GraphTransformer(builder.getModelProto())
    transformer.convertInitializersToConstants(["w1"])
    optimizer = popart.SGD({"defaultLearningRate": (0.2, False), "defaultMomentum": (0.9, True)})
    optimizer.insertSpecific("w2", {"learningRate": (0.02, False)})

    session = popart.TrainingSession(
        transformer.getModelProto(),
        popart.DataFlow(4, {loss: popart.AnchorReturnType("All")}),
        loss,
        optimizer,
        popart.DeviceManager().createCpuDevice(),
    )
    session.prepareDevice()
    session.weightsFromHost()
    anchors = session.initAnchorArrays()

    rng, losses = np.random.default_rng(2), []
    for _ in range(10):
        x = rng.standard_normal((4, 32, 8)).astype(np.float32)
        y = (x[..., 0] > x[..., 1]).astype(np.int32)
        session.run(popart.PyStepIO({"x": x, labels: y}, anchors))
        losses.append(anchors[loss].mean())
    print(f"loss {losses[0]:.2f}, then {losses[-1]:.2f}; learnt: {losses[-1] < losses[0] - 0.2}")

    session.modelToHost("tuned.onnx")
    tuned = onnx.load("tuned.onnx")
    onnx.checker.check_model(tuned)
    print("written:", ", ".join(t.name for t in tuned.graph.initializer))
