"""Data of the garden: the small set of digits; generated images; Python's documentation."""

import torch

from tremula.garden.models.datasets.mnist import Mnist, load_mnist
from tremula.garden.models.datasets.shapes import NAMES, ShapeImages
from tremula.garden.models.datasets.text import Excerpts, characters


def test_the_small_set_needs_no_network():
    """The subset holds 6000 and 1000 digits, normalised to mean 0 and deviation 1."""
    images, labels = load_mnist(train=False, subset=True)
    assert images.shape == (1000, 28, 28)
    assert set(labels) == set(range(10))
    data = Mnist(train=True, subset=True)
    assert len(data) == 6000
    assert abs(float(data.images.mean())) < 0.02
    assert abs(float(data.images.std()) - 1) < 0.02
    image, label = data[0]
    assert image.shape == (1, 28, 28)
    assert int(label) == 5


def test_shapes_are_the_same_for_the_same_seed():
    """Generated images have CIFAR's sizes, all classes, and depend on the seed only."""
    data = ShapeImages(200, seed=3)
    assert data.images.shape == (200, 3, 32, 32)
    assert data.images.dtype is torch.float32
    assert set(data.labels.tolist()) == set(range(len(NAMES)))
    assert torch.equal(data.images, ShapeImages(200, seed=3).images)
    assert not torch.equal(data.images, ShapeImages(200, seed=4).images)


def test_text_is_numbered_and_can_be_read_back():
    """Character rows spell the text they were made from."""
    rows, alphabet = characters(4, "a tile, a poplar")
    assert rows.shape == (4, 4)
    assert "".join(alphabet[number] for number in rows.flatten()) == "a tile, a poplar"
    rows, alphabet = characters(64)
    assert len(rows) > 2000


def test_excerpts_belong_to_their_modules():
    """Excerpts are rows of word numbers below the vocabulary's size, with a module's number."""
    data = Excerpts(["difflib", "decimal"], n_length=32, n_vocabulary=300)
    ids, label = data[0]
    assert ids.shape == (32,)
    assert int(label) == 0
    assert int(data.ids.max()) < len(data.vocabulary) == 300
    assert set(data.labels.tolist()) == {0, 1}
