"""Loops that scripts write themselves: compiled, with batches and results in queues."""

import numpy as np
import pytest

import tremula
from tremula.frontends.keras.config import reset_ipu_configuration
from tremula.frontends.keras.loops.queues import IPUInfeedQueue, IPUOutfeedQueue
from tremula.frontends.keras.loops.tape import GradientTape, loop_range
from tremula.frontends.keras.tensorflow.dataset import Dataset
from tremula.keras import KerasError, ipu

import keras  # isort: skip - after tremula.keras, which chooses its backend
from keras import layers, losses, optimizers  # isort: skip

RNG = np.random.default_rng(8)
ROWS = RNG.random((8, 3), dtype=np.float32)
TARGETS = RNG.random((8, 1), dtype=np.float32)


@pytest.fixture(autouse=True)
def small_chip():
    """A chip of a few tiles."""
    config = ipu.config.IPUConfig()
    config.ipu_model.tiles_per_ipu = 4
    config.configure_ipu_system()
    yield
    reset_ipu_configuration()


def model_of_one_layer():
    keras.utils.set_random_seed(2)
    return keras.Sequential([keras.Input((3,)), layers.Dense(1)])


def of_keras(model, x):
    return keras.ops.convert_to_numpy(model(x))


def training_loop(iterator, outfeed, model, optimizer, n_steps):
    """As in Graphcore's tutorials: a tape, an update, a loss for the outfeed."""
    for _ in loop_range(n_steps):
        x, y = next(iterator)
        with GradientTape() as tape:
            loss = losses.MeanSquaredError()(y, model(x, training=True))
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        outfeed.enqueue(loss)


def batches():
    return Dataset.from_tensor_slices((ROWS, TARGETS)).repeat().batch(2, drop_remainder=True)


@pytest.mark.slow
@pytest.mark.parametrize("tiles", ["lazy", "run"])
def test_a_loop_trains_as_fit_does(tiles):
    """Four rounds in one program: the weights of four steps of fit, a loss of each in the queue."""
    theirs = model_of_one_layer()
    theirs.compile(optimizers.SGD(0.1, momentum=0.9), "mse")
    theirs.fit(ROWS, TARGETS, batch_size=2, shuffle=False, verbose=0)
    strategy, outfeed = ipu.ipu_strategy.IPUStrategy(), IPUOutfeedQueue()
    with strategy.scope(), tremula.configured(tiles=tiles):
        model, optimizer = model_of_one_layer(), optimizers.SGD(0.1, momentum=0.9)
        args = [iter(batches()), outfeed, model, optimizer, 4]
        strategy.run(training_loop, args=args)
        result = outfeed.dequeue()
    assert result.shape == (4,)
    assert float(result[0]) > 0
    for own, other in zip(model.get_weights(), theirs.get_weights(), strict=True):
        np.testing.assert_allclose(own, other, atol=1e-5)


@pytest.mark.slow
def test_names_of_the_module_and_arguments_that_are_arrays():
    """A function may read a model around it and take arrays; what it returns comes back."""
    model = model_of_one_layer()
    queue = IPUInfeedQueue(batches(), prefetch_depth=2)
    outfeed = IPUOutfeedQueue(ipu.IPUOutfeedMode.LAST)

    def doubled(factor):
        return model(ROWS_OF_MODULE) * factor

    def predicting():
        for _ in loop_range(3):
            x, _ = next(queue)
            outfeed.enqueue((model(x), x))

    strategy = ipu.ipu_strategy.IPUStrategy()
    with strategy.scope():
        result = strategy.run(doubled, args=[np.float32([2.0])])
        strategy.run(predicting)
    np.testing.assert_allclose(result, 2 * of_keras(model, ROWS_OF_MODULE), rtol=1e-5)
    predicted, x = outfeed.dequeue()
    np.testing.assert_array_equal(x, ROWS[4:6])
    np.testing.assert_allclose(predicted, of_keras(model, ROWS[4:6]), rtol=1e-5)


ROWS_OF_MODULE = ROWS[:2]


def test_what_a_loop_cannot_do_is_refused():
    """By name, at the line: gradients used otherwise, two loops, data sets that end, no results."""
    model, optimizer = model_of_one_layer(), optimizers.SGD(0.1)
    strategy, queue = ipu.ipu_strategy.IPUStrategy(), IPUInfeedQueue(batches())

    def clipped():
        for _ in loop_range(2):
            x, y = next(queue)
            with GradientTape() as tape:
                loss = losses.MeanSquaredError()(y, model(x))
            (first, *_) = tape.gradient(loss, model.trainable_variables)
            optimizer.apply([first.clip(0, 1)], model.trainable_variables[:1])

    def nested():
        for _ in loop_range(2):
            for _ in loop_range(2):
                next(queue)

    with pytest.raises(KerasError, match=r"used otherwise than by an optimiser[\s\S]*test_loops"):
        strategy.run(clipped)
    with pytest.raises(KerasError, match="one loop over"):
        strategy.run(nested)
    with pytest.raises(KerasError, match="end of its data set after 4 batches"):
        IPUInfeedQueue(batches().take(4)).take(5)
    with pytest.raises(KerasError, match=r"queue is empty[\s\S]*test_loops"):
        IPUOutfeedQueue().dequeue()
    with pytest.raises(KerasError, match="outfeed_mode must be"):
        IPUOutfeedQueue("all")
