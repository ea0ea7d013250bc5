"""A recommender of two towers with two results: dictionaries, callbacks, weights in files."""

import csv
import os
import tempfile

import numpy as np
import tensorflow as tf
from tensorflow.keras import Model
from tensorflow.keras import backend as K
from tensorflow.keras.layers import Concatenate, Dense, Dot, Embedding, Flatten, Input
from tensorflow.python import ipu

USERS, ITEMS, SIZE, BATCH, STEPS = 12, 10, 4, 4, 6


def load():
    rng = np.random.default_rng(1)
    n = BATCH * STEPS
    features = {
        "user": rng.integers(0, USERS, (n, 1)).astype(np.int32),
        "item": rng.integers(0, ITEMS, (n, 1)).astype(np.int32),
        "age": rng.random((n, 2)).astype(np.float32),
    }
    taste = (features["user"] + features["item"]) % 5
    targets = {
        "rating": (taste / 2.0).astype(np.float32),
        "bought": (taste > 2).astype(np.float32),
    }
    return features, targets


def tower(name, n, size):
    inputs = Input(shape=(1,), name=name, dtype="int32")
    vectors = Embedding(n, size, input_length=1, name=f"{name}_embedding")(inputs)
    return inputs, Flatten()(vectors)


def make_model():
    user, user_vector = tower("user", USERS, SIZE)
    item, item_vector = tower("item", ITEMS, SIZE)
    age = Input(shape=(2,), name="age")
    likeness = Dot(axes=1, normalize=False)([user_vector, item_vector])
    x = Concatenate()([user_vector, item_vector, age])
    x = Dense(8, activation="elu", name="hidden")(x)
    rating = Dense(1, name="score")(x)
    rating = tf.keras.layers.Add(name="rating")([rating, likeness])
    bought = Dense(1, activation="sigmoid", name="bought")(x)
    return Model(inputs=[user, item, age], outputs={"rating": rating, "bought": bought})


def rmse(y_true, y_pred):
    return K.sqrt(K.mean(K.square(y_pred - y_true)))


def compiled(model, **options):
    model.compile(
        optimizer=tf.keras.optimizers.RMSprop(learning_rate=0.01, rho=0.9),
        loss={"rating": "mean_squared_error", "bought": "binary_crossentropy"},
        loss_weights={"rating": 0.25, "bought": 1.0},
        metrics={"rating": [rmse], "bought": ["accuracy"]},
        **options,
    )
    return model


def main():
    config = ipu.config.IPUConfig()
    config.auto_select_ipus = 1
    config.ipu_model.tiles_per_ipu = 4
    ipu.config.configure_ipu_system(config)
    features, targets = load()
    folder = tempfile.mkdtemp()
    log, weights = os.path.join(folder, "log.csv"), os.path.join(folder, "model.weights.h5")
    data = tf.data.Dataset.from_tensor_slices((features, targets))
    data = data.batch(BATCH, drop_remainder=True)
    epochs = []
    with ipu.ipu_strategy.IPUStrategy().scope():
        tf.keras.utils.set_random_seed(12)
        model = compiled(make_model(), steps_per_execution=STEPS)
        first = model.get_weights()
        history = model.fit(
            data,
            epochs=2,
            verbose=0,
            callbacks=[
                tf.keras.callbacks.CSVLogger(log),
                tf.keras.callbacks.LambdaCallback(on_epoch_end=lambda e, logs: epochs.append(e)),
            ],
        )
        model.save_weights(weights)
        again = compiled(make_model(), steps_per_execution=STEPS)
        again.load_weights(weights)
        predictions = again.predict(features, batch_size=BATCH, verbose=0)
        results = again.evaluate(features, targets, batch_size=BATCH, verbose=0, return_dict=True)

    reference = compiled(make_model())
    reference.set_weights(first)
    for _ in range(2):
        for batch in data:
            reference.train_on_batch(*batch)
    for own, other in zip(model.get_weights(), reference.get_weights()):
        np.testing.assert_allclose(own, other, atol=1e-5)
    inputs = [features[name] for name in ("user", "item", "age")]
    for name, expected in reference(inputs).items():
        np.testing.assert_allclose(predictions[name], expected.detach(), atol=1e-5)
    assert abs(results["loss"] - mean_loss(predictions, targets)) < 1e-4
    with open(log) as file:
        rows = list(csv.DictReader(file))
    assert [float(row["loss"]) for row in rows] == history.history["loss"]
    assert epochs == [0, 1]


def mean_loss(predictions, targets):
    square = np.mean((predictions["rating"] - targets["rating"]) ** 2)
    chance, bought = predictions["bought"], targets["bought"]
    entropy = -np.mean(bought * np.log(chance) + (1 - bought) * np.log(1 - chance))
    return 0.25 * square + entropy


if __name__ == "__main__":
    main()
