"""The small set of handwritten digits that comes with the package; needs no PyTorch to be read."""

from pathlib import Path

# An .npz of train_images uint8[6000, 28, 28], train_labels, test_images (1000) and test_labels.
MNIST_SUBSET = Path(__file__).parent / "data" / "mnist_subset.npz"
