"""Random numbers in codelets: each worker of each tile has its own generator.

The generator is xoroshiro128aox, the one in the hardware: 128 bits of state, 64 random bits a draw.
These functions work inside `compute` only, natively (`native/random.py`) and in plain Python alike.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from tremula.base.errors import RuntimeFailure

# What a worker's record holds, in 64-bit words: its state, and how it rounds halves.
STATE_WORDS = 2
MODE_WORD = 2
WORKER_WORDS = 3
# Bits of the mode word.
STOCHASTIC, SATURATE, NAN_ON_OVERFLOW = 1, 2, 4
STOCHASTIC_QUARTERS = 8  # only chips that convert 8-bit floats by an instruction round them so

NORMAL_TERMS = 12  # uniform numbers whose sum is a normal one, as the hardware makes it
NORMAL_CENTRE = NORMAL_TERMS * 0.5 * (2**16 - 1)  # of that sum, its terms having 16 bits
MASK = 2**64 - 1
GOLDEN = 0x9E3779B97F4A7C15  # splitmix64's step
MIXERS = (0xBF58476D1CE4E5B9, 0x94D049BB133111EB)  # splitmix64's multipliers

FUNCTIONS = frozenset(
    "random_uint32 random_uint64 random_uniform random_normal random_state set_random_state "
    "seed_random".split()
)


class _Running:
    """The record of the worker that runs now; set by `worker_running`."""

    record: np.ndarray | None = None


@contextmanager
def worker_running(record: np.ndarray) -> Iterator[None]:
    """Let the functions below use this record: uint64[WORKER_WORDS], changed in place."""
    before, _Running.record = _Running.record, record
    try:
        yield
    finally:
        _Running.record = before


def _record() -> np.ndarray:
    if _Running.record is None:
        raise RuntimeFailure(
            "random numbers of a worker exist only inside compute.",
            hint="call them in a codelet; on the host use numpy.random",
        )
    return _Running.record


def random_uint64() -> int:
    """64 random bits of the worker that runs this."""
    record = _record()
    s0, s1 = int(record[0]), int(record[1])
    mixed, both = s0 ^ s1, s0 & s1
    record[0] = _rotated(s0, 55) ^ mixed ^ ((mixed << 14) & MASK)
    record[1] = _rotated(mixed, 36)
    return mixed ^ (_rotated(both, 1) | _rotated(both, 2))


def _rotated(value: int, n_bits: int) -> int:
    return ((value << n_bits) | (value >> (64 - n_bits))) & MASK


def random_uint32() -> int:
    """32 random bits: the upper half of a draw."""
    return random_uint64() >> 32


def random_uniform() -> np.float32:
    """A float32 in [0, 1): 24 random bits, all values equally likely."""
    return np.float32((random_uint64() >> 40) * 2.0**-24)


def random_normal() -> np.float32:
    """A float32 of mean 0 and deviation 1: the sum of 12 uniform terms, so within -6 and 6."""
    total = 0
    for _ in range(NORMAL_TERMS // 4):
        bits = random_uint64()
        total += sum((bits >> shift) & 0xFFFF for shift in (0, 16, 32, 48))
    return np.float32((total - NORMAL_CENTRE) * 2.0**-16)


def random_state(word: int) -> int:
    """Word 0 or 1 of the worker's state."""
    return int(_record()[word])


def set_random_state(word: int, value: int) -> None:
    """Set word 0 or 1 of the worker's state; both must not be 0."""
    _record()[word] = value & MASK


def seed_random(seed: int, stream: int) -> None:
    """Start the worker's generator from a seed; different streams give unrelated numbers."""
    set_random_state(0, mix64(mix64(seed & MASK) ^ stream))
    set_random_state(1, mix64(random_state(0) + GOLDEN))


def mix64(value: int) -> int:
    """The splitmix64 hash of a number."""
    value = (value + GOLDEN) & MASK
    value = ((value ^ (value >> 30)) * MIXERS[0]) & MASK
    value = ((value ^ (value >> 27)) * MIXERS[1]) & MASK
    return value ^ (value >> 31)


def seeds_of(seed: int, n_records: int) -> np.ndarray:
    """uint64[n_records, STATE_WORDS]: what seed_random(seed, i) makes of record i, for all i."""
    with np.errstate(over="ignore"):
        first = _mix_array(np.uint64(mix64(seed & MASK)) ^ np.arange(n_records, dtype=np.uint64))
        return np.stack([first, _mix_array(first + np.uint64(GOLDEN))], axis=1)


def _mix_array(values: np.ndarray) -> np.ndarray:
    values = values + np.uint64(GOLDEN)
    values = (values ^ (values >> np.uint64(30))) * np.uint64(MIXERS[0])
    values = (values ^ (values >> np.uint64(27))) * np.uint64(MIXERS[1])
    return values ^ (values >> np.uint64(31))
