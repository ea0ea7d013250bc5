"""Keras models compiled as steps compute what Keras computes, and reject what cannot be static."""

import contextlib

import numpy as np
import pytest

import tremula
from tremula.frontends.keras.config import reset_ipu_configuration
from tremula.keras import KerasError, ipu

import keras  # isort: skip - after tremula.keras, which chooses its backend
from keras import layers, optimizers  # isort: skip

RNG = np.random.default_rng(0)
IMAGES = RNG.random((12, 8, 8, 3), dtype=np.float32)
CLASSES = RNG.integers(0, 4, 12)
OPTIMISERS = {
    "adamw": lambda: optimizers.AdamW(0.01, weight_decay=0.1, clipnorm=1.0),
    "schedule": lambda: optimizers.RMSprop(optimizers.schedules.CosineDecay(0.01, 5)),
}


@pytest.fixture(autouse=True)
def plain_system():
    """Every test begins with one chip."""
    reset_ipu_configuration()
    yield
    reset_ipu_configuration()


def cnn(optimizer="sgd", *, dropout=0.0, **compiled):
    """The shape of the slides' model, small."""
    keras.utils.set_random_seed(1)
    model = keras.Sequential(
        [
            keras.Input((8, 8, 3)),
            layers.BatchNormalization(),
            layers.Conv2D(4, (3, 3), padding="same"),
            layers.Activation("relu"),
            layers.MaxPooling2D((2, 2)),
            layers.Dropout(dropout),
            layers.Flatten(),
            layers.Dense(4, activation="softmax", kernel_regularizer="l2"),
        ]
    )
    model.compile(
        loss="sparse_categorical_crossentropy",
        optimizer=optimizer,
        metrics=["accuracy"],
        **compiled,
    )
    return model


def scope(n_ipus=1):
    """A scope on a machine of some chips."""
    config = ipu.config.IPUConfig()
    config.auto_select_ipus = n_ipus
    config.configure_ipu_system()
    return ipu.ipu_strategy.IPUStrategy().scope()


def fitted(place, optimizer, **compiled):
    """A model after three steps: its history, weights and what it predicts."""
    with place:
        model = cnn(optimizer, **compiled)
        history = model.fit(IMAGES, CLASSES, batch_size=4, epochs=1, shuffle=False, verbose=0)
        tested = model.evaluate(IMAGES, CLASSES, batch_size=4, verbose=0)
        result = model.predict(IMAGES, batch_size=4, verbose=0)
    return history.history, model.get_weights(), tested, result


def assert_same(ours, theirs, tolerance=2e-5):
    """Histories, weights, metrics and predictions agree."""
    assert ours[0].keys() == theirs[0].keys()
    for name, values in theirs[0].items():
        np.testing.assert_allclose(ours[0][name], values, rtol=tolerance)
    for own, other in zip(ours[1], theirs[1], strict=True):
        np.testing.assert_allclose(own, other, atol=tolerance)
    np.testing.assert_allclose(ours[2], theirs[2], rtol=tolerance)
    np.testing.assert_allclose(ours[3], theirs[3], atol=tolerance)


@pytest.mark.slow
@pytest.mark.parametrize("name", OPTIMISERS)
def test_three_steps_are_those_of_keras(name):
    """fit, evaluate and predict of a compiled model give what eager Keras gives."""
    make = OPTIMISERS[name]
    theirs = fitted(contextlib.nullcontext(), make())
    assert_same(fitted(scope(), make()), theirs)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("loss", "make"),
    [
        ("mse", lambda: optimizers.Nadam(0.01)),
        ("hinge", lambda: optimizers.SGD(0.1, gradient_accumulation_steps=2)),
        ("mse", lambda: optimizers.LossScaleOptimizer(optimizers.SGD(0.1), initial_scale=4e38 / 2)),
        ("mae", lambda: optimizers.Lion(0.01, use_ema=True, ema_overwrite_frequency=2)),
    ],
)
def test_branches_of_losses_and_optimisers_are_chosen_by_value(loss, make):
    """What Keras decides by a value, in a loss or an update, the step decides, too."""
    result = []
    for place in (contextlib.nullcontext(), scope()):
        with place:
            model = linear()
            model.compile(loss=loss, optimizer=make())
            model.fit(ROWS, np.round(TARGETS), batch_size=2, shuffle=False, verbose=0)
        states = [v.numpy() for v in model.optimizer.variables if v.name != "step_counter"]
        result.append([*model.get_weights(), *states])
    for theirs, ours in zip(*result, strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-6, rtol=5e-3)


@pytest.mark.slow
def test_an_execution_of_several_steps_is_those_steps():
    """steps_per_execution changes how often callbacks are called, not the numbers."""
    theirs = fitted(contextlib.nullcontext(), "sgd")
    calls = []
    counter = keras.callbacks.LambdaCallback(on_train_batch_end=lambda n, logs: calls.append(n))
    assert_same(fitted(scope(), "sgd", steps_per_execution=3), theirs)
    with scope():
        model = cnn(steps_per_execution=3)
        model.fit(IMAGES, CLASSES, batch_size=2, verbose=0, callbacks=[counter])
        assert calls == [2, 5]
        model.set_asynchronous_callbacks(True)
        model.fit(IMAGES, CLASSES, batch_size=2, verbose=0, callbacks=[counter])
    assert calls == [2, 5, 0, 1, 2, 3, 4, 5]


