"""UNet in Keras: which pixels belong to a disc, in pictures made here; then cycles on tiles.

python unet.py [--pictures N] [--epochs N] [--width N]
"""

# Run by the wide tests.
# Arguments when run as a test: --pictures 16 --epochs 1 --width 2

import argparse

from tremula.garden.applications.unet_segmentation.model import pictures, unet
from tremula.keras import ipu

import keras  # isort: skip - after tremula.keras, which chooses its backend

BATCH = 8


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--pictures", type=int, default=128)
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--width", type=int, default=8)
    args = parser.parse_args()

    with ipu.ipu_strategy.IPUStrategy().scope():
        keras.utils.set_random_seed(0)
        model = unet(args.width)
        overlap = keras.metrics.BinaryIoU([1], name="overlap")
        model.compile(keras.optimizers.Adam(0.01), "binary_crossentropy", metrics=[overlap])
        result = model.fit(
            *pictures(args.pictures), batch_size=BATCH, epochs=args.epochs, verbose=0
        )
        print(f"loss {result.history['loss'][-1]:.3f}, overlap {result.history['overlap'][-1]:.2f}")
        model.predict(pictures(1)[0], verbose=0)
    report = model.ipu_report()
    print(f"a picture takes {report.total_cycles} cycles on the tiles of {report.chip.name}")


if __name__ == "__main__":
    main()
