"""An LSTM in sections between saved states, the rest computed again; and texts in stages."""

import argparse

import numpy as np
import tensorflow as tf
from tensorflow.keras.datasets import imdb
from tensorflow.keras.layers import Dense, Input
from tensorflow.keras.optimizers import Adam
from tensorflow.keras.preprocessing import sequence
from tensorflow.python import ipu

import ipu_tensorflow_addons.keras.layers as ipu_layers
from ipu_tensorflow_addons.keras.layers import LSTM, Embedding


def sections(inputs, length, n_checkpoints, units):
    lstm, state, outputs = ipu_layers.PopnnLSTM(units, return_state=True, name="lstm"), None, []
    for i in range(n_checkpoints + 1):
        begin = i * length // (n_checkpoints + 1)
        end = (i + 1) * length // (n_checkpoints + 1)
        part = tf.keras.layers.Lambda(
            lambda x, b=0, e=0: x[:, b:e, :], arguments={"b": begin, "e": end}
        )(inputs)
        output, h, c = lstm(part, initial_state=state)
        if i != n_checkpoints:
            h, c = ipu_layers.RecomputationCheckpoint()([h, c])
        state = (h, c)
        outputs.append(output)
    return tf.keras.layers.Concatenate(axis=1)(outputs)


def split_model(length, n_checkpoints):
    inputs = Input(shape=(length, 3))
    with ipu.keras.PipelineStage(0):
        x = sections(inputs, length, n_checkpoints, 4)
    with ipu.keras.PipelineStage(1):
        x = Dense(1, name="dense")(x)
    return tf.keras.Model(inputs=inputs, outputs=x)


def train_in_sections(args):
    data = tf.constant(1.0, shape=[args.length, 3])
    target = tf.constant(0.2, shape=[1])
    rows = tf.data.Dataset.from_tensors((data, target)).repeat(32).batch(4, drop_remainder=True)
    model = split_model(args.length, args.checkpoints)
    first = model.get_weights()
    model.compile(tf.optimizers.SGD(0.1), loss="mse", steps_per_execution=4)
    model.set_pipelining_options(
        gradient_accumulation_steps_per_replica=4,
        pipeline_schedule=ipu.pipelining_ops.PipelineSchedule.Sequential,
        device_mapping=[0, 0],
        recomputation_mode=ipu.pipelining_ops.RecomputationMode.RecomputeAndBackpropagateInterleaved,
    )
    model.set_infeed_queue_options(prefetch_depth=1)
    model.fit(rows, verbose=0)
    return first, model.get_weights(), rows


def check_sections(args, first, weights, rows):
    """Two updates, each by the sum of four gradients, of the same layers without a machine."""
    reference = split_model(args.length, args.checkpoints)
    reference.set_weights(first)
    optimizer, batches = tf.optimizers.SGD(0.1), iter(rows)
    for _ in range(2):
        with tf.GradientTape() as tape:
            pairs = [next(batches) for _ in range(4)]
            loss = tf.add_n([tf.reduce_mean((reference(x) - y) ** 2) for x, y in pairs])
        gradients = tape.gradient(loss, reference.trainable_variables)
        optimizer.apply_gradients(zip(gradients, reference.trainable_variables))
    for own, other in zip(weights, reference.get_weights()):
        np.testing.assert_allclose(own, other, atol=1e-5)


def texts(n_words, length, batch):
    (x, y), (_, _) = imdb.load_data(num_words=n_words)
    x = sequence.pad_sequences(x, maxlen=length)
    rows = tf.data.Dataset.from_tensor_slices((x, y)).repeat()
    rows = rows.map(lambda x, y: (x, tf.cast(y, tf.int32)))
    return rows.batch(batch, drop_remainder=True)


def train_texts(n_words=50, length=6, batch=4):
    inputs = Input(shape=(length), dtype=tf.int32, batch_size=batch)
    with ipu.keras.PipelineStage(0):
        x = Embedding(n_words, 8)(inputs)
    with ipu.keras.PipelineStage(1):
        x = LSTM(4, dropout=0.2)(x)
        x = Dense(1, activation="sigmoid")(x)
    model = tf.keras.Model(inputs, x)
    model.set_pipelining_options(gradient_accumulation_steps_per_replica=4, device_mapping=[0, 0])
    model.compile(steps_per_execution=8, loss="binary_crossentropy", optimizer=Adam(0.05))
    return model.fit(texts(n_words, length, batch), steps_per_epoch=8, epochs=2, verbose=0)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--checkpoints", type=int, default=2)
    parser.add_argument("--length", type=int, default=6)
    args = parser.parse_args([])
    config = ipu.config.IPUConfig()
    config.auto_select_ipus = 1
    config.allow_recompute = True
    config.ipu_model.tiles_per_ipu = 8
    config.configure_ipu_system()
    with ipu.ipu_strategy.IPUStrategy().scope():
        trained = train_in_sections(args)
        history = train_texts()
    check_sections(args, *trained)
    assert np.isfinite(history.history["loss"]).all()


if __name__ == "__main__":
    main()
