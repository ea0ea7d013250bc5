"""Trains UNet as two stages on two chips; the overlap with the true discs is the measure."""

# Keras's stubs take `verbose` for a name.
# pyright: reportArgumentType=false

import numpy as np

from tremula.frontends.keras import ipu
from tremula.garden.application import Findings, Settings, modelled_report
from tremula.garden.applications.unet_segmentation.model import SIZE, pictures, unet
from tremula.garden.applications.unet_segmentation.overlap import overlap_of

import keras  # isort: skip - after Tremula's Keras, which chooses its backend

N_BATCH, N_IN_FLIGHT = 4, 4


def run(settings: Settings) -> Findings:
    n_pictures, n_epochs, width, n_levels = (128, 10, 4, 1) if settings.tiny else (1024, 8, 16, 3)
    config = ipu.config.IPUConfig()
    config.auto_select_ipus = 2
    config.allow_recompute = True
    config.configure_ipu_system()
    with ipu.ipu_strategy.IPUStrategy().scope():
        keras.utils.set_random_seed(0)
        model = unet(width, n_levels, n_stages=2)
        model.compile(
            keras.optimizers.Adam(0.02),
            "binary_crossentropy",
            metrics=[keras.metrics.BinaryIoU([1], name="overlap")],
            steps_per_execution=N_IN_FLIGHT,
        )
        model.set_pipelining_options(
            gradient_accumulation_steps_per_replica=N_IN_FLIGHT,
            gradient_accumulation_reduction_method="mean",
            pipeline_schedule=ipu.PipelineSchedule.Interleaved,
        )
        settings.show(f"{n_pictures} pictures, down on one chip, up on the other")
        history = model.fit(*pictures(n_pictures), batch_size=N_BATCH, epochs=n_epochs, verbose=0)
        report = model.ipu_report()
        seen, masks = pictures(N_BATCH * N_IN_FLIGHT, seed=1)
        result = model.predict(seen, batch_size=N_BATCH, verbose=0)
    overlap = overlap_of(result > 0.5, masks > 0.5)
    settings.show(f"overlap with the true discs, in new pictures: {overlap:.2f}")
    return Findings(
        results={"overlap": overlap},
        modelled=modelled_report(
            report, settings, n_items=N_BATCH * N_IN_FLIGHT, unit="pictures/s"
        ),
        curves={"loss": history.history["loss"]},
        picture=np.concatenate([seen[0], result[0], masks[0]], 1).reshape(SIZE, 3 * SIZE),
    )
