"""The add-ons' layers and optimisers: Keras's numbers, the add-ons' arguments, wrong ones."""

import numpy as np
import pytest

from ipu_tensorflow_addons.keras import layers as addons
from ipu_tensorflow_addons.keras import optimizers
from tremula.frontends.keras.config import reset_ipu_configuration
from tremula.keras import ipu

import keras  # isort: skip - after tremula.keras, which chooses its backend

RNG = np.random.default_rng(11)


def rows(*shape):
    return RNG.normal(size=shape).astype(np.float32)


def numbers(value):
    return keras.ops.convert_to_numpy(value)


@pytest.mark.parametrize("kind", ["LSTM", "GRU"])
def test_recurrent_layers(kind):
    """Keras's weights and results, time first if that is wanted."""
    x = rows(2, 5, 3)
    ours = getattr(addons, kind)(4, return_sequences=True, return_state=True, time_major=True)
    theirs = getattr(keras.layers, kind)(4, return_sequences=True, return_state=True)
    own = ours(x.swapaxes(0, 1))
    theirs(x)
    theirs.set_weights(ours.get_weights())
    expected = theirs(x)
    np.testing.assert_allclose(numbers(own[0]), numbers(expected[0]).swapaxes(0, 1), atol=1e-6)
    for a, b in zip(own[1:], expected[1:], strict=True):
        np.testing.assert_allclose(numbers(a), numbers(b), atol=1e-6)
    assert getattr(addons, f"Popnn{kind}") is getattr(addons, kind)
    assert type(ours).from_config(ours.get_config()).time_major
    with pytest.raises(ValueError, match=r"does not support recurrent_dropout; got 0\.5"):
        getattr(addons, kind)(4, recurrent_dropout=0.5)
    with pytest.raises(ValueError, match="has no activation 'gelu'"):
        getattr(addons, kind)(4, activation="gelu")


def test_embedding_and_dropout():
    """Rows of a table; masks only while training."""
    layer = addons.Embedding(6, 3, serialization_factor=2)
    index = np.array([[0, 5], [2, 2]])
    np.testing.assert_array_equal(numbers(layer(index)), layer.get_weights()[0][index])
    with pytest.raises(ValueError, match=r"rows of indices.*\(2,\)"):
        addons.Embedding(6, 3)(np.array([1, 2]))
    with pytest.raises(ValueError, match="does not divide input_dim"):
        addons.Embedding(7, 3, serialization_factor=2)
    with pytest.raises(ValueError, match="does not support mask_zero"):
        addons.Embedding(6, 3, mask_zero=True)
    dropout, x = addons.Dropout(0.5, seed=[1, 2]), np.ones((50, 4), np.float32)
    np.testing.assert_array_equal(numbers(dropout(x)), x)
    assert set(numbers(dropout(x, training=True)).reshape(-1).tolist()) == {0.0, 2.0}


@pytest.mark.parametrize("strided", [True, False])
@pytest.mark.parametrize("axis", [-1, 1])
def test_group_normalisation(strided, axis):
    """Groups of neighbouring channels, or of every n-th one, channels last or first."""
    x = rows(2, 3, 5, 4)
    layer = addons.GroupNormalization(2, axis, strided_channel_grouping=strided, epsilon=1e-4)
    own = numbers(layer(x if axis == -1 else x.transpose(0, 3, 1, 2)))
    own = own if axis == -1 else own.transpose(0, 2, 3, 1)
    for group in ([0, 2], [1, 3]) if strided else ([0, 1], [2, 3]):
        part = x[..., group]
        mean = part.mean((1, 2, 3), keepdims=True)
        expected = (part - mean) / np.sqrt(part.var((1, 2, 3), keepdims=True) + 1e-4)
        np.testing.assert_allclose(own[..., group], expected, atol=1e-4)
    with pytest.raises(ValueError, match="4 channels do not make 3 groups"):
        addons.GroupNormalization(3)(x)


def test_other_normalisations():
    """Of instances and of layers."""
    x = rows(2, 3, 5, 4)
    own = numbers(addons.InstanceNormalization()(x))
    expected = (x - x.mean((1, 2), keepdims=True)) / np.sqrt(x.var((1, 2), keepdims=True) + 1e-3)
    np.testing.assert_allclose(own, expected, atol=1e-4)
    own = numbers(addons.LayerNormalization(axis=[-2, -1])(x))
    expected = (x - x.mean((2, 3), keepdims=True)) / np.sqrt(x.var((2, 3), keepdims=True) + 1e-3)
    np.testing.assert_allclose(own, expected, atol=1e-4)


