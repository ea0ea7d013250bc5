"""Names of types that programs annotate with."""

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

DType = np.dtype
Shape = tuple[int, ...]

__all__ = ["ArrayLike", "DType", "DTypeLike", "NDArray", "Shape"]
