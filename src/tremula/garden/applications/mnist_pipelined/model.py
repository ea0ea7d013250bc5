"""A network for digits in two stages, and the digits as whole executions take them."""

import numpy as np

from tremula.frontends.keras import ipu
from tremula.garden.models.datasets.mnist import load_mnist

import keras  # isort: skip - after Tremula's Keras, which chooses its backend
from keras import layers  # isort: skip

N_BATCH, N_IN_FLIGHT = 16, 8


def digits(train: bool, n_images: int) -> tuple[np.ndarray, np.ndarray]:
    """Images between 0 and 1 with one channel, as many as whole executions take."""
    images, labels = load_mnist(train=train, subset=True)
    per_execution = N_BATCH * N_IN_FLIGHT
    n = min(n_images, len(images)) // per_execution * per_execution
    return images[:n].reshape(n, 28, 28, 1).astype(np.float32) / 255, labels[:n]


def two_stages(width: int = 16) -> keras.Model:
    """Convolutions in the first stage, dense layers in the second."""
    images = keras.Input((28, 28, 1))
    with ipu.PipelineStage(0):
        x = layers.Conv2D(width, 3, strides=2, activation="relu")(images)
        x = layers.Conv2D(2 * width, 3, strides=2, activation="relu")(x)
    with ipu.PipelineStage(1):
        x = layers.Flatten()(x)
        x = layers.Dense(64, activation="relu")(x)
        x = layers.Dense(10)(x)
    return keras.Model(images, x)
