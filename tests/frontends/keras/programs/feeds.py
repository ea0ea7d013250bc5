"""A loop in `tf.function`: batches from an iterator, losses to a queue; and single steps."""

import numpy as np
import tensorflow as tf
from tensorflow import keras
from tensorflow.python.ipu import config, ipu_outfeed_queue, ipu_strategy

STEPS, BATCH = 12, 4


def make_data():
    (x, y), (_, _) = keras.datasets.mnist.load_data()
    x = (x[:, ::4, ::4] / 255.0).astype(np.float32)
    data = tf.data.Dataset.from_tensor_slices((x, y))
    data = data.batch(BATCH, drop_remainder=True)
    data = data.map(lambda d, l: (tf.cast(d, tf.float32), tf.cast(l, tf.int32)))
    return data.prefetch(tf.data.experimental.AUTOTUNE).repeat()


def make_model():
    tf.random.set_seed(4)
    return keras.Sequential(
        [
            keras.Input((7, 7)),
            keras.layers.Flatten(),
            keras.layers.Dense(8, activation="relu"),
            keras.layers.Dense(10, activation="softmax"),
        ]
    )


def loss_of(model, features, labels):
    predictions = model(features, training=True)
    losses = keras.losses.sparse_categorical_crossentropy(labels, predictions)
    return tf.reduce_mean(losses)


@tf.function(experimental_compile=True)
def training_loop(iterator, outfeed, model, optimizer, n_steps):
    for _ in tf.range(n_steps):
        features, labels = next(iterator)
        with tf.GradientTape() as tape:
            loss = loss_of(model, features, labels)
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables))
        outfeed.enqueue(loss)


@tf.function(jit_compile=True)
def training_step(features, labels, model, optimizer):
    with tf.GradientTape() as tape:
        loss = loss_of(model, features, labels)
    gradients = tape.gradient(loss, model.trainable_variables)
    optimizer.apply_gradients(zip(gradients, model.trainable_variables))
    return loss


def reference():
    """Losses and weights of as many steps, computed one by one."""
    model, optimizer, batches = make_model(), keras.optimizers.SGD(0.1), iter(make_data())
    losses = [float(training_step(*next(batches), model, optimizer)) for _ in range(STEPS)]
    return losses, model.get_weights()


def main():
    cfg = config.IPUConfig()
    cfg.auto_select_ipus = 1
    cfg.ipu_model.tiles_per_ipu = 4
    cfg.configure_ipu_system()
    losses, weights = reference()
    strategy = ipu_strategy.IPUStrategy()
    with strategy.scope():
        optimizer, model = keras.optimizers.SGD(0.1), make_model()
        iterator, outfeed = iter(make_data()), ipu_outfeed_queue.IPUOutfeedQueue()
        for _ in range(0, STEPS, 4):
            strategy.run(training_loop, args=[iterator, outfeed, model, optimizer, 4])
        np.testing.assert_allclose(outfeed.dequeue(), losses, atol=1e-5)
        for own, other in zip(model.get_weights(), weights):
            np.testing.assert_allclose(own, other, atol=1e-5)

        optimizer, model = keras.optimizers.SGD(0.1), make_model()
        for (x, y), expected in zip(make_data(), losses):
            loss = strategy.run(training_step, args=[x, y, model, optimizer])
            np.testing.assert_allclose(float(loss), expected, atol=1e-5)


if __name__ == "__main__":
    main()
