"""Threefry, against the known answers of Random123, the library of its authors."""

import pytest
import torch

from tremula.frontends.shared.threefry import threefry


def words(*values: int) -> list[torch.Tensor]:
    """32-bit words in the signed integers that hold them."""
    return [torch.tensor(v, dtype=torch.int64).to(torch.int32) for v in values]


@pytest.mark.parametrize(
    ("counter", "key", "expected"),
    [
        ((0, 0), (0, 0), (0x6B200159, 0x99BA4EFE)),
        ((0xFFFFFFFF, 0xFFFFFFFF), (0xFFFFFFFF, 0xFFFFFFFF), (0x1CB996FC, 0xBB002BE7)),
        ((0x243F6A88, 0x85A308D3), (0x13198A2E, 0x03707344), (0xC4923A9C, 0x483DF7A0)),
    ],
)
def test_known_answers(counter, key, expected):
    """Twenty rounds give the words that the file kat_vectors of Random123 lists."""
    first, second = words(*key)
    result = threefry((first, second), *words(*counter))
    assert [int(word) & 0xFFFFFFFF for word in result] == list(expected)
