"""The Triton kernel for sparse products: by Triton's interpreter, and on a GPU if there is one."""

import importlib.util
import os
import subprocess
import sys
import warnings

import pytest
import torch

from tremula.ir.capture.sparse_tensors import pattern_of
from tremula.ir.ops import sparse_gpu


def ragged_blocks(n_columns, device="cpu", dtype=torch.float32):
    """Blocks of 16 in rows of none to nine, a dense operand, and their product."""
    rng = torch.Generator().manual_seed(3)
    present = torch.rand(7, 9, generator=rng) < torch.linspace(0, 1, 7)[:, None]
    weight = torch.randn(112, 144, generator=rng)
    weight *= present.repeat_interleave(16, 0).repeat_interleave(16, 1)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Sparse")  # PyTorch's layouts are in beta
        pattern, values = pattern_of(weight.to_sparse_bsr((16, 16)))
    x = torch.randn(144, n_columns, generator=rng)
    place = torch.device(device)
    row_start, columns, _ = pattern.on(place)
    blocks = sparse_gpu.Blocks(values.to(place, dtype), row_start, columns)
    return blocks, x.to(place, dtype), weight @ x


def interpreted():
    """Launches with strips that columns fill, or do not, by the interpreter."""
    for n_columns in (41, 64):
        given, x, expected = ragged_blocks(n_columns)
        for cut in ((32, 2, 1, 1), (16, 4, 1, 1)):
            result = sparse_gpu._launched(given, x, sparse_gpu.SparseCut(*cut))
            torch.testing.assert_close(result, expected, atol=1e-4, rtol=1e-4)


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="needs Triton")
@pytest.mark.skipif(torch.cuda.is_available(), reason="the GPU itself runs it")
def test_uneven_and_empty_rows_by_the_interpreter():
    """Rows of blocks of every length, and columns that do not fill the last strip."""
    # Triton reads the variable when it is first imported.
    environment = {**os.environ, "TRITON_INTERPRET": "1"}
    subprocess.run([sys.executable, __file__], env=environment, check=True, timeout=120)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("n_columns", [41, 256])
def test_every_launch_on_a_gpu(n_columns):
    """All that fit give the product, and so does the one that timing picks."""
    given, x, expected = ragged_blocks(n_columns, "cuda", torch.float16)
    fitting = [one for one in sparse_gpu._LAUNCHES if sparse_gpu._fits(one, given, x)]
    assert len(fitting) > 4
    result = [sparse_gpu._launched(given, x, one) for one in fitting]
    for out in (*result, sparse_gpu.block_product(given, x)):
        torch.testing.assert_close(out.float().cpu(), expected, atol=0.05, rtol=0.01)


if __name__ == "__main__":
    interpreted()
