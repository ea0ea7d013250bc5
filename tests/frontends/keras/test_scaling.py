"""Halves and the scale of the loss: mixed precision trains, scales follow the gradients."""

import numpy as np
import pytest
import torch

import tremula
from tremula.frontends.keras.config import reset_ipu_configuration
from tremula.frontends.keras.scaling import ALSOptimizer, GrowingScale, HistogramScale
from tremula.keras import KerasError, ipu

import keras  # isort: skip - after tremula.keras, which chooses its backend
from keras import layers, optimizers  # isort: skip

RNG = np.random.default_rng(6)
ROWS = RNG.random((16, 4), dtype=np.float32)
TARGETS = ROWS @ RNG.random((4, 2), dtype=np.float32)


def halves(optimizer, **compiled):
    keras.utils.set_random_seed(3)
    model = keras.Sequential(
        [
            keras.Input((4,)),
            layers.Dense(6, activation="relu", dtype="mixed_float16"),
            layers.Dense(2, dtype="mixed_float16"),
            layers.Activation("linear", dtype="float32"),
        ]
    )
    model.compile(optimizer, "mse", **compiled)
    return model


def fitted(model, epochs=1):
    history = model.fit(ROWS, TARGETS, batch_size=4, epochs=epochs, shuffle=False, verbose=0)
    return history.history["loss"]


@pytest.mark.slow
def test_mixed_precision_trains_as_in_keras():
    """Four steps of halves with Keras's scaling: losses, weights, scale and counter."""
    result = []
    for place in (None, ipu.ipu_strategy.IPUStrategy().scope()):
        if place is not None:
            place.__enter__()
        scaled = optimizers.LossScaleOptimizer(
            optimizers.SGD(0.1), initial_scale=512.0, dynamic_growth_steps=3
        )
        model = halves(scaled)
        loss = fitted(model)
        result.append(
            (
                loss,
                model.get_weights(),
                float(scaled.dynamic_scale.numpy()),
                int(scaled.step_counter.numpy()),
            )
        )
        if place is not None:
            place.__exit__(None, None, None)
    theirs, ours = result
    assert ours[2:] == theirs[2:] == (1024.0, 1)
    np.testing.assert_allclose(ours[0], theirs[0], rtol=1e-3)
    for own, other in zip(ours[1], theirs[1], strict=True):
        np.testing.assert_allclose(own, other, atol=2e-3)


@pytest.mark.slow
@pytest.mark.parametrize("tiles", ["lazy", "run"])
def test_als_finds_a_scale(tiles):
    """From 1 the scale grows, up to where gradients would be large."""
    config = ipu.config.IPUConfig()
    config.ipu_model.tiles_per_ipu = 4
    config.configure_ipu_system()
    with ipu.ipu_strategy.IPUStrategy().scope(), tremula.configured(tiles=tiles):
        scaled = ALSOptimizer(optimizers.SGD(0.1), update_frequency=2, increase_factor=4.0)
        model = halves(scaled, steps_per_execution=4)
        losses = fitted(model, epochs=2)
    reset_ipu_configuration()
    assert losses[-1] < losses[0]
    assert scaled.loss_scaling_factor == 4.0**4
    assert float(scaled.counters[0].numpy()) == 0


def test_scales_follow_gradients():
    """Keras's halves after an overflow; ALS by the share of large elements, when it is due."""
    small, infinite = [torch.ones(4)], [torch.tensor([1.0, torch.inf])]
    count = torch.tensor(1, dtype=torch.int32)
    keras_scale = GrowingScale(2)
    scale, counters = keras_scale.after(small, 8.0, [count])
    assert (float(scale), int(counters[0])) == (16.0, 0)
    scale, counters = keras_scale.after(infinite, 8.0, [count])
    assert (float(scale), int(counters[0])) == (4.0, 0)
    als = HistogramScale(2, 2.0, 64.0, 0.4, 5.0, True)
    state = [torch.zeros(()) for _ in range(3)]
    scale, state = als.after([torch.tensor([1.0, 9.0])], 8.0, state)
    assert (float(scale), [float(s) for s in state]) == (8.0, [1.0, 1.0, 2.0])
    scale, state = als.after([torch.tensor([1.0, torch.nan])], 8.0, state)
    assert (float(scale), float(state[0])) == (4.0, 0.0)
    last = HistogramScale(1, 2.0, 8.0, 0.4, 5.0, False)
    assert float(last.after(small, 8.0, state)[0]) == 8.0


def test_settings_of_als_are_checked():
    """A scale above the largest, a frequency below one: an error at the line."""
    with pytest.raises(KerasError, match=r"not between 1 and[\s\S]*test_scaling\.py"):
        ALSOptimizer(optimizers.SGD(), initial_loss_scaling_factor=1e6)
    with pytest.raises(KerasError, match="update_frequency of at least 1"):
        ALSOptimizer(optimizers.SGD(), update_frequency=0)
