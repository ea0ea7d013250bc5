"""ResNet50 of keras.applications: a step of training, then a file that predicts without Keras.

python resnet50.py [--size PIXELS] [--steps N]
"""

# Run by the wide tests.
# Arguments when run as a test: --size 32 --steps 1

import argparse
import tempfile

import numpy as np

import tremula
from tremula.keras import ipu

import keras  # isort: skip - after tremula.keras, which chooses its backend

BATCH, N_CLASSES = 2, 10


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--size", type=int, default=64)
    parser.add_argument("--steps", type=int, default=4)
    args = parser.parse_args()

    rng = np.random.default_rng(0)
    images = rng.random((BATCH * args.steps, args.size, args.size, 3), dtype=np.float32)
    labels = rng.integers(0, N_CLASSES, len(images))
    with ipu.ipu_strategy.IPUStrategy().scope():
        keras.utils.set_random_seed(0)
        model = keras.applications.ResNet50(
            weights=None, input_shape=images.shape[1:], classes=N_CLASSES
        )
        # Norms of a few pixels have steep gradients: without a limit, the first step overshoots.
        optimizer = keras.optimizers.SGD(0.01, momentum=0.9, global_clipnorm=1.0)
        model.compile(optimizer, "sparse_categorical_crossentropy")
        result = model.fit(images, labels, batch_size=BATCH, verbose=0)
        print(f"{model.count_params()} weights, loss {result.history['loss'][-1]:.3f}")
        with tempfile.TemporaryDirectory() as folder:
            model.export_for_ipu_serving(folder, batch_size=BATCH, tiles=False)
            served = tremula.load_served(folder)
        theirs = model.predict(images[:BATCH], batch_size=BATCH, verbose=0)
    difference = np.abs(served(images[:BATCH]) - theirs).max()
    print("the file predicts the same:", bool(difference < 1e-5))


if __name__ == "__main__":
    main()
