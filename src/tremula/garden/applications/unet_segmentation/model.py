"""UNet in Keras, in one stage or two, and pictures of discs in noise for it."""

# For Keras's stubs, a layer returns one tensor or several.
# pyright: reportArgumentType=false

from contextlib import nullcontext

import numpy as np

from tremula.frontends.keras import ipu

import keras  # isort: skip - after Tremula's Keras, which chooses its backend
from keras import layers  # isort: skip

SIZE = 32


def pictures(n: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Bright discs in noise, and where they are."""
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[:SIZE, :SIZE]
    centre = rng.uniform(8, SIZE - 8, (n, 2, 1, 1))
    radius = rng.uniform(3, 8, (n, 1, 1))
    masks = (x - centre[:, 0]) ** 2 + (y - centre[:, 1]) ** 2 < radius**2
    seen = masks + rng.normal(0, 0.5, masks.shape)
    return seen[..., None].astype(np.float32), masks[..., None].astype(np.float32)


def block(x: keras.KerasTensor, width: int) -> keras.KerasTensor:
    """Two convolutions with batch norms."""
    for _ in range(2):
        x = layers.Conv2D(width, 3, padding="same", use_bias=False)(x)
        x = layers.Activation("relu")(layers.BatchNormalization()(x))
    return x


def unet(width: int, n_levels: int = 2, *, n_stages: int = 1) -> keras.Model:
    """Down, and up again; every level up also reads what the same level saw going down."""
    is_piped = n_stages == 2
    inputs = x = keras.Input((SIZE, SIZE, 1))
    with ipu.PipelineStage(0) if is_piped else nullcontext():
        seen = []
        for level in range(n_levels):
            seen.append(block(x, width << level))
            x = layers.MaxPooling2D()(seen[-1])
        x = block(x, width << n_levels)
    with ipu.PipelineStage(1) if is_piped else nullcontext():
        for level in reversed(range(n_levels)):
            x = layers.Conv2DTranspose(width << level, 2, strides=2)(x)
            x = block(layers.Concatenate()([x, seen[level]]), width << level)
        x = layers.Conv2D(1, 1, activation="sigmoid")(x)
    return keras.Model(inputs, x)
