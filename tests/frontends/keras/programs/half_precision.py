"""An autoencoder in half precision: scaled losses, accumulation, stochastic rounding off."""

import numpy as np
import tensorflow as tf
from tensorflow import keras
from tensorflow.python import ipu

SIZE, BATCH, ACCUMULATED, SCALE = 16, 4, 4, 1024.0


def load():
    rng = np.random.default_rng(5)
    factors = rng.normal(size=(BATCH * ACCUMULATED * 2, 2)) @ rng.normal(size=(2, SIZE))
    images = (1 / (1 + np.exp(-factors))).astype(np.float32)
    data = tf.data.Dataset.from_tensor_slices(images)
    data = data.map(lambda x: (tf.cast(x, tf.float16), tf.cast(x, tf.float32)))
    return data.batch(BATCH, drop_remainder=True).repeat()


def make_model():
    keras.utils.set_random_seed(6)
    return keras.Sequential(
        [
            keras.Input((SIZE,)),
            keras.layers.Dense(8, activation="relu", name="encoder"),
            keras.layers.Dense(SIZE, name="decoder"),
            keras.layers.Activation("sigmoid", dtype="float32", name="pixels"),
        ]
    )


def main():
    config = ipu.config.IPUConfig()
    config.auto_select_ipus = 1
    config.floating_point_behaviour.inv = True
    config.floating_point_behaviour.esr = ipu.config.StochasticRoundingBehaviour.OFF
    config.ipu_model.tiles_per_ipu = 4
    config.configure_ipu_system()

    policy = keras.mixed_precision.Policy("mixed_float16")
    keras.mixed_precision.set_global_policy(policy)
    assert (policy.compute_dtype, policy.variable_dtype) == ("float16", "float32")
    try:
        with ipu.ipu_strategy.IPUStrategy().scope():
            model = make_model()
            assert model.get_layer("encoder").compute_dtype == "float16"
            optimizer = keras.mixed_precision.LossScaleOptimizer(
                keras.optimizers.SGD(0.5), dynamic=False, initial_scale=SCALE
            )
            model.compile(optimizer, "mse", steps_per_execution=2 * ACCUMULATED)
            model.set_gradient_accumulation_options(
                gradient_accumulation_steps_per_replica=ACCUMULATED,
                gradient_accumulation_reduction_method="mean",
            )
            history = model.fit(load(), steps_per_epoch=2 * ACCUMULATED, epochs=2, verbose=0)
    finally:
        keras.mixed_precision.set_global_policy("float32")

    assert all(weight.dtype == np.float32 for weight in model.get_weights())
    reference, optimizer, batches = make_model(), keras.optimizers.SGD(0.5), iter(load())
    for _ in range(4):
        pairs = [next(batches) for _ in range(ACCUMULATED)]
        with tf.GradientTape() as tape:
            losses = [
                tf.reduce_mean((reference(tf.cast(x, tf.float32)) - y) ** 2) for x, y in pairs
            ]
            loss = tf.add_n(losses) / ACCUMULATED
        gradients = tape.gradient(loss, reference.trainable_variables)
        optimizer.apply_gradients(zip(gradients, reference.trainable_variables))
    first = make_model().get_weights()
    for own, other, before in zip(model.get_weights(), reference.get_weights(), first):
        # Half precision follows the steps of single precision to about three digits.
        np.testing.assert_allclose(own - before, other - before, atol=2e-3)
        assert np.abs(other - before).max() > 5e-3
    assert history.history["loss"][1] < history.history["loss"][0]


if __name__ == "__main__":
    main()
