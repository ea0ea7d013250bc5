"""Images classified by dense layers: `fit` on a data set, checked against plain Keras."""

import numpy as np
import tensorflow as tf
from tensorflow import keras
from tensorflow.python import ipu

if tf.__version__[0] != "2":
    raise ImportError("this program is for TensorFlow 2")

BATCH, STEPS = 8, 8


def load_data():
    (images, labels), _ = keras.datasets.mnist.load_data()
    images = images[:, ::4, ::4] / 255.0
    rows = tf.data.Dataset.from_tensor_slices((images, labels))
    rows = rows.cache().shuffle(len(images), seed=3, reshuffle_each_iteration=False)
    batches = rows.batch(BATCH, drop_remainder=True)
    batches = batches.map(
        lambda d, l: (tf.cast(d, tf.float32), tf.cast(l, tf.int32)),
        num_parallel_calls=tf.data.experimental.AUTOTUNE,
    )
    return batches.prefetch(tf.data.AUTOTUNE).repeat()


def make_model():
    tf.random.set_seed(1)
    return keras.Sequential(
        [
            keras.layers.Flatten(input_shape=(7, 7)),
            keras.layers.Dense(16, activation=tf.nn.relu),
            keras.layers.Dense(10, activation="softmax"),
        ]
    )


class Losses(tf.keras.callbacks.Callback):
    def __init__(self):
        self.losses = []

    def on_epoch_end(self, epoch, logs=None):
        self.losses.append(logs["loss"])


def main():
    config = ipu.config.IPUConfig()
    config.auto_select_ipus = 1
    config.device_connection.type = ipu.config.DeviceConnectionType.ON_DEMAND
    config.ipu_model.tiles_per_ipu = 4
    config.configure_ipu_system()
    losses = Losses()
    with ipu.ipu_strategy.IPUStrategy().scope():
        model = make_model()
        model.compile(
            loss=keras.losses.SparseCategoricalCrossentropy(),
            optimizer=keras.optimizers.SGD(lr=0.05, momentum=0.9),
            metrics=["accuracy"],
            steps_per_execution=STEPS // 2,
        )
        model.fit(load_data(), steps_per_epoch=STEPS, epochs=2, verbose=0, callbacks=[losses])

    reference = make_model()
    optimizer = keras.optimizers.SGD(learning_rate=0.05, momentum=0.9)
    reference.compile(loss="sparse_categorical_crossentropy", optimizer=optimizer)
    batches = iter(load_data())
    for _ in range(2 * STEPS):
        reference.train_on_batch(*next(batches))
    for own, other in zip(model.get_weights(), reference.get_weights()):
        np.testing.assert_allclose(own, other, atol=1e-5)
    assert losses.losses[1] < losses.losses[0]


if __name__ == "__main__":
    main()
