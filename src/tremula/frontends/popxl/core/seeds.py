"""Seeds for random operations: a pair of words for each batch, micro-batch and replica."""

import numpy as np

_WORDS = 2**32


def create_seeds(
    seed: int,
    offset: int = 0,
    batches_per_step: int = 1,
    gradient_accumulation_factor: int = 1,
    replicas: int = 1,
) -> np.ndarray:
    """Seeds `[batches, accumulation, replicas, 2]`, without dimensions of size 1.

    The numbers are those that come after `offset` batches of the same seed.
    """
    shape = (batches_per_step, gradient_accumulation_factor, replicas, 2)
    if min(shape) < 1 or offset < 0:
        raise ValueError(f"Seeds need positive counts and an offset of 0 or more, got {shape[:3]}")
    generator = np.random.default_rng(seed)
    whole = generator.integers(0, _WORDS, (offset + batches_per_step, *shape[1:]), np.uint32)
    return whole[offset:].squeeze() if max(shape[:3]) > 1 else whole[offset:].reshape(2)