@pytest.mark.slow
def test_what_a_script_assigns_is_there_in_the_next_step():
    """Weights and the learning rate may be set between calls; the device sees them."""
    with scope():
        model = cnn()
        model.fit(IMAGES, CLASSES, batch_size=4, verbose=0)
        model.optimizer.learning_rate = 0.0
        model.layers[-1].kernel.assign(keras.ops.zeros_like(model.layers[-1].kernel))
        before = model.get_weights()[0]
        model.fit(IMAGES, CLASSES, batch_size=4, verbose=0)
        assert np.array_equal(before, model.get_weights()[0])
        assert not model.layers[-1].kernel.numpy().any()


def linear(**compiled):
    """A model whose gradients are simple sums."""
    keras.utils.set_random_seed(2)
    model = keras.Sequential([keras.Input((3,)), layers.Dense(1)])
    model.compile(loss="mse", optimizer=optimizers.SGD(0.1), metrics=["mae"], **compiled)
    return model


ROWS, TARGETS = IMAGES[:8, 0, 0], RNG.random((8, 1), dtype=np.float32)


@pytest.mark.slow
def test_accumulation_and_replicas_make_one_batch_of_many():
    """Two batches accumulated on two replicas train as one batch of four times the samples."""
    whole = linear()
    logs = whole.fit(ROWS, TARGETS, batch_size=8, shuffle=False, verbose=0).history
    with scope(n_ipus=2):
        model = linear(steps_per_execution=2)
        model.set_gradient_accumulation_options(2, "mean")
        own = model.fit(ROWS, TARGETS, batch_size=2, shuffle=False, verbose=0).history
    for ours, theirs in zip(model.get_weights(), whole.get_weights(), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5)
    np.testing.assert_allclose(own["mae"], logs["mae"], rtol=1e-5)


@pytest.mark.slow
def test_on_tiles_the_numbers_are_the_same():
    """A model trained vertex by vertex has the weights of the host's, and a report."""
    theirs = linear()
    theirs.fit(ROWS, TARGETS, batch_size=4, shuffle=False, verbose=0)
    with scope(), tremula.configured(tiles="run"):
        model = linear()
        model.fit(ROWS, TARGETS, batch_size=4, shuffle=False, verbose=0)
        assert model.ipu_report().total_cycles > 0
    for own, other in zip(model.get_weights(), theirs.get_weights(), strict=True):
        np.testing.assert_allclose(own, other, atol=1e-5)


@pytest.mark.slow
def test_an_execution_ends_with_its_epoch():
    """More steps in an execution than an epoch, or a prediction, has: all of them run as one."""
    with scope():
        model, other = linear(steps_per_execution=64), linear(steps_per_execution=4)
        model.fit(ROWS, TARGETS, batch_size=2, shuffle=False, epochs=2, verbose=0)
        other.fit(ROWS, TARGETS, batch_size=2, shuffle=False, epochs=2, verbose=0)
        predicted = model.predict(ROWS[:2], batch_size=2, verbose=0)
    for own, expected in zip(model.get_weights(), other.get_weights(), strict=True):
        np.testing.assert_allclose(own, expected, atol=1e-6)
    assert predicted.shape == (2, 1)


def test_what_is_not_static_is_refused():
    """Short batches, executions that do not divide an epoch, steps that update nothing: by name."""
    with scope():
        model = linear(steps_per_execution=3)
        with pytest.raises(KerasError, match=r"last batch has 2 samples[\s\S]*test_fit\.py"):
            model.fit(ROWS, TARGETS, batch_size=3, verbose=0)
        with pytest.raises(KerasError, match=r"4 steps[\s\S]*multiple of the 3[\s\S]*test_fit\.py"):
            model.fit(ROWS, TARGETS, batch_size=2, verbose=0)
        with pytest.raises(KerasError, match=r"no gradient_accumulation_reduction_method 'men'"):
            model.set_gradient_accumulation_options(2, "men")
        with pytest.raises(KerasError, match="has not run yet"):
            model.ipu_report()

        class Own(keras.Sequential):
            def train_step(self, data):
                return {}

        own = Own([keras.Input((3,)), layers.Dense(1)])
        own.compile(loss="mse", optimizer="sgd")
        with pytest.raises(KerasError, match=r"Own\.train_step updates no weights"):
            own.train_on_batch(ROWS, TARGETS)
    plain = linear()
    with scope(), pytest.raises(KerasError, match="outside IPUStrategy"):
        plain.set_gradient_accumulation_options(2)


def test_keras_is_as_it_was_outside_a_scope():
    """A scope changes Keras's classes for its time and thread; its models keep their methods."""
    trainer = keras.src.backend.torch.trainer.TorchTrainer
    before = {name: vars(trainer)[name] for name in ("__init__", "fit", "make_train_function")}
    with scope():
        model = linear()
        assert all(vars(trainer)[name] is not plain for name, plain in before.items())
    assert {name: vars(trainer)[name] for name in before} == before
    assert not hasattr(keras.Model, "ipu_report")
    assert not hasattr(linear(), "ipu_report")
    model.fit(ROWS, TARGETS, batch_size=2, verbose=0)
    assert model.ipu_report().total_cycles > 0
