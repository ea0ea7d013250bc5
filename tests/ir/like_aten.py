"""Compares what a function gives on tiles with what it gives in PyTorch."""

from collections.abc import Callable

import torch
from torch import Tensor

from tremula.ir.run.tile_run import run_on_tiles

# Relative, absolute.
TOLERANCE = {
    torch.float32: (1e-5, 1e-6),
    torch.float16: (1e-2, 1e-3),
    torch.complex64: (1e-5, 1e-6),
}


def assert_like_aten(function: Callable, *inputs: Tensor, **tolerance: float) -> None:
    """Run on tiles and on the host; every result must agree in shape, type class and values."""
    wanted = function(*inputs)
    wanted = [wanted] if isinstance(wanted, Tensor) else list(wanted)
    result = run_on_tiles(function, *inputs)
    assert len(result) == len(wanted), f"{len(result)} results, expected {len(wanted)}"
    for number, (got, right) in enumerate(zip(result, wanted, strict=True)):
        assert_close(got, right.detach(), f"result {number}", **tolerance)


def assert_close(got: Tensor, right: Tensor, where: str, **tolerance: float) -> None:
    right = right.to(got.dtype).resolve_conj()  # 64-bit types are 32-bit on the machine
    relative, absolute = TOLERANCE.get(got.dtype, (0.0, 0.0))
    torch.testing.assert_close(
        got,
        right,
        rtol=tolerance.get("rtol", relative),
        atol=tolerance.get("atol", absolute),
        equal_nan=True,
        msg=lambda text: f"{where}: {text}",
    )


def gradients(function, *operands):
    """Of a weighted sum of the results, so that no two places count alike."""
    leaves = [x.detach().requires_grad_(True) for x in operands]
    y = function(*leaves)
    return torch.autograd.grad(y, leaves, torch.arange(float(y.numel())).reshape(y.shape))


def complex_gradients(function, *operands):
    """Gradients of a function with complex results: both parts count."""

    def real(*leaves):
        y = function(*leaves)
        return torch.view_as_real(y.resolve_conj()) if y.is_complex() else y

    return [x.resolve_conj() if x.is_complex() else x for x in gradients(real, *operands)]
