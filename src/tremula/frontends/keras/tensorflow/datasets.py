"""Data sets by Keras's names, generated: for scripts that run where nothing can be downloaded."""

from collections.abc import Callable
from types import ModuleType

import numpy as np

Arrays = tuple[tuple[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]
# Shape of a sample, classes, and whether labels are columns, as Keras gives them.
_KINDS = {
    "mnist": ((28, 28), 10, False),
    "fashion_mnist": ((28, 28), 10, False),
    "cifar10": ((32, 32, 3), 10, True),
    "cifar100": ((32, 32, 3), 100, True),
}
_SHARE_TESTED = 5  # one sample in this many


def generated(name: str, n_samples: int) -> Callable[..., Arrays]:
    """`load_data` of a data set whose classes differ by a pattern in noise."""
    shape, n_classes, has_columns = _KINDS[name]

    def load_data(*_args: object, **_kwargs: object) -> Arrays:
        rng = np.random.default_rng(0)
        patterns = rng.integers(0, 160, (n_classes, *shape))

        def part(n: int) -> tuple[np.ndarray, np.ndarray]:
            labels = rng.integers(0, n_classes, n)
            images = patterns[labels] + rng.integers(0, 96, (n, *shape))
            return images.astype(np.uint8), labels[:, None] if has_columns else labels

        return part(n_samples), part(max(n_samples // _SHARE_TESTED, 1))

    return load_data


def generated_datasets(n_samples: int) -> ModuleType:
    """The module `keras.datasets` with images that are generated."""
    result = ModuleType("tensorflow.keras.datasets", "Images, generated.")
    for name in _KINDS:
        own = ModuleType(f"tensorflow.keras.datasets.{name}", "Images, generated.")
        own.load_data = generated(name, n_samples)  # pyright: ignore[reportAttributeAccessIssue]
        setattr(result, name, own)
    return result
