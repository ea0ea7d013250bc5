"""Products of fixed sparsity on the host: 4096 × 4096, a sixteenth of it there, by 256 columns."""

import warnings
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import numpy as np

from benchmarks.figures import Figure
from benchmarks.measure import ratio
from benchmarks.sparse.torch_layouts import multiplied_layouts

if TYPE_CHECKING:  # loaded where they are used
    from torch import Tensor

    from tremula.ir.ops.sparse_pattern import SparsePattern

SIZE, N_COLUMNS, DENSITY = 4096, 256, 1 / 16
N_COLUMNS_GPU = 4096


def host_figures() -> Iterator[Figure]:
    """On a CPU every block size against torch.sparse's best layout; on a GPU against dense."""
    import torch

    warnings.filterwarnings("ignore", message="Sparse")  # its layouts are in beta
    if torch.cuda.is_available():
        yield from _gpu_figures()
        return
    for side in (1, 4, 8, 16):
        yield Figure.of(f"host-block-{side}", _against_torch(side), "of torch.sparse", "<= 1.0")


def _operands(side: int) -> "tuple[SparsePattern, Tensor]":
    import torch

    from tremula.ir.capture.sparse_tensors import pattern_of

    rng = np.random.default_rng(side)
    present = np.kron(rng.random((SIZE // side, SIZE // side)) < DENSITY, np.ones((side, side)))
    dense = torch.from_numpy((present * rng.standard_normal((SIZE, SIZE))).astype(np.float32))
    return pattern_of(dense.to_sparse_csr() if side == 1 else dense.to_sparse_bsr((side, side)))


def _against_torch(side: int) -> float:
    import torch

    from tremula.ir.ops.sparse import sparse_mm

    pattern, values = _operands(side)
    x = torch.randn(SIZE, N_COLUMNS)
    starts, columns, _ = pattern.on(torch.device("cpu"))
    blocks = values.flatten() if side == 1 else values
    make = torch.sparse_csr_tensor if side == 1 else torch.sparse_bsr_tensor
    theirs = [make(starts.long(), columns.long(), blocks, (SIZE, SIZE))]
    if side > 1:
        theirs.append(theirs[0].to_dense().to_sparse_csr())
    ours = lambda: sparse_mm(values, x, pattern)  # noqa: E731
    layouts = multiplied_layouts(theirs, x)
    return max(ratio(ours, lambda t=t: t @ x, rounds=7).value for t in layouts)


def _gpu_figures() -> Iterator[Figure]:
    import torch

    from tremula.ir.ops.sparse import sparse_mm

    pattern, values = _operands(16)
    small = values.cuda().half()
    whole = torch.randn(SIZE, SIZE, device="cuda", dtype=torch.float16)
    for n in (N_COLUMNS, N_COLUMNS_GPU):
        x = torch.randn(SIZE, n, device="cuda", dtype=torch.float16)
        ours = _gpu_ms(lambda x=x: sparse_mm(small, x, pattern))
        dense = _gpu_ms(lambda x=x: whole @ x)
        yield Figure.of(f"gpu-block-16-n-{n}", ours / dense, "of dense", "<= 0.5")


def _gpu_ms(action: Callable[[], object]) -> float:
    """Milliseconds of a call within a CUDA graph of many, as a step runs it."""
    import torch

    from tremula.ir.cuda_capture import capturing

    n_calls = 20
    for _ in range(3):
        action()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with capturing(graph):
        for _ in range(n_calls):
            action()
    times = []
    for _ in range(7):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        graph.replay()
        end.record()
        torch.cuda.synchronize()
        times.append(begin.elapsed_time(end) / n_calls)
    return min(times)
