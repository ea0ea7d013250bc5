"""How well a mask was found."""

import numpy as np


def overlap_of(result: np.ndarray, true: np.ndarray) -> float:
    """Pixels that are in both, of those in either."""
    return float((result & true).sum() / max((result | true).sum(), 1))
