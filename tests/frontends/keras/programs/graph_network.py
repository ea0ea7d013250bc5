"""A graph network of a subclassed model: padded batches, segments, its own `train_step`."""

import numpy as np
import tensorflow as tf
from tensorflow import keras
from tensorflow.python import ipu

N_NODES, N_EDGES, N_GRAPHS, N_FEATURES, HIDDEN, STEPS = 12, 20, 3, 5, 6, 4


def graphs(rng):
    """A batch: the last graph holds the padding."""
    graph_of = np.sort(rng.integers(0, N_GRAPHS - 1, N_NODES - 2))
    graph_of = np.append(graph_of, [N_GRAPHS - 1] * 2)
    edges = rng.integers(0, N_NODES - 2, (N_EDGES - 3, 2))
    edges = np.concatenate([edges, np.full((3, 2), N_NODES - 1)])
    features = rng.normal(size=(N_NODES, N_FEATURES)).astype(np.float32)
    target = np.array([features[graph_of == i].sum() for i in range(N_GRAPHS)], np.float32)
    return {
        "nodes": features,
        "edges": rng.random((N_EDGES, 1)).astype(np.float32),
        "senders": edges[:, 0].astype(np.int32),
        "receivers": edges[:, 1].astype(np.int32),
        "graph_of": graph_of.astype(np.int32),
    }, target[:, None]


def generator():
    rng = np.random.default_rng(4)
    for _ in range(STEPS):
        yield graphs(rng)


def data_set():
    signature = (
        {
            "nodes": tf.TensorSpec((N_NODES, N_FEATURES), tf.float32),
            "edges": tf.TensorSpec((N_EDGES, 1), tf.float32),
            "senders": tf.TensorSpec((N_EDGES,), tf.int32),
            "receivers": tf.TensorSpec((N_EDGES,), tf.int32),
            "graph_of": tf.TensorSpec((N_NODES,), tf.int32),
        },
        tf.TensorSpec((N_GRAPHS, 1), tf.float32),
    )
    return tf.data.Dataset.from_generator(generator, output_signature=signature).repeat()


class MessagePassing(keras.layers.Layer):
    """Messages along edges, summed at their receivers."""

    def __init__(self, units, **kwargs):
        super().__init__(**kwargs)
        self.message = keras.layers.Dense(units, activation="relu")
        self.update = keras.layers.Dense(units)
        self.norm = keras.layers.LayerNormalization()

    def call(self, nodes, edges, senders, receivers):
        sent = tf.gather(nodes, senders)
        received = tf.gather(nodes, receivers)
        messages = self.message(tf.concat([sent, received, edges], axis=-1))
        summed = tf.math.unsorted_segment_sum(messages, receivers, num_segments=N_NODES)
        return self.norm(tf.nn.relu(self.update(tf.concat([nodes, summed], axis=1))))


class GraphNetwork(keras.Model):
    def __init__(self, n_layers):
        super().__init__()
        self.encoder = keras.layers.Dense(HIDDEN)
        self.passing = [MessagePassing(HIDDEN) for _ in range(n_layers)]
        self.head = keras.layers.Dense(1)

    def call(self, inputs, training=False):
        nodes = self.encoder(inputs["nodes"])
        for layer in self.passing:
            nodes = nodes + layer(nodes, inputs["edges"], inputs["senders"], inputs["receivers"])
        pooled = tf.math.unsorted_segment_mean(nodes, inputs["graph_of"], N_GRAPHS)
        return self.head(pooled)

    def masked_loss(self, x, y, training):
        """The error of all graphs but the padding."""
        weights = tf.constant([[1.0]] * (N_GRAPHS - 1) + [[0.0]])
        error = tf.math.squared_difference(self(x, training=training), y)
        return tf.reduce_sum(error * weights) / tf.reduce_sum(weights)

    def train_step(self, data):
        x, y = data
        with tf.GradientTape() as tape:
            loss = self.masked_loss(x, y, training=True)
        gradients = tape.gradient(loss, self.trainable_variables)
        self.optimizer.apply_gradients(zip(gradients, self.trainable_variables))
        return {"loss": loss}


def make_model():
    keras.utils.set_random_seed(7)
    model = GraphNetwork(2)
    model(next(iter(data_set()))[0])
    return model


def main():
    config = ipu.config.IPUConfig()
    config.auto_select_ipus = 1
    config.ipu_model.tiles_per_ipu = 4
    config.configure_ipu_system()
    with ipu.ipu_strategy.IPUStrategy().scope():
        model = make_model()
        model.compile(keras.optimizers.Adam(0.01, global_clipnorm=1.0), steps_per_execution=STEPS)
        history = model.fit(data_set(), steps_per_epoch=STEPS, epochs=2, verbose=0)

    reference, optimizer, batches = make_model(), keras.optimizers.Adam(0.01), iter(data_set())
    variables = reference.trainable_variables
    for _ in range(2 * STEPS):
        x, y = next(batches)
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((reference(x) - y)[:-1] ** 2)
        gradients = tape.gradient(loss, variables)
        norm = np.sqrt(sum(float(tf.reduce_sum(g**2)) for g in gradients))
        gradients = [g / max(norm, 1.0) for g in gradients]
        optimizer.apply_gradients(zip(gradients, variables))
    for own, other in zip(model.get_weights(), reference.get_weights()):
        np.testing.assert_allclose(own, other, atol=1e-4)
    assert history.history["loss"][1] < history.history["loss"][0]


if __name__ == "__main__":
    main()
