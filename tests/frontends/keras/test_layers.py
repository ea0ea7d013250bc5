"""Every layer of Keras computes here, and on tiles, what the table says it does."""

import contextlib

import numpy as np
import pytest

import tremula
from tests.sampling import one_in
from tremula.frontends.keras.config import reset_ipu_configuration
from tremula.frontends.keras.layer_table import layer_cases, layers_markdown, names_of_keras
from tremula.keras import ipu

import keras  # isort: skip - after tremula.keras, which chooses its backend

BATCH, N_STEPS, N_TILES = 2, 3, 4
RUNNING = [name for name, case in layer_cases().items() if not case.host]
ON_TILES = [name for name, case in layer_cases().items() if not case.tiles]
SAMPLE = [
    "Conv2D",
    "Embedding",
    "SimpleRNN",
    "BatchNormalization",
    "MultiHeadAttention",
    "Resizing",
]


@pytest.fixture(autouse=True)
def small_chip():
    """A chip of a few tiles: programs are the same, and compiled sooner."""
    config = ipu.config.IPUConfig()
    config.ipu_model.tiles_per_ipu = N_TILES
    config.configure_ipu_system()
    yield
    reset_ipu_configuration()


def values(case):
    """Inputs of some batches."""
    rng = np.random.default_rng(1)
    result = []
    for spec in case.inputs:
        shape = (BATCH * N_STEPS, *spec.shape)
        if spec.n_values:
            result.append(rng.integers(0, spec.n_values, shape).astype(np.int32))
        else:
            result.append((rng.random(shape) * spec.scale).astype(np.float32))
    return result


def run(case, place):
    """Predictions of a model with one layer and, if it can be trained, what three steps leave."""
    with place:
        keras.utils.set_random_seed(7)
        types = ["int32" if spec.n_values else "float32" for spec in case.inputs]
        inputs = [keras.Input(g.shape, dtype=t) for g, t in zip(case.inputs, types, strict=True)]
        model = keras.Model(inputs, case.applied(inputs))
        data = values(case)
        result = model.predict(data, batch_size=BATCH, verbose=0)
        if not case.trains or np.asarray(result).dtype.kind != "f":
            return result, [], []
        target = np.random.default_rng(2).random(np.shape(result)).astype(np.float32)
        model.compile("sgd", "mse")
        fitted = model.fit(data, target, batch_size=BATCH, shuffle=False, verbose=0)
        return result, fitted.history["loss"], model.get_weights()


def assert_like_keras(case, place, tolerance):
    """Predictions and three steps, except where both draw separate random numbers."""
    theirs = run(case, contextlib.nullcontext())
    ours = run(case, place)
    largest = np.abs(theirs[0]).max() + 1e-6
    np.testing.assert_allclose(ours[0] / largest, theirs[0] / largest, atol=tolerance)
    if case.is_random:
        return
    np.testing.assert_allclose(ours[1], theirs[1], rtol=tolerance)
    for result, expected in zip(ours[2], theirs[2], strict=True):
        np.testing.assert_allclose(result, expected, atol=tolerance)


def compiled(**choices):
    """A scope, with settings of this computer."""
    stack = contextlib.ExitStack()
    stack.enter_context(tremula.configured(**choices))
    stack.enter_context(ipu.ipu_strategy.IPUStrategy().scope())
    return stack


@pytest.mark.slow
@pytest.mark.parametrize("name", one_in(2, SAMPLE))
def test_a_sample_of_layers(name):
    """Predictions and three steps are eager Keras's, here and vertex by vertex."""
    case = layer_cases()[name]
    assert_like_keras(case, compiled(), 1e-6)
    assert_like_keras(case, compiled(tiles="run"), 2e-5)


@pytest.mark.wide
@pytest.mark.parametrize("name", RUNNING)
def test_layers_on_this_computer(name):
    """Predictions and three steps are eager Keras's."""
    assert_like_keras(layer_cases()[name], compiled(), 1e-6)


@pytest.mark.wide
@pytest.mark.parametrize("name", ON_TILES)
def test_layers_on_tiles(name):
    """So they are vertex by vertex."""
    assert_like_keras(layer_cases()[name], compiled(tiles="run"), 2e-5)


def test_the_table_has_every_layer(repository):
    """Each class of keras.layers is a row or another name of one, and the page is the table."""
    assert [name for name, row in names_of_keras().items() if not row] == []
    page = (repository / "docs" / "keras-layers.md").read_text(encoding="utf-8")
    assert page == layers_markdown()
