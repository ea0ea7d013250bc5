"""Digests of constants."""

import torch

from tremula.ir.step import bytes_of


def test_bytes_of_any_strides():
    """Expanded and transposed constants have the bytes of their values in order."""
    one = torch.ones(1).as_strided((1,), (0,))  # counts as contiguous
    table = torch.arange(6.0).reshape(2, 3)
    assert bytes_of(one) == torch.ones(1).numpy().tobytes()
    assert bytes_of(table.t()) == table.t().contiguous().numpy().tobytes()
    assert bytes_of(torch.ones(2, dtype=torch.bfloat16).expand(3, 2)) == b"\x80\x3f" * 6
