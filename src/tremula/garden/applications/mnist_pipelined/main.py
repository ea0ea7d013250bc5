"""Trains a Keras model of two stages on two chips, and tests it."""

# Keras's stubs take `verbose` for a name.
# pyright: reportArgumentType=false

from tremula.frontends.keras import ipu
from tremula.garden.application import Findings, Settings, modelled_report
from tremula.garden.applications.mnist_pipelined.model import (
    N_BATCH,
    N_IN_FLIGHT,
    digits,
    two_stages,
)

import keras  # isort: skip - after Tremula's Keras, which chooses its backend


def run(settings: Settings) -> Findings:
    n_images, n_epochs, width = (1024, 3, 8) if settings.tiny else (6000, 5, 16)
    config = ipu.config.IPUConfig()
    config.auto_select_ipus = 2
    config.configure_ipu_system()
    with ipu.ipu_strategy.IPUStrategy().scope():
        keras.utils.set_random_seed(0)
        model = two_stages(width)
        model.compile(
            keras.optimizers.Adam(0.01),
            keras.losses.SparseCategoricalCrossentropy(from_logits=True),
            metrics=["accuracy"],
            steps_per_execution=N_IN_FLIGHT,
        )
        model.set_pipelining_options(
            gradient_accumulation_steps_per_replica=N_IN_FLIGHT,
            gradient_accumulation_reduction_method="mean",
            pipeline_schedule=ipu.PipelineSchedule.Interleaved,
        )
        settings.show(f"{n_images:,} images, {N_IN_FLIGHT} batches in flight over 2 chips")
        history = model.fit(*digits(True, n_images), batch_size=N_BATCH, epochs=n_epochs, verbose=0)
        report = model.ipu_report()
        _, accuracy = model.evaluate(*digits(False, 1000), batch_size=N_BATCH, verbose=0)
    settings.show(f"accuracy on images it has not seen: {accuracy:.1%}")
    return Findings(
        results={"accuracy": accuracy},
        modelled=modelled_report(report, settings, n_items=N_BATCH * N_IN_FLIGHT, unit="images/s"),
        curves={"loss": history.history["loss"]},
    )
