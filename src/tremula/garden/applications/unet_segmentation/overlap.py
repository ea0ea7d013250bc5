"""How well a mask was found."""

import numpy as np


def overlap_of(found: np.ndarray, true: np.ndarray) -> float:
    """Pixels that are in both, of those in either."""
    return float((found & true).sum() / max((found | true).sum(), 1))
