"""A small UNet: crops, transposed convolutions, a loss of two parts, checkpoints, predictions."""

import os
import tempfile
from functools import partial

import numpy as np
import tensorflow as tf
from tensorflow import keras
from tensorflow.keras.layers import Conv2D, Conv2DTranspose, Input, MaxPooling2D
from tensorflow.python import ipu

from ipu_tensorflow_addons.keras.layers import Dropout as IPUDropout

SIZE, CLASSES, ACCUMULATED = 16, 2, 4


def double_conv(x, filters, name):
    for i in range(2):
        options = {"activation": "relu", "kernel_initializer": "he_normal", "padding": "same"}
        x = Conv2D(filters, 3, name=f"{name}_conv_{i}", **options)(x)
    return x


def model_fn(rate=0.0):
    inputs = Input((SIZE, SIZE, 1))
    conv = double_conv(inputs, 4, "encoder_0")
    skipped = tf.image.central_crop(conv, 0.5)
    x = MaxPooling2D(pool_size=(2, 2), name="encoder_0_maxpooling")(conv)
    x = IPUDropout(rate, name="encoder_1_dropout")(double_conv(x, 8, "encoder_1"))
    x = tf.image.central_crop(x, 0.5)
    x = Conv2DTranspose(4, 2, strides=2, padding="same", activation=tf.nn.relu, name="up")(x)
    x = double_conv(tf.concat([x, skipped], axis=-1), 4, "decoder_0")
    return inputs, Conv2D(CLASSES, 1, activation=None, kernel_initializer="he_normal")(x)


def flat(y_true, y_pred):
    shape = [tf.shape(input=y_pred)[0], -1, y_pred.shape[-1]]
    return (tf.reshape(tf.cast(y, tf.float32), shape) for y in (y_true, y_pred))


def dice(y_true, y_pred, axis=1, eps=1e-6):
    intersection = tf.reduce_sum(input_tensor=y_pred * y_true, axis=axis)
    union = tf.reduce_sum(input_tensor=y_pred * y_pred + y_true * y_true, axis=axis)
    return tf.reduce_mean(input_tensor=(2.0 * intersection + eps) / (union + eps), axis=0)


def dice_accuracy(y_true, y_pred):
    y_true, y_pred = flat(y_true, y_pred)
    return tf.reduce_mean(dice(y_true, tf.keras.activations.softmax(y_pred, axis=-1)))


def ce_loss(y_true, y_pred):
    y_true, y_pred = flat(y_true, y_pred)
    losses = tf.nn.softmax_cross_entropy_with_logits(logits=y_pred, labels=y_true)
    return tf.reduce_mean(input_tensor=losses, name="cross_loss")


def dice_ce_loss(y_true, y_pred):
    return ce_loss(y_true, y_pred) + 1 - dice_accuracy(y_true, y_pred)


