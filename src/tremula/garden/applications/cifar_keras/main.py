"""Trains the slides' convolutional network in Keras on generated images."""

# Keras's stubs take `verbose` for a name.
# pyright: reportArgumentType=false

import numpy as np

from tremula.frontends.keras import ipu
from tremula.garden.application import Findings, Settings, modelled_report
from tremula.garden.models.datasets.shapes import ShapeImages

import keras  # isort: skip - after Tremula's Keras, which chooses its backend
from keras import layers  # isort: skip

N_BATCH, N_STEPS = 16, 10  # images of a step, steps of an execution


def run(settings: Settings) -> Findings:
    n_images, n_epochs, width = (640, 5, 8) if settings.tiny else (9600, 20, 32)
    config = ipu.config.IPUConfig()
    config.auto_select_ipus = 1
    config.configure_ipu_system()
    with ipu.ipu_strategy.IPUStrategy().scope():
        keras.utils.set_random_seed(0)
        model = network(width)
        model.compile(
            keras.optimizers.Adam(0.005),
            "sparse_categorical_crossentropy",
            metrics=["accuracy"],
            steps_per_execution=N_STEPS,
        )
        settings.show(f"{n_images:,} images, {N_STEPS} steps an execution")
        history = model.fit(*images_of(n_images, 1), batch_size=N_BATCH, epochs=n_epochs, verbose=0)
        report = model.ipu_report()
        _, accuracy = model.evaluate(*images_of(160, 2), batch_size=N_BATCH, verbose=0)
    settings.show(f"accuracy on new images: {accuracy:.1%}")
    return Findings(
        results={"accuracy": accuracy},
        modelled=modelled_report(report, settings, n_items=N_BATCH * N_STEPS, unit="images/s"),
        curves={"loss": history.history["loss"]},
        picture=np.concatenate([grey(image) for image in images_of(6, 2)[0]], 1),
    )


def network(width: int) -> keras.Model:
    """Two pairs of convolutions, each followed by a maximum over squares, and a dense head."""
    return keras.Sequential(
        [
            keras.Input((32, 32, 3)),
            layers.Conv2D(width, 3, padding="same", activation="relu"),
            layers.Conv2D(width, 3, activation="relu"),
            layers.MaxPooling2D(),
            layers.Conv2D(2 * width, 3, padding="same", activation="relu"),
            layers.Conv2D(width, 3, activation="relu"),
            layers.MaxPooling2D(),
            layers.Flatten(),
            layers.Dense(8 * width, activation="relu"),
            layers.Dense(10, activation="softmax"),
        ]
    )


def images_of(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Images with channels last, and labels."""
    data = ShapeImages(n, seed)
    return data.images.permute(0, 2, 3, 1).contiguous().numpy(), data.labels.numpy()


def grey(image: np.ndarray) -> np.ndarray:
    return image.mean(2)
