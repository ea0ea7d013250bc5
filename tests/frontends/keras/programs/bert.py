"""A small BERT of custom layers: masked words and next sentences, by the add-ons' optimisers."""

import numpy as np
import tensorflow as tf
from tensorflow.python import ipu

from ipu_tensorflow_addons.keras.layers import Dropout, Embedding, LayerNormalization
from ipu_tensorflow_addons.keras.optimizers import AdamIpuOptimizer, LAMBIpuOptimizer

VOCABULARY, LENGTH, HIDDEN, HEADS, N_LAYERS, BATCH, STEPS = 24, 8, 8, 2, 1, 4, 4


class BertEmbeddings(tf.keras.layers.Layer):
    """Words, their positions and their segments, normalised."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.words = Embedding(VOCABULARY, HIDDEN, name="words")
        self.norm = LayerNormalization(epsilon=1e-6, name="norm")
        self.dropout = Dropout(0.0)

    def build(self, input_shape):
        initializer = tf.keras.initializers.TruncatedNormal(stddev=0.02)
        self.positions = self.add_weight(
            name="positions", shape=(LENGTH, HIDDEN), initializer=initializer, trainable=True
        )
        self.segments = self.add_weight(name="segments", shape=(2, HIDDEN), initializer=initializer)
        super().build(input_shape)

    def call(self, inputs, training=None):
        words, segments = inputs
        x = self.words(words) + tf.gather(self.segments, segments)
        x = x + tf.expand_dims(self.positions, axis=0)
        return self.dropout(self.norm(x), training=training)


class BertAttention(tf.keras.layers.Layer):
    """Attention of several heads, with a mask that is added to the scores."""

    def __init__(self, hidden, heads, **kwargs):
        super().__init__(**kwargs)
        self.hidden, self.heads = hidden, heads
        self.query = tf.keras.layers.Dense(hidden, name="query")
        self.key = tf.keras.layers.Dense(hidden, name="key")
        self.value = tf.keras.layers.Dense(hidden, name="value")

    def split(self, x):
        x = tf.reshape(x, (-1, LENGTH, self.heads, self.hidden // self.heads))
        return tf.transpose(x, perm=[0, 2, 1, 3])

    def call(self, x, mask):
        query, key, value = (self.split(layer(x)) for layer in (self.query, self.key, self.value))
        scores = tf.matmul(query, key, transpose_b=True)
        scores = scores / tf.math.sqrt(tf.cast(self.hidden // self.heads, scores.dtype))
        weights = tf.nn.softmax(scores + mask, axis=-1)
        context = tf.transpose(tf.matmul(weights, value), perm=[0, 2, 1, 3])
        return tf.reshape(context, (-1, LENGTH, self.hidden))

    def get_config(self):
        return {**super().get_config(), "hidden": self.hidden, "heads": self.heads}


class BertLayer(tf.keras.layers.Layer):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.attention = BertAttention(HIDDEN, HEADS, name="attention")
        self.output_dense = tf.keras.layers.Dense(HIDDEN, name="output")
        self.attention_norm = LayerNormalization(name="attention_norm")
        self.intermediate = tf.keras.layers.Dense(2 * HIDDEN, activation=ipu.nn_ops.gelu)
        self.final = tf.keras.layers.Dense(HIDDEN)
        self.norm = LayerNormalization(name="norm")

    def call(self, x, mask):
        x = self.attention_norm(x + self.output_dense(self.attention(x, mask)))
        return self.norm(x + self.final(self.intermediate(x)))


def make_model():
    tf.random.set_seed(9)
    words = tf.keras.Input((LENGTH,), dtype=tf.int32, name="input_ids")
    mask = tf.keras.Input((LENGTH,), dtype=tf.int32, name="attention_mask")
    segments = tf.keras.Input((LENGTH,), dtype=tf.int32, name="token_type_ids")
    added = (1.0 - tf.cast(mask[:, tf.newaxis, tf.newaxis, :], tf.float32)) * -1000.0
    x = BertEmbeddings(name="embeddings")([words, segments])
    for i in range(N_LAYERS):
        x = BertLayer(name=f"layer_{i}")(x, added)
    first = tf.keras.layers.Dense(HIDDEN, activation="tanh", name="pooler")(x[:, 0])
    outputs = {
        "mlm": tf.keras.layers.Dense(VOCABULARY, name="mlm")(x),
        "nsp": tf.keras.layers.Dense(2, name="nsp")(first),
    }
    inputs = {"input_ids": words, "attention_mask": mask, "token_type_ids": segments}
    return tf.keras.Model(inputs, outputs)


def masked_loss(y_true, y_pred):
    """The mean over words that are masked; others have the label -100."""
    is_masked = tf.cast(tf.not_equal(y_true, -100), tf.float32)
    labels = tf.where(tf.equal(y_true, -100), tf.zeros_like(y_true), y_true)
    losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=y_pred)
    return tf.reduce_sum(losses * is_masked) / tf.maximum(tf.reduce_sum(is_masked), 1.0)


def nsp_loss(y_true, y_pred):
    losses = tf.keras.losses.sparse_categorical_crossentropy(y_true, y_pred, from_logits=True)
    return tf.reduce_mean(losses)


def load():
    rng = np.random.default_rng(6)
    words = rng.integers(1, VOCABULARY, (BATCH * STEPS, LENGTH)).astype(np.int32)
    lengths = rng.integers(4, LENGTH + 1, (len(words), 1))
    features = {
        "input_ids": words,
        "attention_mask": (np.arange(LENGTH) < lengths).astype(np.int32),
        "token_type_ids": (np.arange(LENGTH) >= lengths // 2).astype(np.int32),
    }
    is_masked = rng.random(words.shape) < 0.3
    labels = {
        "mlm": np.where(is_masked, words, -100).astype(np.int32),
        "nsp": rng.integers(0, 2, len(words)).astype(np.int32),
    }
    rows = tf.data.Dataset.from_tensor_slices((features, labels))
    return rows.batch(BATCH, drop_remainder=True).repeat()


class Warmup(tf.keras.optimizers.schedules.LearningRateSchedule):
    """Rises to a rate over some steps, then falls to zero."""

    def __init__(self, rate, warmup, total):
        super().__init__()
        self.rate, self.warmup, self.total = rate, warmup, total

    def __call__(self, step):
        step = tf.cast(step, tf.float32)
        rising = (step + 1.0) / self.warmup
        falling = (self.total - step) / (self.total - self.warmup)
        return self.rate * tf.minimum(rising, falling)


def trained(optimizer):
    with ipu.ipu_strategy.IPUStrategy().scope():
        model = make_model()
        model.compile(
            optimizer=optimizer,
            loss={"mlm": masked_loss, "nsp": nsp_loss},
            loss_weights={"mlm": 1.0, "nsp": 0.5},
            steps_per_execution=STEPS,
        )
        history = model.fit(load(), steps_per_epoch=STEPS, epochs=2, verbose=0)
    return model, history.history


def reference(update):
    """As many steps with NumPy's formula of an update, on Keras' gradients."""
    model, batches, states = make_model(), iter(load()), {}
    variables = model.trainable_variables
    for step in range(2 * STEPS):
        features, labels = next(batches)
        with tf.GradientTape() as tape:
            outputs = model(features)
            loss = masked_loss(labels["mlm"], outputs["mlm"])
            loss = loss + 0.5 * nsp_loss(labels["nsp"], outputs["nsp"])
        for i, (variable, gradient) in enumerate(zip(variables, tape.gradient(loss, variables))):
            state = states.setdefault(i, [0.0, 0.0])
            variable.assign(update(step, variable.numpy(), gradient.numpy(), state))
    return model


def moments(state, gradient, step, corrected):
    state[0] = 0.9 * state[0] + 0.1 * gradient
    state[1] = 0.999 * state[1] + 0.001 * gradient**2
    if not corrected:
        return state
    return state[0] / (1 - 0.9 ** (step + 1)), state[1] / (1 - 0.999 ** (step + 1))


def adam(step, value, gradient, state):
    mean, square = moments(state, gradient, step, corrected=True)
    rate = 0.01 * min((step + 1) / 2, (8 - step) / 6)
    return value - rate * mean / (np.sqrt(square) + 1e-6)


def lamb(step, value, gradient, state):
    mean, square = moments(state, gradient, step, corrected=True)
    update = mean / (np.sqrt(square) + 1e-6) + 0.01 * value
    norms = np.linalg.norm(value), np.linalg.norm(update)
    ratio = norms[0] / norms[1] if norms[0] > 0 and norms[1] > 0 else 1.0
    return value - 0.01 * ratio * update


def main():
    config = ipu.config.IPUConfig()
    config.auto_select_ipus = 1
    config.optimizations.enable_fast_math = False
    config.floating_point_behaviour.esr = ipu.config.StochasticRoundingBehaviour.OFF
    config.ipu_model.tiles_per_ipu = 8
    config.configure_ipu_system()
    optimisers = [
        (AdamIpuOptimizer(Warmup(0.01, 2, 8), epsilon=1e-6), adam),
        (LAMBIpuOptimizer(0.01, weight_decay_rate=0.01, epsilon=1e-6), lamb),
    ]
    for optimizer, update in optimisers:
        model, history = trained(optimizer)
        assert {"loss", "mlm_loss", "nsp_loss"} <= set(history)
        for own, other in zip(model.get_weights(), reference(update).get_weights()):
            np.testing.assert_allclose(own, other, atol=2e-4)


if __name__ == "__main__":
    main()
