"""Models with steps written by hand, and layers, losses and metrics that enqueue results."""

import numpy as np
import pytest

from tremula.frontends.keras.config import reset_ipu_configuration
from tremula.frontends.keras.loops.queues import IPUOutfeedQueue
from tremula.keras import KerasError, ipu

import keras  # isort: skip - after tremula.keras, which chooses its backend
from keras import layers, losses, metrics, ops, optimizers  # isort: skip

RNG = np.random.default_rng(6)
X = RNG.random((8, 3), dtype=np.float32)
Y = RNG.random((8, 1), dtype=np.float32)


@pytest.fixture(autouse=True)
def small_chip():
    """A chip of a few tiles."""
    config = ipu.config.IPUConfig()
    config.ipu_model.tiles_per_ipu = 4
    config.configure_ipu_system()
    yield
    reset_ipu_configuration()


class Autoencoder(keras.Model):
    """As a script for TensorFlow 2 writes it: a tape, trackers, a step of each kind."""

    def __init__(self):
        super().__init__()
        self.encoder, self.decoder = layers.Dense(2, activation="tanh"), layers.Dense(3)
        self.tracker = metrics.Mean(name="loss")

    @property
    def metrics(self):
        return [self.tracker]

    def call(self, x):
        return self.decoder(self.encoder(x))

    def loss_of(self, x):
        return ops.mean(ops.square(self(x) - x)) + 0.1 * ops.mean(ops.abs(self.encoder(x)))

    def train_step(self, data):
        with ipu.GradientTape() as tape:
            loss = self.loss_of(data)
        gradients = tape.gradient(loss, self.trainable_weights)
        self.optimizer.apply_gradients(zip(gradients, self.trainable_weights, strict=True))
        self.tracker.update_state(loss)
        return {"loss": self.tracker.result()}

    def test_step(self, data):
        """The step of `evaluate`."""
        data = data[0] if isinstance(data, tuple) else data
        return {"loss": self.loss_of(data), "largest": ops.max(self(data))}


def built(kind=Autoencoder):
    keras.utils.set_random_seed(3)
    model = kind()
    model(X[:2])
    model.compile(optimizers.SGD(0.5, momentum=0.9), steps_per_execution=2)
    return model


@pytest.mark.slow
def test_steps_written_by_hand():
    """Weights and logs of the same steps, computed by hand with a tape."""
    with ipu.ipu_strategy.IPUStrategy().scope():
        model = built()
        history = model.fit(X, batch_size=2, epochs=2, shuffle=False, verbose=0)
        result = model.evaluate(X, batch_size=4, verbose=0, return_dict=True)
    other = built()
    expected = []
    for _ in range(2):
        values = []
        for i in range(0, 8, 2):
            with ipu.GradientTape() as tape:
                loss = other.loss_of(ops.convert_to_tensor(X[i : i + 2]))
            gradients = tape.gradient(loss, other.trainable_weights)
            other.optimizer.apply_gradients(zip(gradients, other.trainable_weights, strict=True))
            values.append(float(loss.detach()))
        expected.append(np.mean(values))
    np.testing.assert_allclose(history.history["loss"], expected, rtol=1e-5)
    for own, reference in zip(model.get_weights(), other.get_weights(), strict=True):
        np.testing.assert_allclose(own, reference, atol=1e-5)
    last = ops.convert_to_tensor(X[4:])
    assert result["loss"] == pytest.approx(float(other.loss_of(last).detach()), rel=1e-4)
    assert result["largest"] == pytest.approx(float(ops.max(other(last)).detach()), rel=1e-4)


def test_steps_that_cannot_be_compiled():
    """By name: nothing updated, weights left out, another optimiser, gradients changed."""

    class Idle(Autoencoder):
        def train_step(self, data):
            return {"loss": self.loss_of(data)}

    class Part(Autoencoder):
        def train_step(self, data):
            with ipu.GradientTape() as tape:
                loss = self.loss_of(data)
            weights = self.decoder.trainable_weights
            self.optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights, strict=True))
            return {"loss": loss}

    class Changed(Autoencoder):
        def train_step(self, data):
            with ipu.GradientTape() as tape:
                loss = self.loss_of(data)
            weights = self.trainable_weights
            self.optimizer.apply([g.clip(0, 1) for g in tape.gradient(loss, weights)], weights)
            return {"loss": loss}

    for kind, message in (
        (Idle, "Idle.train_step updates no weights"),
        (Part, r"leaves '.*kernel' as it is, which is trainable"),
        (Changed, "used otherwise than by an optimiser"),
    ):
        with ipu.ipu_strategy.IPUStrategy().scope():
            model = built(kind)
            with pytest.raises(KerasError, match=message):
                model.fit(X, batch_size=2, verbose=0)


class Outfeed(layers.Layer):
    """Gives its input to a queue."""

    def __init__(self, queue, **kwargs):
        super().__init__(**kwargs)
        self.queue = queue

    def call(self, inputs):
        if not self.queue.enqueued:
            self.queue.enqueue({self.name: inputs})
        return inputs


@pytest.mark.slow
@pytest.mark.parametrize("n_chips", [1, 2])
def test_models_enqueue(n_chips):
    """Activations and losses of every step, of every replica; a queue that keeps the last."""
    config = ipu.config.IPUConfig()
    config.auto_select_ipus, config.ipu_model.tiles_per_ipu = n_chips, 4
    config.configure_ipu_system()
    activations, values = IPUOutfeedQueue(), IPUOutfeedQueue(ipu.IPUOutfeedMode.LAST)

    class Loss(losses.MeanSquaredError):
        def call(self, y_true, y_pred):
            result = super().call(y_true, y_pred)
            values.enqueue(ops.mean(result))
            return result

    with ipu.ipu_strategy.IPUStrategy().scope():
        keras.utils.set_random_seed(1)
        inputs = keras.Input((3,))
        x = Outfeed(activations, name="acts")(layers.Dense(2)(inputs))
        model = keras.Model(inputs, layers.Dense(1)(x))
        model.compile(optimizers.SGD(0.0), Loss(), steps_per_execution=2)
        assert not activations.enqueued
        model.fit(X, Y, batch_size=2, shuffle=False, verbose=0)
        data = activations.dequeue()["acts"]
    hidden = X @ model.get_weights()[0]
    shape = (4, 2, 2) if n_chips == 1 else (2, 2, 2, 2)
    np.testing.assert_allclose(data, hidden.reshape(shape), atol=1e-5)
    predicted = hidden @ model.get_weights()[2]
    expected = np.square(predicted - Y).reshape(4, 2).mean(1)
    last = values.dequeue()
    np.testing.assert_allclose(last, expected[-1] if n_chips == 1 else expected[-2:], rtol=1e-4)
    assert activations.enqueued


def test_a_queue_is_used_once_in_a_step():
    """Enqueuing twice is an error at the line."""
    queue = IPUOutfeedQueue()

    class Twice(Outfeed):
        def call(self, inputs):
            self.queue.enqueue(inputs)
            self.queue.enqueue(inputs)
            return inputs

    with ipu.ipu_strategy.IPUStrategy().scope():
        model = keras.Sequential([keras.Input((3,)), Twice(queue), layers.Dense(1)])
        model.compile("sgd", "mse")
        with pytest.raises(KerasError, match=r"once in each round[\s\S]*test_custom_steps"):
            model.fit(X, Y, batch_size=2, verbose=0)
