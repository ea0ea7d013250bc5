"""The hash by which PopLibs chooses tiles: `boost::hash_combine` of Boost 1.56 to 1.80, in 64 bits.

Its tests state values of it (tests/poputil/TileMappingTest.cpp, ChooseMappingOffset).
"""

from collections.abc import Iterable
from functools import reduce

MAPPING_SEED = 0x9E3779B9  # 2³² divided by the golden ratio
_MASK = 2**64 - 1
_FACTOR, _SHIFT, _ADDED = 0xC6A4A7935BD1E995, 47, 0xE6546B64


def hashed(numbers: Iterable[int], seed: int = MAPPING_SEED) -> int:
    """The hash of some numbers, in their order."""
    return reduce(_combined, numbers, seed)


def _combined(seed: int, number: int) -> int:
    mixed = number * _FACTOR & _MASK
    mixed = (mixed ^ mixed >> _SHIFT) * _FACTOR & _MASK
    return ((seed ^ mixed) * _FACTOR + _ADDED) & _MASK
