"""bfloat16 on tiles: rounded to nearest even where PyTorch stores a result."""

import math

import torch
import torch.nn.functional as F

from tests.ir.like_aten import assert_like_aten
from tremula import run_on_tiles

# Ties to even and to odd, the border of infinity, a NaN whose upper bits say infinity, small ones.
_BITS = [0x3F808000, 0x3F818000, 0x3F818001, 0x7F7FFFFF, 0x7F800001, 0x00008001, -0x7FFF8000]


def test_a_cast_rounds_to_nearest_even():
    """Every float becomes what PyTorch makes of it, bit for bit; NaN stays NaN."""
    random = torch.randint(-(2**31), 2**31, (500,), generator=torch.Generator().manual_seed(0))
    x = torch.cat([torch.tensor(_BITS), random]).to(torch.int32).view(torch.float32)
    (result,) = run_on_tiles(lambda x: x.bfloat16().float(), x)
    right = x.bfloat16().float()
    assert torch.equal(result.isnan(), right.isnan())
    assert torch.equal(
        result.nan_to_num(7).view(torch.int32), right.nan_to_num(7).view(torch.int32)
    )


def test_operations_round_once_each():
    """Element-wise results are PyTorch's exactly, step after step; moved values stay."""

    def function(x, y, i):
        total = x + y
        return [
            total, total * y - 0.3, x / 3, x * 0.3, x > 0.3, x.remainder(0.3), x.clamp(max=0.1),
            torch.full_like(x, 0.1), x.exp2(), torch.where(x > 0, x, i.bfloat16()),
            torch.cat([x, y]), x.t() * 1.7, x[i[0] % 3], x.sum(), x.float() + y,
        ]  # fmt: skip

    generator = torch.Generator().manual_seed(1)
    x, y = (torch.randn(4, 4, generator=generator).bfloat16() for _ in range(2))
    i = torch.arange(16).reshape(4, 4) * 37
    assert_like_aten(function, x, y, i, rtol=0, atol=0)


def test_layers_and_gradients():
    """Products, norms and softmax round their result once: at most one step from PyTorch's."""

    def function(x, w):
        x, w = x.detach().requires_grad_(True), w.detach().requires_grad_(True)
        y = F.softmax(F.layer_norm(F.linear(x, w), (6,)), -1)
        return [y, *torch.autograd.grad(y.square().sum(), (x, w))]

    generator = torch.Generator().manual_seed(2)
    x, w = (torch.randn(*s, generator=generator).bfloat16() for s in ((5, 8), (6, 8)))
    assert_like_aten(function, x, w, rtol=math.ldexp(1, -6), atol=2e-3)
