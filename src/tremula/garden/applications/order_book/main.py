"""Trains a small DeepLOB in Keras on a generated order book."""

# Keras's stubs take `verbose` for a name.
# pyright: reportArgumentType=false

import numpy as np

from tremula.frontends.keras import ipu
from tremula.garden.application import Findings, Settings, modelled_report
from tremula.garden.applications.order_book.book import (
    LABELS,
    N_LEVELS,
    N_TIMES,
    order_book,
)

import keras  # isort: skip - after Tremula's Keras, which chooses its backend
from keras import layers  # isort: skip

N_BATCH, N_STEPS = 32, 8


def run(settings: Settings) -> Findings:
    n_windows, n_epochs, width = (1024, 4, 8) if settings.tiny else (40960, 10, 32)
    known, new = order_book(n_windows, seed=1), order_book(512, seed=2)
    config = ipu.config.IPUConfig()
    config.auto_select_ipus = 1
    config.configure_ipu_system()
    with ipu.ipu_strategy.IPUStrategy().scope():
        keras.utils.set_random_seed(0)
        model = network(width)
        model.compile(
            keras.optimizers.Adam(0.01),
            "sparse_categorical_crossentropy",
            metrics=["accuracy"],
            steps_per_execution=N_STEPS,
        )
        settings.show(f"{n_windows:,} windows of {N_TIMES} times and {N_LEVELS} levels")
        history = model.fit(
            known.windows, known.labels, batch_size=N_BATCH, epochs=n_epochs, verbose=0
        )
        report = model.ipu_report()
        _, accuracy = model.evaluate(new.windows, new.labels, batch_size=N_BATCH, verbose=0)
    best_guess = np.bincount(new.labels).max() / len(new.labels)
    by_rule = float((new.by_rule == new.labels).mean())
    settings.show(f"right: {accuracy:.1%}; always the same: {best_guess:.1%}; rule: {by_rule:.1%}")
    return Findings(
        results={
            "accuracy_over_best_guess": accuracy / best_guess,
            "accuracy_over_known_rule": accuracy / by_rule,
        },
        modelled=modelled_report(report, settings, n_items=N_BATCH * N_STEPS, unit="windows/s"),
        curves={"loss": history.history["loss"]},
        picture=new.windows[0, :, :, 0].T,
    )


def network(width: int) -> keras.Model:
    """Levels of a side are mixed, then both sides, then times."""
    return keras.Sequential(
        [
            keras.Input((N_TIMES, 2 * N_LEVELS, 1)),
            layers.Conv2D(width, (1, N_LEVELS), strides=(1, N_LEVELS), activation="relu"),
            layers.Conv2D(width, (1, 2), activation="relu"),
            layers.Reshape((N_TIMES, width)),
            layers.LSTM(width),
            layers.Dense(len(LABELS), activation="softmax"),
        ]
    )
