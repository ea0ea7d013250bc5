"""MNIST with PopART: a network built operator by operator, trained, tested, and costed on a Bow.

python mnist_builder.py [--epochs N] [--replicas R] [--accumulation A]
"""

# Arguments when run as a test: --images 1280 --test-images 640 --replicas 2 --accumulation 2

import argparse

import numpy as np

import popart
from tremula.garden.models.datasets.mnist import Mnist

N_PIXELS, N_HIDDEN, N_CLASSES = 784, 64, 10


def network(micro_batch):
    """Two dense layers; the builder, the ids of images, labels, probabilities and loss."""
    rng = np.random.default_rng(0)
    builder = popart.Builder()
    images = builder.addInputTensor("FLOAT", [micro_batch, N_PIXELS], "images")
    labels = builder.addInputTensor("INT32", [micro_batch], "labels")
    x = images
    for i, (n_in, n_out) in enumerate([(N_PIXELS, N_HIDDEN), (N_HIDDEN, N_CLASSES)]):
        with builder.nameScope(f"layer{i}"):
            first = rng.standard_normal((n_in, n_out)) * np.sqrt(2 / n_in)
            w = builder.addInitializedInputTensor(first.astype(np.float32), "w")
            b = builder.addInitializedInputTensor(np.zeros(n_out, np.float32), "b")
            x = builder.aiOnnx.add([builder.aiOnnx.matmul([x, w]), b])
            x = builder.aiOnnx.relu([x]) if i == 0 else x
    probabilities = builder.aiOnnx.softmax([x], axis=1)
    loss = builder.aiGraphcore.nllloss([probabilities, labels], popart.ReductionType.Mean)
    builder.addOutputTensor(probabilities)
    return builder, images, labels, probabilities, loss


def arrays_of(train, n_images):
    """Images as rows of numbers and their labels, from the small set that needs no download."""
    data = Mnist(train=train, subset=True, n_images=n_images)
    pairs = [data[i] for i in range(len(data))]
    images = np.stack([np.asarray(image).reshape(-1) for image, _ in pairs]).astype(np.float32)
    return images, np.array([int(label) for _, label in pairs], np.int32)


def steps_of(images, labels, n):
    """Parts of n samples; what is left over is not used."""
    for start in range(0, len(images) - n + 1, n):
        yield images[start : start + n], labels[start : start + n]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="MNIST with PopART")
    parser.add_argument("--micro-batch", type=int, default=16)
    parser.add_argument("--batches-per-step", type=int, default=2)
    parser.add_argument("--replicas", type=int, default=1)
    parser.add_argument("--accumulation", type=int, default=1)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--images", type=int)
    parser.add_argument("--test-images", type=int)
    args = parser.parse_args()

    builder, images, labels, probabilities, loss = network(args.micro_batch)

    options = popart.SessionOptions()
    options.enableReplicatedGraphs = args.replicas > 1
    options.replicatedGraphCount = args.replicas
    options.enableGradientAccumulation = args.accumulation > 1
    options.accumulationFactor = args.accumulation
    options.accumulationAndReplicationReductionType = popart.ReductionType.Mean
    options.instrumentWithHardwareCycleCounter = True

    everything = popart.AnchorReturnType("All")
    device = popart.DeviceManager().acquireAvailableDevice(args.replicas)
    training = popart.TrainingSession(
        builder.getModelProto(),
        dataFlow=popart.DataFlow(args.batches_per_step, {loss: everything}),
        loss=loss,
        optimizer=popart.Adam({"defaultLearningRate": (0.003, False)}),
        deviceInfo=device,
        userOptions=options,
    )
    training.prepareDevice()
    training.weightsFromHost()
    anchors = training.initAnchorArrays()

    n_samples = args.micro_batch * args.batches_per_step * args.replicas * args.accumulation
    train_data, test_data = arrays_of(True, args.images), arrays_of(False, args.test_images)
    for epoch in range(args.epochs):
        losses = []
        for some_images, some_labels in steps_of(*train_data, n_samples):
            stepio = popart.PyStepIO({images: some_images, labels: some_labels}, anchors)
            training.run(stepio)
            losses.append(anchors[loss].mean())
        print(f"Epoch {epoch + 1}: loss {np.mean(losses):.3f}")

    # The trained weights go to a separate model, which any ONNX runtime opens.
    training.modelToHost("mnist.onnx")
    testing = popart.InferenceSession(
        "mnist.onnx",
        popart.DataFlow(1, {probabilities: everything}),
        popart.DeviceManager().createCpuDevice(),
    )
    testing.prepareDevice()
    anchors = testing.initAnchorArrays()
    n_correct = n_tested = 0
    for some_images, some_labels in steps_of(*test_data, args.micro_batch):
        testing.run(popart.PyStepIO({images: some_images}, anchors))
        n_correct += int((anchors[probabilities].argmax(-1) == some_labels).sum())
        n_tested += len(some_labels)
    print(f"Accuracy on the test set: {n_correct / n_tested:.0%}")

    cycles = training.getCycleCount()
    per_second = n_samples * 1.85e9 / cycles  # a Bow's clock
    print(f"On a Bow, modelled: {cycles} cycles a step, {per_second:,.0f} images per second")
