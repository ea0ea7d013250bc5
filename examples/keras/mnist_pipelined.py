"""MNIST in Keras as a pipeline: two stages on two IPUs, eight batches in flight.

python mnist_pipelined.py [--images N] [--epochs N]
"""

# Arguments when run as a test: --images 512 --epochs 1

import argparse

import numpy as np

from tremula.garden.mnist import load_mnist
from tremula.keras import ipu

import keras  # isort: skip - after tremula.keras, which chooses its backend
from keras import layers  # isort: skip

BATCH, N_IN_FLIGHT = 16, 8


def data(train: bool, n_images: int) -> tuple[np.ndarray, np.ndarray]:
    """Images between 0 and 1 with one channel, as many as whole executions take."""
    images, labels = load_mnist(train=train, subset=True)
    n = min(n_images, len(images)) // (BATCH * N_IN_FLIGHT) * BATCH * N_IN_FLIGHT
    return images[:n].reshape(n, 28, 28, 1).astype(np.float32) / 255, labels[:n]


def network() -> keras.Model:
    """Convolutions in the first stage, dense layers in the second."""
    images = keras.Input((28, 28, 1))
    with ipu.PipelineStage(0):
        x = layers.Conv2D(16, 3, strides=2, activation="relu")(images)
        x = layers.Conv2D(32, 3, strides=2, activation="relu")(x)
    with ipu.PipelineStage(1):
        x = layers.Flatten()(x)
        x = layers.Dense(64, activation="relu")(x)
        x = layers.Dense(10)(x)
    return keras.Model(images, x)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--images", type=int, default=4096)
    parser.add_argument("--epochs", type=int, default=3)
    args = parser.parse_args()

    config = ipu.config.IPUConfig()
    config.auto_select_ipus = 2
    config.configure_ipu_system()
    with ipu.ipu_strategy.IPUStrategy().scope():
        keras.utils.set_random_seed(0)
        model = network()
        model.compile(
            keras.optimizers.Adam(0.003),
            keras.losses.SparseCategoricalCrossentropy(from_logits=True),
            metrics=["accuracy"],
            steps_per_execution=N_IN_FLIGHT,
        )
        model.set_pipelining_options(
            gradient_accumulation_steps_per_replica=N_IN_FLIGHT,
            gradient_accumulation_reduction_method="mean",
            pipeline_schedule=ipu.PipelineSchedule.Interleaved,
        )
        model.print_pipeline_stage_assignment_summary()
        history = model.fit(
            *data(True, args.images), batch_size=BATCH, epochs=args.epochs, verbose=0
        )
        print(f"loss: {history.history['loss'][-1]:.3f}")
        _, accuracy = model.evaluate(*data(False, args.images), batch_size=BATCH, verbose=0)
        print(f"accuracy on images it has not seen: {accuracy:.1%}")


if __name__ == "__main__":
    main()
