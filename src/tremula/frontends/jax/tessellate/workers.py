"""How the workers of a tile split a vector."""

import numpy as np
from numpy.typing import DTypeLike


def make_num_elements_per_worker(N: int, num_workers: int) -> np.ndarray:  # noqa: N803
    """Elements for each worker, the first ones with one more if they do not divide."""
    whole, rest = divmod(N, num_workers)
    return np.array([whole + (i < rest) for i in range(num_workers)], np.int32)


def _shares(
    size: int, vector_size: int, num_workers: int, allow_overlap: bool, grain_size: int | None
) -> tuple[int, int, int, int]:
    """Vectors of a grain, vectors of a full share, how many have one, elements left over."""
    grain = grain_size or vector_size
    if size % 2 or grain % vector_size or size < grain or (size % grain and not allow_overlap):
        raise ValueError(
            f"{size} elements cannot be split into grains of {grain} elements and vectors of"
            f" {vector_size}: expected an even multiple of the grain."
        )
    n_grains = -(-size // (grain * num_workers))
    n_full = size // (grain * n_grains)
    return grain // vector_size, n_grains * grain // vector_size, n_full, size % (grain * n_grains)


def make_ipu_vector1d_worker_offsets(
    size: int,
    vector_size: int = 2,
    num_workers: int = 6,
    wdtype: DTypeLike = np.uint16,
    grain_size: int | None = None,
) -> np.ndarray:
    """Where the share of each worker begins, in vectors, and where the last one ends."""
    grain, share, n_full, left = _shares(size, vector_size, num_workers, False, grain_size)
    sizes = np.zeros(num_workers, np.int64)
    sizes[:n_full] = share
    if n_full < num_workers:
        sizes[n_full] = left // (grain * vector_size) * grain
    return np.concatenate([[0], np.cumsum(sizes)]).astype(wdtype)


def make_ipu_vector1d_worker_offsets_and_sizes(
    size: int,
    vector_size: int = 2,
    num_workers: int = 6,
    wdtype: DTypeLike = np.uint16,
    allow_overlap: bool = False,
    grain_size: int | None = None,
) -> np.ndarray:
    """(first vector, number of vectors) of each worker; the last may overlap the one before."""
    grain, share, n_full, left = _shares(size, vector_size, num_workers, allow_overlap, grain_size)
    result = np.zeros((num_workers, 2), np.int64)
    result[:n_full, 0] = share * np.arange(n_full)
    result[:n_full, 1] = share
    if n_full < num_workers:
        last = -(-left // (grain * vector_size)) * grain
        result[n_full] = size // vector_size - last, last
    return result.astype(wdtype)
