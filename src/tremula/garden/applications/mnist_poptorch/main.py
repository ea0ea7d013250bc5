"""Trains a network on MNIST with PopTorch, tests it, and models its step on a Bow."""

import numpy as np
import torch

import poptorch
from tremula.demo.classifiers import WithLoss, mnist_cnn
from tremula.garden.application import Findings, Settings, modelled_poptorch
from tremula.garden.models.datasets.mnist import Mnist

N_BATCH, N_ITERATIONS, N_TEST_BATCH = 16, 25, 250
RATE, MOMENTUM = 0.03, 0.9
LATER_RATE = RATE / 5  # after the first epoch: large steps leave the accuracy to chance


def run(settings: Settings) -> Findings:
    torch.manual_seed(1)
    training, test = (Mnist(train, subset=settings.tiny) for train in (True, False))
    n_epochs = 2 if settings.tiny else 3
    settings.show(f"training on {len(training):,} digits, {N_ITERATIONS} steps per call")
    network = mnist_cnn()
    options = poptorch.Options().deviceIterations(N_ITERATIONS).randomSeed(1)
    data = poptorch.DataLoader(options, training, batch_size=N_BATCH, shuffle=True)
    optimizer = torch.optim.SGD(network.parameters(), lr=RATE, momentum=MOMENTUM)
    model = poptorch.trainingModel(WithLoss(network), options, optimizer)
    losses = []
    for epoch in range(n_epochs):
        if epoch == 1:
            optimizer.param_groups[0]["lr"] = LATER_RATE
            model.setOptimizer(optimizer)  # a new rate, and nothing is compiled again
        for images, labels in data:
            _, loss = model(images, labels)
            losses.append(float(loss.mean()))
        settings.show(f"  loss {losses[-1]:.3f}")
    model.detachFromDevice()
    accuracy = accuracy_of(network, test)
    settings.show(f"accuracy on {len(test):,} other digits: {accuracy:.2%}")
    return Findings(
        results={"accuracy": accuracy, "final_loss": losses[-1]},
        modelled=modelled_poptorch(
            model, settings, n_items=N_BATCH, unit="images/s", n_steps=N_ITERATIONS
        ),
        curves={"loss": losses},
        picture=some_digits(),
    )


def accuracy_of(network: torch.nn.Module, test: Mnist) -> float:
    model = poptorch.inferenceModel(network.eval())
    loader = poptorch.DataLoader(poptorch.Options(), test, batch_size=N_TEST_BATCH)
    right = sum(int((model(images).argmax(1) == labels).sum()) for images, labels in loader)
    return right / len(test)


def some_digits() -> np.ndarray:
    """Twelve of the test images in three rows."""
    images = Mnist(train=False, subset=True, n_images=12).images.numpy()
    return images.reshape(3, 4, 28, 28).transpose(0, 2, 1, 3).reshape(3 * 28, 4 * 28)
