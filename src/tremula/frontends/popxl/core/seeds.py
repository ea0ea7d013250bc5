"""Seeds for random operations: a pair of words for each batch, micro-batch and replica."""

import numpy as np

_WORD = 2**32


def create_seeds(
    seed: int,
    offset: int = 0,
    batches_per_step: int = 1,
    gradient_accumulation_factor: int = 1,
    replicas: int = 1,
) -> np.ndarray:
    """Seeds `[batches, accumulation, replicas, 2]`, without dimensions of size 1.

    A seed is a number of 64 bits, in two words, the high one first; `offset` is added to `seed`,
    so that each step can have other seeds.
    """
    shape = (batches_per_step, gradient_accumulation_factor, replicas)
    if min(shape) < 1 or seed + offset < 0:
        raise ValueError(
            f"Seeds need positive counts and a seed of 0 or more, got {shape} and {seed + offset}"
        )
    generator = np.random.default_rng(seed + offset)
    size = batches_per_step * gradient_accumulation_factor * replicas
    numbers = generator.integers(0, _WORD**2 - 1, size, np.uint64, endpoint=True)
    words = [uint64_to_two_uint32(int(number)) for number in numbers]
    return np.array(words, np.uint32).reshape(*shape, 2).squeeze()


def uint64_to_two_uint32(num: int) -> tuple[int, int]:
    """A number of 64 bits as two words, the high one first."""
    if not 0 <= num < _WORD**2:
        raise ValueError(f"{num} is not an unsigned number of 64 bits")
    return divmod(num, _WORD)


def two_uint32_to_uint64(a: int, b: int) -> int:
    """The number of 64 bits that two words make, the high one first."""
    if not (0 <= a < _WORD and 0 <= b < _WORD):
        raise ValueError(f"{a} and {b} are not unsigned numbers of 32 bits")
    return a * _WORD + b
