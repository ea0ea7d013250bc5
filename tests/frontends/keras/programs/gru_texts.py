"""Texts of words, padded and classified by a GRU, on two replicas, until they stop to improve."""

import numpy as np
import tensorflow as tf
from tensorflow import keras
from tensorflow.keras.preprocessing.sequence import pad_sequences
from tensorflow.python.ipu import ipu_strategy
from tensorflow.python.ipu.config import IPUConfig

from ipu_tensorflow_addons.keras import layers as ipu_layers

N_WORDS, LENGTH, BATCH, REPLICAS, STEPS = 30, 6, 4, 2, 8


def load():
    """Reviews of which the good ones have words of the upper half."""
    rng = np.random.default_rng(8)
    labels = rng.integers(0, 2, BATCH * STEPS).astype(np.int32)
    lengths = rng.integers(2, 2 * LENGTH, len(labels))
    texts = [
        (rng.integers(1, N_WORDS // 2, n) + label * (N_WORDS // 2 - 1)).tolist()
        for n, label in zip(lengths, labels)
    ]
    rows = pad_sequences(texts, maxlen=LENGTH, padding="post", truncating="pre", value=0)
    assert rows.shape == (len(texts), LENGTH)
    assert rows.dtype == np.int32
    return rows, labels


def data_set(rows, labels):
    data = tf.data.Dataset.from_tensor_slices((rows, labels))
    return data.batch(BATCH, drop_remainder=True).prefetch(2)


def make_model(layers):
    """A classifier, of Keras' layers or of the add-ons'."""
    keras.utils.set_random_seed(3)
    model = keras.Sequential(name="reviews")
    model.add(keras.Input(shape=(LENGTH,), dtype="int32"))
    model.add(layers.Embedding(N_WORDS, 6))
    model.add(layers.GRU(5, reset_after=True))
    model.add(keras.layers.Dense(1, activation="sigmoid"))
    return model


def main():
    config = IPUConfig()
    config.auto_select_ipus = REPLICAS
    config.ipu_model.tiles_per_ipu = 4
    config.configure_ipu_system()
    rows, labels = load()
    strategy = ipu_strategy.IPUStrategyV1(enable_dataset_iterators=False)
    with strategy.scope():
        assert strategy.num_replicas_in_sync == REPLICAS
        model = make_model(ipu_layers)
        first = model.get_weights()
        model.compile(
            optimizer=keras.optimizers.Adam(learning_rate=0.05),
            loss=keras.losses.BinaryCrossentropy(),
            metrics=[keras.metrics.BinaryAccuracy(name="accuracy")],
            steps_per_execution=STEPS // REPLICAS,
        )
        model.set_replication_options(replicated_metric_reduction_method="MEAN")
        stopping = keras.callbacks.EarlyStopping(monitor="loss", patience=3, mode="min")
        history = model.fit(
            data_set(rows, labels),
            epochs=6,
            callbacks=[stopping, keras.callbacks.History()],
            verbose=0,
        )
        scores = model.predict(rows[: BATCH * REPLICAS], batch_size=BATCH, verbose=0)
    check(first, model.get_weights(), history, scores, rows, labels)


def check(first, trained, history, scores, rows, labels):
    """Each update: the mean gradient of as many batches as there are replicas."""
    reference = make_model(keras.layers)
    reference.set_weights(first)
    optimizer = keras.optimizers.Adam(learning_rate=0.05)
    for _ in history.epoch:
        batches = iter(data_set(rows, labels))
        for _ in range(STEPS // REPLICAS):
            pairs = [next(batches) for _ in range(REPLICAS)]
            with tf.GradientTape() as tape:
                losses = [
                    tf.reduce_mean(keras.losses.binary_crossentropy(y[:, None], reference(x)))
                    for x, y in pairs
                ]
                loss = tf.add_n(losses) / REPLICAS
            gradients = tape.gradient(loss, reference.trainable_variables)
            optimizer.apply_gradients(zip(gradients, reference.trainable_variables))
    for own, other in zip(trained, reference.get_weights()):
        np.testing.assert_allclose(own, other, atol=1e-4)
    expected = reference(rows[: BATCH * REPLICAS]).detach().numpy()
    np.testing.assert_allclose(scores, expected, atol=1e-4)
    assert history.history["accuracy"][-1] > 0.8
    assert history.history["loss"][-1] < history.history["loss"][0]


if __name__ == "__main__":
    main()
