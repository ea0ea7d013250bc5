"""A convolutional network with normalisations, on images that the data set augments and mixes."""

import argparse

import numpy as np
import tensorflow as tf
from tensorflow.keras import callbacks, layers, regularizers
from tensorflow.keras.datasets import cifar10
from tensorflow.python import ipu

MEAN = tf.constant([0.49, 0.48, 0.45])
DEVIATION = tf.constant([0.25, 0.24, 0.26])


def standardise(image, label):
    image = tf.image.convert_image_dtype(image, tf.float32)
    return (image - MEAN) / DEVIATION, tf.one_hot(tf.squeeze(label), 10)


def augment(image, label):
    """Moves and flips an image by amounts that depend on its brightness only."""
    brightness = tf.reduce_mean(image)
    padded = tf.pad(image, [[1, 1], [1, 1], [0, 0]], mode="REFLECT")
    image = tf.image.crop_to_bounding_box(padded, 0, 1, image.shape[0], image.shape[1])
    return tf.cond(brightness > 0, lambda: tf.image.flip_left_right(image), lambda: image), label


def load(args):
    (x, y), (x_test, y_test) = cifar10.load_data()
    train = tf.data.Dataset.from_tensor_slices((x[:, ::4, ::4], y)).take(64).cache()
    train = train.shuffle(64, seed=11, reshuffle_each_iteration=False)
    train = train.map(standardise, num_parallel_calls=tf.data.AUTOTUNE)
    train = train.map(augment, num_parallel_calls=tf.data.AUTOTUNE)
    train = train.batch(args.batch, drop_remainder=True).repeat().prefetch(tf.data.AUTOTUNE)
    test = tf.data.Dataset.from_tensor_slices((x_test[:, ::4, ::4], y_test)).take(32)
    return train, test.map(standardise).batch(args.batch, drop_remainder=True)


def block(x, filters, stride):
    shortcut = x
    x = layers.Conv2D(
        filters,
        3,
        strides=stride,
        padding="same",
        use_bias=False,
        kernel_regularizer=regularizers.l2(1e-3),
    )(x)
    x = layers.BatchNormalization(momentum=0.8, epsilon=1e-3)(x)
    x = layers.ReLU()(x)
    if stride != 1 or shortcut.shape[-1] != filters:
        shortcut = layers.Conv2D(filters, 1, strides=stride, use_bias=False)(shortcut)
    return layers.Add()([x, shortcut])


def make_model():
    tf.random.set_seed(2)
    inputs = tf.keras.Input((8, 8, 3))
    x = block(inputs, 4, 1)
    x = block(x, 8, 2)
    x = layers.GlobalAveragePooling2D()(x)
    return tf.keras.Model(inputs, layers.Dense(10)(x), name="resnet")


def compiled(model, **options):
    model.compile(
        optimizer=tf.keras.optimizers.SGD(learning_rate=0.1, momentum=0.9, nesterov=True),
        loss=tf.keras.losses.CategoricalCrossentropy(from_logits=True, label_smoothing=0.1),
        metrics=[tf.keras.metrics.CategoricalAccuracy(name="accuracy")],
        **options,
    )
    return model


def rate_of(epoch, rate):
    return rate * 0.5 if epoch else rate


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--steps", type=int, default=4)
    args = parser.parse_args([])
    config = ipu.config.IPUConfig()
    config.auto_select_ipus = 1
    config.convolutions.poplar_options = {"partialsType": "float"}
    config.norms.use_stable_statistics = True
    config.ipu_model.tiles_per_ipu = 8
    config.configure_ipu_system()

    train, test = load(args)
    strategy = ipu.ipu_strategy.IPUStrategy()
    with strategy.scope():
        model = compiled(make_model(), steps_per_execution=args.steps)
        history = model.fit(
            train,
            epochs=args.epochs,
            steps_per_epoch=args.steps,
            validation_data=test,
            validation_steps=args.steps,
            callbacks=[callbacks.LearningRateScheduler(rate_of), callbacks.TerminateOnNaN()],
            verbose=0,
        )

    reference, batches = compiled(make_model()), iter(load(args)[0])
    for epoch in range(args.epochs):
        reference.optimizer.learning_rate = rate_of(
            epoch, float(reference.optimizer.learning_rate.numpy())
        )
        losses = [
            reference.train_on_batch(*next(batches), return_dict=True)["loss"]
            for _ in range(args.steps)
        ]
        np.testing.assert_allclose(history.history["loss"][epoch], np.mean(losses), atol=1e-4)
    for own, other in zip(model.get_weights(), reference.get_weights()):
        np.testing.assert_allclose(own, other, atol=1e-4)
    expected = reference.evaluate(test, steps=args.steps, verbose=0, return_dict=True)
    for name, value in expected.items():
        np.testing.assert_allclose(history.history[f"val_{name}"][-1], value, atol=1e-4)


if __name__ == "__main__":
    main()
