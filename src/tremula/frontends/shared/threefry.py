"""Threefry-2x32 with 20 rounds: random words from two words of key and two of a counter.

Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011. In signed 32-bit integers that
wrap, which both the host and tiles have.
"""

from torch import Tensor

_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
_PARITY = 0x1BD11BDA


def threefry(key: tuple[Tensor, Tensor], x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """The random words for counters (x, y)."""
    keys = (*key, key[0] ^ key[1] ^ _PARITY)
    x, y = x + keys[0], y + keys[1]
    for group in range(5):
        for n_bits in _ROTATIONS[group % 2]:
            x = x + y
            y = _rotated(y, n_bits) ^ x
        x = x + keys[(group + 1) % 3]
        y = y + keys[(group + 2) % 3] + (group + 1)
    return x, y


def _rotated(x: Tensor, n_bits: int) -> Tensor:
    """Bits moved to the left, those that leave it coming in at the right."""
    return (x << n_bits) | ((x >> (32 - n_bits)) & ((1 << n_bits) - 1))
