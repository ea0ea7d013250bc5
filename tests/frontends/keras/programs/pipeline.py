"""Convolutions as a pipeline of two stages, by contexts and by a list of stages, with callbacks."""

import os
import tempfile

import numpy as np
import tensorflow as tf
import tensorflow.keras as keras
from tensorflow.python import ipu

BATCH, ACCUMULATED = 4, 8


def load_data():
    (x, y), (x_test, y_test) = keras.datasets.cifar10.load_data()
    x, x_test = (part[:, ::4, ::4].astype("float32") / 255 for part in (x, x_test))
    y, y_test = (keras.utils.to_categorical(part, 10) for part in (y, y_test))
    train = tf.data.Dataset.from_tensor_slices((x, y)).repeat()
    test = tf.data.Dataset.from_tensor_slices((x_test, y_test))
    return train.batch(BATCH, drop_remainder=True), test.batch(2, drop_remainder=True)


def body(x):
    with ipu.keras.PipelineStage(0):
        x = keras.layers.Conv2D(4, 3, activation="relu", name="conv_0")(x)
        x = keras.layers.MaxPooling2D(2)(x)
    with keras.ipu.PipelineStage(1):
        x = tf.nn.relu(keras.layers.Conv2D(4, 3, name="conv_1")(x))
        x = keras.layers.Flatten()(x)
        return keras.layers.Dense(10, activation="softmax")(x)


def sequential():
    return keras.Sequential(
        [
            keras.layers.Input((8, 8, 3)),
            keras.layers.Conv2D(4, 3, activation="relu"),
            keras.layers.MaxPooling2D(2),
            keras.layers.Flatten(),
            keras.layers.Dense(10, activation="softmax"),
        ]
    )


def compiled(model, **options):
    metrics = ["accuracy", keras.metrics.TopKCategoricalAccuracy(3)]
    model.compile("sgd", keras.losses.CategoricalCrossentropy(), metrics=metrics, **options)
    return model


class Images(tf.keras.callbacks.Callback):
    """Draws kernels after every epoch."""

    def __init__(self, path, model, layer):
        self._model, self._layer = model, layer
        self._writer = tf.summary.create_file_writer(path)

    def on_epoch_end(self, epoch, logs=None):
        kernels = self._model.get_layer(self._layer).get_weights()[0]
        low, high = tf.reduce_min(kernels), tf.reduce_max(kernels)
        flat = tf.reshape((kernels - low) / (high - low), (3, 3, -1))
        parts = tf.experimental.numpy.dsplit(flat, flat.shape[-1])
        row = tf.experimental.numpy.hstack([tf.squeeze(part) for part in parts])
        with self._writer.as_default():
            tf.summary.image(self._layer, row[tf.newaxis, :, :, tf.newaxis], step=epoch)
            tf.summary.scalar("loss", logs["loss"], step=epoch)


def main():
    config = ipu.config.IPUConfig()
    config.auto_select_ipus = 2
    config.ipu_model.tiles_per_ipu = 8
    config.configure_ipu_system()
    train, test = load_data()
    logs = tempfile.mkdtemp()
    with ipu.ipu_strategy.IPUStrategy().scope():
        tf.random.set_seed(7)
        inputs = keras.Input((8, 8, 3))
        model = compiled(keras.Model(inputs, body(inputs)), steps_per_execution=2 * ACCUMULATED)
        model.set_pipelining_options(
            gradient_accumulation_steps_per_replica=ACCUMULATED,
            pipeline_schedule=ipu.pipelining_ops.PipelineSchedule.Grouped,
        )
        first = model.get_weights()
        callbacks = [
            Images(logs, model, "conv_0"),
            keras.callbacks.TensorBoard(logs, histogram_freq=1),
        ]
        history = model.fit(
            train, steps_per_epoch=2 * ACCUMULATED, epochs=2, verbose=0, callbacks=callbacks
        )
        result = model.evaluate(test, steps=2 * ACCUMULATED, return_dict=True, verbose=0)

        listed = compiled(sequential(), steps_per_execution=ACCUMULATED)
        listed.set_pipelining_options(gradient_accumulation_steps_per_replica=ACCUMULATED)
        listed.set_pipeline_stage_assignment([0] * 2 + [1] * 2)
        listed.set_asynchronous_callbacks(True)
        listed.fit(train, steps_per_epoch=ACCUMULATED, verbose=0)
        assert [a.pipeline_stage for a in listed.get_pipeline_stage_assignment()] == [0, 0, 1, 1]

    inputs = keras.Input((8, 8, 3))
    reference = compiled(keras.Model(inputs, body(inputs)))
    reference.set_weights(first)
    batches = iter(train)
    for _ in range(4):  # an update for each group of batches, by the sum of their gradients
        group = [next(batches) for _ in range(ACCUMULATED)]
        with tf.GradientTape() as tape:
            losses = [
                tf.reduce_mean(keras.losses.categorical_crossentropy(y, reference(x)))
                for x, y in group
            ]
            loss = tf.add_n(losses)
        gradients = tape.gradient(loss, reference.trainable_variables)
        reference.optimizer.apply_gradients(zip(gradients, reference.trainable_variables))
    for own, other in zip(model.get_weights(), reference.get_weights()):
        np.testing.assert_allclose(own, other, atol=1e-5)
    assert set(result) >= {"loss", "accuracy"}
    assert len(history.history["loss"]) == 2
    assert any("tfevents" in name for name in os.listdir(logs))


if __name__ == "__main__":
    main()
