"""MNIST in Keras as a pipeline: two stages on two IPUs, eight batches in flight.

python mnist_pipelined.py [--images N] [--epochs N]
"""

# Arguments when run as a test: --images 512 --epochs 1

import argparse

from tremula.garden.applications.mnist_pipelined.model import (
    N_BATCH,
    N_IN_FLIGHT,
    digits,
    two_stages,
)  # fmt: skip
from tremula.keras import ipu

import keras  # isort: skip - after tremula.keras, which chooses its backend


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--images", type=int, default=4096)
    parser.add_argument("--epochs", type=int, default=3)
    args = parser.parse_args()

    config = ipu.config.IPUConfig()
    config.auto_select_ipus = 2
    config.configure_ipu_system()
    with ipu.ipu_strategy.IPUStrategy().scope():
        keras.utils.set_random_seed(0)
        model = two_stages()
        model.compile(
            keras.optimizers.Adam(0.003),
            keras.losses.SparseCategoricalCrossentropy(from_logits=True),
            metrics=["accuracy"],
            steps_per_execution=N_IN_FLIGHT,
        )
        model.set_pipelining_options(
            gradient_accumulation_steps_per_replica=N_IN_FLIGHT,
            gradient_accumulation_reduction_method="mean",
            pipeline_schedule=ipu.PipelineSchedule.Interleaved,
        )
        model.print_pipeline_stage_assignment_summary()
        history = model.fit(
            *digits(True, args.images), batch_size=N_BATCH, epochs=args.epochs, verbose=0
        )
        print(f"loss: {history.history['loss'][-1]:.3f}")
        _, accuracy = model.evaluate(*digits(False, args.images), batch_size=N_BATCH, verbose=0)
        print(f"accuracy on images it has not seen: {accuracy:.1%}")


if __name__ == "__main__":
    main()
