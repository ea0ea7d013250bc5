"""UNet in Keras: which pixels belong to a disc, in pictures made here; then cycles on tiles.

python unet.py [--pictures N] [--epochs N] [--width N]
"""

# Run by the wide tests.
# Arguments when run as a test: --pictures 16 --epochs 1 --width 2

import argparse

import numpy as np

from tremula.keras import ipu

import keras  # isort: skip - after tremula.keras, which chooses its backend
from keras import layers  # isort: skip

SIZE, BATCH = 32, 8


def pictures(n: int) -> tuple[np.ndarray, np.ndarray]:
    """Bright discs in noise, and where they are."""
    rng = np.random.default_rng(0)
    y, x = np.mgrid[:SIZE, :SIZE]
    centre = rng.uniform(8, SIZE - 8, (n, 2, 1, 1))
    radius = rng.uniform(3, 8, (n, 1, 1))
    masks = (x - centre[:, 0]) ** 2 + (y - centre[:, 1]) ** 2 < radius**2
    seen = masks + rng.normal(0, 0.5, masks.shape)
    return seen[..., None].astype(np.float32), masks[..., None].astype(np.float32)


def block(x, width: int):
    """Two convolutions with batch norms."""
    for _ in range(2):
        x = layers.Conv2D(width, 3, padding="same", use_bias=False)(x)
        x = layers.Activation("relu")(layers.BatchNormalization()(x))
    return x


def unet(width: int, n_levels: int = 2) -> keras.Model:
    """Down, and up again; every level up also reads what the same level saw going down."""
    inputs = x = keras.Input((SIZE, SIZE, 1))
    seen = []
    for level in range(n_levels):
        seen.append(block(x, width << level))
        x = layers.MaxPooling2D()(seen[-1])
    x = block(x, width << n_levels)
    for level in reversed(range(n_levels)):
        x = layers.Conv2DTranspose(width << level, 2, strides=2)(x)
        x = block(layers.Concatenate()([x, seen[level]]), width << level)
    return keras.Model(inputs, layers.Conv2D(1, 1, activation="sigmoid")(x))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--pictures", type=int, default=128)
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--width", type=int, default=8)
    args = parser.parse_args()

    with ipu.ipu_strategy.IPUStrategy().scope():
        keras.utils.set_random_seed(0)
        model = unet(args.width)
        overlap = keras.metrics.BinaryIoU([1], name="overlap")
        model.compile(keras.optimizers.Adam(0.01), "binary_crossentropy", metrics=[overlap])
        found = model.fit(*pictures(args.pictures), batch_size=BATCH, epochs=args.epochs, verbose=0)
        print(f"loss {found.history['loss'][-1]:.3f}, overlap {found.history['overlap'][-1]:.2f}")
        model.predict(pictures(1)[0], verbose=0)
    report = model.ipu_report()
    print(f"a picture takes {report.total_cycles} cycles on the tiles of {report.chip.name}")


if __name__ == "__main__":
    main()
