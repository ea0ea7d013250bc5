"""First values of layers' variables."""

import numpy as np

DEVIATION = 0.02  # of weights, as BERT and GPT begin with


def truncated_normal(shape: tuple[int, ...]) -> np.ndarray:
    """Normal numbers of deviation 0.02 within two deviations, float32.

    They come from NumPy's global generator, so that `np.random.seed` makes models reproducible.
    """
    result = np.random.standard_normal(shape)  # noqa: NPY002
    while (outside := np.abs(result) > 2).any():
        result[outside] = np.random.standard_normal(int(outside.sum()))  # noqa: NPY002
    return (result * DEVIATION).astype(np.float32)
