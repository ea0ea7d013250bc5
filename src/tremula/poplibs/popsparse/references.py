"""What products with a sparse matrix must give, in NumPy: the registry compares with it.

Options of a plan change no result and are left aside.
"""

import numpy as np

from tremula.base.types import Type
from tremula.poplibs.popsparse.formats import CSRMatrix

Array = np.ndarray


def random_values(rng: np.random.Generator, element: Type, *shape: int) -> Array:
    return rng.standard_normal(shape).astype(element.dtype)


def whole_matrix(values: Array, pattern: CSRMatrix) -> Array:
    """The matrix with its zeros, in double precision."""
    return pattern.with_values(values.astype(np.float64)).to_dense()


def product(values: Array, dense: Array, pattern: CSRMatrix, **_planned: object) -> Array:
    return (whole_matrix(values, pattern) @ dense.astype(np.float64)).astype(dense.dtype)


def dense_gradient(values: Array, gradient: Array, pattern: CSRMatrix, **_planned: object) -> Array:
    transposed = whole_matrix(values, pattern).T
    return (transposed @ gradient.astype(np.float64)).astype(gradient.dtype)


def values_gradient(dense: Array, gradient: Array, pattern: CSRMatrix, **_planned: object) -> Array:
    full = gradient.astype(np.float64) @ dense.astype(np.float64).T
    return pattern.values_of(full).astype(dense.dtype)


def sliced_rows(values: Array, indices: Array, pattern: CSRMatrix, **_planned: object) -> Array:
    return whole_matrix(values, pattern)[indices].astype(values.dtype)


def updated_rows(
    values: Array, slices: Array, indices: Array, pattern: CSRMatrix, **_planned: object
) -> Array:
    full = np.zeros((pattern.num_rows, pattern.num_columns))
    np.add.at(full, indices, slices.astype(np.float64))
    return (values + pattern.values_of(full)).astype(values.dtype)
