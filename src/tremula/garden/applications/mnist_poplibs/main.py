"""Learns digits on four tiles, vertex by vertex, as the same arithmetic does in NumPy."""

import numpy as np

from tremula.garden.application import Findings, Settings, modelled_engine
from tremula.garden.applications.mnist_poplibs.graph import (
    N_BATCH,
    N_CLASSES,
    N_HIDDEN,
    N_PIXELS,
    RATE,
    build,
)
from tremula.garden.models.datasets.mnist_subset import small_mnist
from tremula.poplar.programs import Repeat
from tremula.poplar.target import IPUModel
from tremula.runtime.engine import Engine

N_TILES = 16


def run(settings: Settings) -> Findings:
    n_train, n_epochs = (3000, 3) if settings.tiny else (6000, 10)
    data = {name: digits(name, n) for name, n in (("train", n_train), ("test", 1000))}
    device = IPUModel("bow", tiles_per_ipu=N_TILES).create_device()
    network = build(device)
    programs = {
        "train": Repeat(n_train // N_BATCH, network.learn),
        "test": Repeat(1000 // N_BATCH, network.classify),
    }
    engine = Engine(network.graph, programs)
    engine.load(device)
    weights = first_weights()
    for name, array in weights.items():
        engine.write_tensor(f"{name} weights", array)
    curve = []
    for epoch in range(n_epochs):
        curve.append(share_right(engine, "train", *data["train"]))
        settings.show(f"  epoch {epoch + 1}: {curve[-1]:.1%} right while learning")
    modelled = modelled_engine(
        engine, settings, n_items=N_BATCH, unit="images/s", n_runs=n_epochs * n_train // N_BATCH
    )
    accuracy = share_right(engine, "test", *data["test"])
    settings.show(f"accuracy on 1,000 other digits: {accuracy:.1%}")
    expected = learnt_with_numpy(weights, *data["train"], n_epochs)
    off = max(
        float(abs(engine.read_tensor(f"{name} weights") - array).max())
        for name, array in expected.items()
    )
    return Findings(
        results={"accuracy": accuracy, "difference_from_numpy": off},
        modelled=modelled,
        curves={"share_right": curve},
    )


def digits(name: str, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows of pixels between 0 and 1, and labels."""
    images, labels = (column[:n] for column in small_mnist(train=name == "train"))
    return images.reshape(-1, N_PIXELS).astype(np.float32) / 255, labels.astype(np.uint32)


def first_weights() -> dict[str, np.ndarray]:
    random = np.random.default_rng(0)
    shapes = {"first": (N_PIXELS, N_HIDDEN), "second": (N_HIDDEN, N_CLASSES)}
    return {
        name: random.normal(0, shape[0] ** -0.5, shape).astype(np.float32)
        for name, shape in shapes.items()
    }


def share_right(engine: Engine, program: str, images: np.ndarray, labels: np.ndarray) -> float:
    """Run a program over all images; the share that was classified rightly."""
    counts = np.zeros(len(labels) // N_BATCH, np.uint32)
    engine.connect_stream("images", images)
    engine.connect_stream("labels", labels)
    engine.connect_stream("number right", counts)
    engine.run(program)
    return float(counts.sum() / len(labels))


def learnt_with_numpy(
    weights: dict[str, np.ndarray], images: np.ndarray, labels: np.ndarray, n_epochs: int
) -> dict[str, np.ndarray]:
    """The training steps in NumPy: sums in another order, so equal but for rounding."""
    first, second = weights["first"].copy(), weights["second"].copy()
    bias, scores_bias = np.zeros(N_HIDDEN, np.float32), np.zeros(N_CLASSES, np.float32)
    step = np.float32(RATE / N_BATCH)
    for begin in list(range(0, len(images), N_BATCH)) * n_epochs:
        batch = images[begin : begin + N_BATCH]
        hidden = np.tanh(batch @ first + bias)
        power = np.exp(hidden @ second + scores_bias)
        error = power / power.sum(axis=1, keepdims=True)
        error[np.arange(N_BATCH), labels[begin : begin + N_BATCH]] -= 1
        slope = (error @ second.T) * (1 - hidden**2)
        second -= step * (hidden.T @ error)
        scores_bias -= step * error.sum(axis=0)
        first -= step * (batch.T @ slope)
        bias -= step * slope.sum(axis=0)
    return {"first": first, "second": second}
