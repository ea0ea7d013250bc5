"""Where a partition goes: an aligned block of free chips, in the smallest gap that takes it.

Sizes are powers of two and blocks begin at multiples of their size, so the chips of a partition
always form whole rows, machines or racks, and freed blocks join up again (a buddy system).
"""

import numpy as np

from tremula.system.control.errors import wrong

Bools = np.ndarray
MAX_SIZE = 1 << 20


def checked_size(size: int) -> int:
    if not 1 <= size <= MAX_SIZE or size & (size - 1):
        raise wrong(f"a partition of {size} IPUs cannot be cut.", "use 1, 2, 4, 8, … IPUs")
    return size


def place(is_free: Bools, size: int) -> int | None:
    """The first chip of the best block of `size` free chips; None if there is none.

    `is_free` is bool[n_chips]. Of all aligned free blocks, one in the smallest free block around it
    is best, so that large gaps stay whole; of those the first.
    """
    n_blocks = len(is_free) // size
    fits = is_free[: n_blocks * size].reshape(n_blocks, size).all(axis=1)
    while fits.any():
        # A free block whose other half is not free is in no larger free block.
        halves = np.append(fits, np.zeros(len(fits) % 2, bool)).reshape(-1, 2)
        is_lonely = (halves & ~halves[:, ::-1]).ravel()
        if is_lonely.any():
            return int(np.argmax(is_lonely)) * size
        fits, size = halves.all(axis=1), 2 * size
    return None


def largest_free(is_free: Bools) -> int:
    """The size of the largest partition that could be made; 0 if none can."""
    size = 1
    while place(is_free, size) is not None:
        size *= 2
    return size // 2
