"""Generated kernels compile for kinds of GPUs that are not there; needs Triton, so skips without.

`pytest -m wide` of this file sweeps over layers of PyG, widths and types.
"""

import os
from collections import Counter
from concurrent.futures import Future
from pathlib import Path

import pytest
import torch

from tests.ir.host.graph_kernels.offline_sweep import (
    AMPERE,
    BLACKWELL,
    HOPPER,
    LAYERS,
    TYPES,
    WIDTHS,
    failures,
    fused_kernels,
    is_too_large,
    step_of_layer,
)
from tremula.ir.host.graph_kernels import kernels
from tremula.ir.host.graph_kernels.compile_ahead import KernelRequest, compile_ahead
from tremula.ir.host.graph_kernels.kernels import KernelLaunch, RowKernel, has_triton
from tremula.ir.host.graph_kernels.offline import error_line

needs_triton = pytest.mark.skipif(not has_triton(), reason="needs Triton")
N_PROCESSES = min(8, os.cpu_count() or 1)


@needs_triton
@pytest.mark.parametrize("capability", [AMPERE, HOPPER, BLACKWELL])
def test_kernels_of_a_layer_compile_without_a_gpu(capability: int):
    """Every candidate of every form, or it needs more memory than the GPU has and says so."""
    each = fused_kernels(lambda: step_of_layer("GINEConv", 32, torch.float32))
    assert each
    failed = list(failures(each[:3], [capability], N_PROCESSES))
    assert all(is_too_large(failure.reason) for failure in failed), failed


@needs_triton
@pytest.mark.wide
@pytest.mark.parametrize("dtype", TYPES, ids=str)
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("layer", LAYERS)
def test_all_kernels_of_pyg_compile(layer: str, width: int, dtype: torch.dtype):
    """For three generations of GPUs; a candidate may be too large, but not all may."""
    each = fused_kernels(lambda: step_of_layer(layer, width, dtype))
    assert each
    capabilities = AMPERE, HOPPER, BLACKWELL
    failed = list(failures(each, capabilities, N_PROCESSES))
    assert all(is_too_large(failure.reason) for failure in failed), failed
    n_failed = Counter((failure.kernel, failure.capability) for failure in failed)
    for number, kernel in enumerate(each):
        for capability in capabilities:
            n_candidates = len(kernels.candidates_of(kernel, capability == HOPPER))
            assert n_failed[number, capability] < n_candidates, f"{capability}: no candidate fits"


def test_an_error_of_the_compiler_is_one_line(tmp_path: Path):
    """A text that is not Triton, or a process without Triton, answers; nothing is printed."""
    text = tmp_path / "broken.py"
    text.write_text("raise SyntaxError('first line\\nsecond line')\n")
    (answer,) = compile_ahead([KernelRequest(str(text), ("float32",), {}, HOPPER)], 1)
    assert "\n" not in str(answer.result(60)["error"])


def test_the_reason_of_the_assembler_is_reported():
    """Triton quotes it below thousands of lines of assembly."""
    text = "PTXAS error: Internal error\n.b8 0\nptxas fatal   : Insufficient registers (128)\nmore"
    assert error_line(RuntimeError(text)) == "ptxas fatal   : Insufficient registers (128)"
    assert error_line(ValueError("\nno such type\nat line 3")) == "no such type"
    assert error_line(ValueError()) == "ValueError"


def test_candidates_that_do_not_compile_or_fit_are_not_started(monkeypatch: pytest.MonkeyPatch):
    """What the processes say decides; without their answer a candidate is tried here."""
    monkeypatch.setattr(kernels, "_shared_memory", lambda _index: 1000)
    kernel = RowKernel(
        "text", 16, (), (), False, 0, False, torch.fx.GraphModule({}, torch.fx.Graph())
    )
    answers = {1: {"error": "no"}, 2: {"shared": 1001}, 3: {"shared": 1000}, 4: {}}
    for block, answer in answers.items():
        future: Future[dict[str, object]] = Future()
        future.set_result(answer)
        kernel.ahead[KernelLaunch(block, 4, False)] = future
    cpu = torch.device("cpu")
    fine = [b for b in range(1, 6) if kernels._can_compile(kernel, KernelLaunch(b, 4, False), cpu)]
    assert fine == [3, 4, 5]


def _in_gluon(outer_tiles: int, n_rows: int) -> RowKernel:
    """A kernel with a matrix of 64 KB, and tiles of 512 bytes a row for outer products."""
    tile = "t = gl.allocate_shared_memory(gl.float32, [128, BLOCK], layout)\n"
    text = "w = gl.allocate_shared_memory(gl.float32, [128, 128], layout)\n" + outer_tiles * tile
    graph = torch.fx.GraphModule({}, torch.fx.Graph())
    return RowKernel(
        "text", n_rows, (), (), False, 2, outer_tiles > 0, graph, {kernels.GLUON: text}
    )


@pytest.mark.parametrize(
    ("outer_tiles", "n_rows", "expected"),
    [
        (0, 1 << 20, [(64, 4), (64, 8), (128, 8), (128, 8)]),
        (1, 1 << 20, [(64, 4), (64, 8), (128, 8)]),  # two of 128 rows: 256 KB
        (2, 1 << 20, [(64, 4), (64, 8), (128, 8)]),
        (3, 1 << 20, [(64, 4), (64, 8)]),  # one of 128 rows: 256 KB
        (3, 1 << 10, [(64, 4), (64, 8)]),
    ],
)
def test_candidates_in_gluon_fit_into_shared_memory(
    outer_tiles: int, n_rows: int, expected: list[tuple[int, int]]
):
    """A multiprocessor has 223 KB; with limited registers it has two programs, if both fit."""
    every = kernels.candidates_of(_in_gluon(outer_tiles, n_rows), has_units=True)
    assert [(c.block, c.n_warps) for c in every if c.form == kernels.GLUON] == expected


def test_outer_products_are_summed_by_few_programs():
    """Each adds its sum to memory: one or two of a multiprocessor, with or without matrices."""
    graph = torch.fx.GraphModule({}, torch.fx.Graph())
    kernel = RowKernel("text", 1 << 20, (), (), True, 0, True, graph)
    every = kernels.candidates_of(kernel, has_units=True)
    assert every
    assert max(launch.per_processor for launch in every) <= 2


def test_shared_memory_is_counted_in_bytes_of_its_types():
    """Sides are numbers or the rows of a tile."""
    text = "gl.allocate_shared_memory(gl.bfloat16, [64, BLOCK], layout)"
    assert kernels.shared_bytes(text, 32) == 64 * 32 * 2