def preprocess(image, mask, dtype, augment=False):
    image = tf.expand_dims(tf.cast(image, dtype), -1)
    image = tf.image.resize(tf.divide(image, 127.5) - 1, (SIZE - 4, SIZE - 4))
    image = tf.image.resize_with_crop_or_pad(image, SIZE, SIZE)
    mask = tf.image.resize(tf.expand_dims(tf.cast(mask, tf.float32), -1) / 255, (SIZE, SIZE))
    mask = tf.image.resize_with_crop_or_pad(mask, target_height=SIZE // 2, target_width=SIZE // 2)
    below = tf.less(mask, 0.5 * tf.ones(tf.shape(input=mask)))
    mask = tf.where(below, tf.zeros(tf.shape(input=mask)), tf.ones(tf.shape(input=mask)))
    if augment:
        is_flipped = tf.random.uniform([]) > 0.5
        image, mask = (
            tf.cond(is_flipped, lambda t=t: tf.image.flip_left_right(t), lambda t=t: t)
            for t in (image, mask)
        )
        image = tf.clip_by_value(tf.image.random_brightness(image, max_delta=0.2), -1, 1)
    labels = tf.one_hot(tf.squeeze(tf.cast(mask, tf.int32)), CLASSES)
    return tf.cast(image, dtype), tf.cast(labels, dtype)


def load_data(augment=False):
    rng = np.random.default_rng(2)
    images = rng.integers(0, 256, (8, 20, 20)).astype(np.uint8)
    masks = (rng.random((8, 20, 20)) > 0.5).astype(np.uint8) * 255
    data = tf.data.Dataset.from_tensor_slices((images, masks)).repeat()
    data = data.map(partial(preprocess, dtype="float32", augment=augment), num_parallel_calls=4)
    return data.batch(2, drop_remainder=True).prefetch(4)


def optimizer():
    def gradient_normalizer(grads_and_vars):
        return [(grad / ACCUMULATED, var) for grad, var in grads_and_vars]

    rate = tf.keras.optimizers.schedules.ExponentialDecay(0.05, decay_steps=2, decay_rate=0.9)
    inner = keras.optimizers.SGD(rate, momentum=0.9, gradient_transformers=[gradient_normalizer])
    return tf.keras.mixed_precision.LossScaleOptimizer(inner, False, 128.0)


def configure():
    config = ipu.config.IPUConfig()
    config.compilation_poplar_options = {}
    config.allow_recompute = True
    options = {"partialsType": "float", "availableMemoryProportion": "0.3"}
    config.matmuls.poplar_options = config.convolutions.poplar_options = options
    config.ipu_model.tiles_per_ipu = 16
    config.auto_select_ipus = 1
    config.configure_ipu_system()


def main():
    tf.keras.backend.clear_session()
    tf.random.set_seed(5)
    ipu.utils.reset_ipu_seed(5)
    configure()
    folder = tempfile.mkdtemp()
    checkpoint = keras.callbacks.ModelCheckpoint(
        filepath=os.path.join(folder, "checkpoints"),
        monitor="dice_accuracy",
        mode="max",
        save_weights_only=True,
    )
    with ipu.ipu_strategy.IPUStrategy().scope():
        model = keras.Model(*model_fn())
        first = model.get_weights()
        model.set_gradient_accumulation_options(
            gradient_accumulation_steps_per_replica=ACCUMULATED,
            offload_weight_update_variables=False,
        )
        model.compile(
            optimizer=optimizer(),
            loss=dice_ce_loss,
            steps_per_execution=ACCUMULATED,
            metrics=[dice_accuracy, ce_loss],
        )
        history = model.fit(
            load_data(), steps_per_epoch=ACCUMULATED, epochs=2, callbacks=[checkpoint], verbose=0
        )
        trained = model.get_weights()
        model.set_weights(first)
        model.load_weights(os.path.join(folder, "checkpoints")).expect_partial()
        predictions = model.predict(load_data().map(lambda x, _: x), steps=4, verbose=0)
        for batch in load_data(augment=True).take(2):
            assert tuple(batch[0].shape) == (2, SIZE, SIZE, 1)
    with tf.distribute.OneDeviceStrategy(device="/cpu:0").scope():
        check(first, trained, predictions, history)


def check(first, trained, predictions, history):
    """Two updates by the means of four gradients, and predictions, of a plain model."""
    reference = keras.Model(*model_fn())
    reference.set_weights(first)
    plain = keras.optimizers.SGD(
        tf.keras.optimizers.schedules.ExponentialDecay(0.05, 2, 0.9), momentum=0.9
    )
    batches = iter(load_data())
    for _ in range(2):
        with tf.GradientTape() as tape:
            pairs = [next(batches) for _ in range(ACCUMULATED)]
            loss = tf.add_n([dice_ce_loss(y, reference(x)) for x, y in pairs]) / ACCUMULATED
        gradients = tape.gradient(loss, reference.trainable_variables)
        plain.apply_gradients(zip(gradients, reference.trainable_variables))
    for own, other in zip(trained, reference.get_weights()):
        np.testing.assert_allclose(own, other, atol=2e-5)
    (x, _) = next(iter(load_data()))
    np.testing.assert_allclose(
        predictions[:2], tf.convert_to_tensor(reference(x)).detach(), atol=1e-4
    )
    assert {"loss", "dice_accuracy", "ce_loss"} <= set(history.history)


if __name__ == "__main__":
    main()