@pytest.mark.parametrize("dimension", ["input_columns", "input_rows_kernel_columns", "kernel_rows"])
def test_serial_dense(dimension):
    """The product of a dense layer, in parts along each dimension."""
    x = rows(4, 6)
    layer = addons.SerialDense(8, 2, dimension, activation="relu")
    own = numbers(layer(x))
    kernel, bias = layer.get_weights()
    np.testing.assert_allclose(own, np.maximum(x @ kernel + bias, 0), atol=1e-5)
    with pytest.raises(ValueError, match="does not divide"):
        addons.SerialDense(9, 5, dimension)(x)
    with pytest.raises(ValueError, match="serialization_dimension must be one of"):
        addons.SerialDense(8, 2, "columns")


def adam(w, grads, rate=0.1, b1=0.9, b2=0.999, eps=1e-7, debiasing=True):
    m = v = 0.0
    for t, g in enumerate(grads, start=1):
        m, v = b1 * m + (1 - b1) * g, b2 * v + (1 - b2) * g * g
        c1, c2 = (1 - b1**t, 1 - b2**t) if debiasing else (1.0, 1.0)
        w = w - rate * (m / c1) / (np.sqrt(v / c2) + eps)
    return w


def lamb(w, grads, rate=0.1, decay=0.01, b1=0.9, b2=0.999, eps=1e-6):
    m = v = 0.0
    for t, g in enumerate(grads, start=1):
        m, v = b1 * m + (1 - b1) * g, b2 * v + (1 - b2) * g * g
        update = (m / (1 - b1**t)) / (np.sqrt(v / (1 - b2**t)) + eps) + decay * w
        w = w - rate * np.linalg.norm(w) / np.linalg.norm(update) * update
    return w


def momentum(w, grads, rate=0.1):
    velocity = 0.0
    for g in grads:
        velocity = 0.9 * velocity - rate * g
        w = w + velocity
    return w


@pytest.mark.parametrize(
    ("make", "reference"),
    [
        (lambda: optimizers.AdamIpuOptimizer(0.1), adam),
        (
            lambda: optimizers.AdamIpuOptimizer(0.1, debiasing=False, m_dtype="float32"),
            lambda w, g: adam(w, g, debiasing=False),
        ),
        (lambda: optimizers.LAMBIpuOptimizer(0.1, weight_decay_rate=0.01), lamb),
        (lambda: optimizers.SGDIpuOptimizer(0.1, momentum=0.9), momentum),
    ],
)
def test_optimisers(make, reference):
    """Three updates, by formulas written again here."""
    start, grads = rows(3, 2), [rows(3, 2) for _ in range(3)]
    variable = keras.Variable(start)
    optimizer = make()
    assert isinstance(optimizer, optimizers.IpuOptimizerBase)
    for grad in grads:
        optimizer.apply([grad], [variable])
    np.testing.assert_allclose(numbers(variable), reference(start, grads), atol=1e-5)
    again = type(optimizer).from_config(optimizer.get_config())
    assert again.get_config() == optimizer.get_config()


def test_types_of_states():
    """Means of gradients in halves; LAMB takes two types for its arithmetic."""
    optimizer = optimizers.AdamIpuOptimizer(m_dtype="float16")
    optimizer.build([keras.Variable(rows(2))])
    kinds = {v.name: keras.backend.standardize_dtype(v.dtype) for v in optimizer.variables}
    assert [kind for name, kind in kinds.items() if name.endswith("_m")] == ["float16"]
    assert [kind for name, kind in kinds.items() if name.endswith("_v")] == ["float32"]
    with pytest.raises(ValueError, match="two optimizer_compute_precisions"):
        optimizers.LAMBIpuOptimizer(optimizer_compute_precisions=("float32",))


@pytest.mark.slow
def test_a_compiled_step_trains_with_them():
    """Add-ons in a model of a scope: the weights of Keras's own steps."""
    config = ipu.config.IPUConfig()
    config.ipu_model.tiles_per_ipu = 4
    config.configure_ipu_system()

    def model():
        keras.utils.set_random_seed(5)
        inputs = keras.Input((6,), dtype="int32")
        x = addons.Embedding(8, 4)(inputs)
        x = addons.LSTM(3)(addons.LayerNormalization()(x))
        result = keras.Model(inputs, addons.SerialDense(2, 2, "kernel_rows")(x))
        result.compile(optimizers.LAMBIpuOptimizer(0.05, weight_decay_rate=0.01), "mse")
        return result

    x, y = RNG.integers(0, 8, (8, 6)), rows(8, 2)
    with ipu.ipu_strategy.IPUStrategy().scope():
        own = model()
        own.fit(x, y, batch_size=4, shuffle=False, verbose=0)
    other = model()
    other.fit(x, y, batch_size=4, shuffle=False, verbose=0)
    reset_ipu_configuration()
    for a, b in zip(own.get_weights(), other.get_weights(), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-5)
