"""Cholesky factors of symmetric positive definite matrices, panel by panel."""

# Fields of codelets are annotated with values, which pyright cannot see as types.
# pyright: reportInvalidTypeForm=false

from collections.abc import Iterator
from math import sqrt
from typing import Any

import numpy as np

from tremula.base.types import FLOAT, Type, float32, uint32
from tremula.codelets import InOut, Input, MultiVertex, Vector, Vertex
from tremula.codelets.cost.slots import LAUNCH_CYCLES
from tremula.codelets.spec import CostView
from tremula.hardware import Chip
from tremula.poplar.graph import Graph
from tremula.poplar.programs import Copy, Sequence
from tremula.poplar.tensors.tensor import Tensor
from tremula.poplibs.counts import ceil_div
from tremula.poplibs.families import family
from tremula.poplibs.poplin.solvers.panels import (
    DEFAULT_WIDTH,
    DIVIDE_SLOTS,
    SQRT_SLOTS,
    START_SLOTS,
    Panels,
    PanelStep,
    add_panels,
    as_batch,
    check_square,
    check_width,
    copied_panels,
    panel_update_codelet,
    state,
    sum_below,
)
from tremula.poplibs.registry import ErrorCase, Op, Sample, register


def cholesky(
    graph: Graph,
    matrix: Tensor,
    sequence: Sequence,
    name: str = "",
    *,
    lower: bool = True,
    panel_width: int = DEFAULT_WIDTH,
) -> Tensor:
    """L with L·Lᵀ = matrix, zero above its diagonal; with lower=False, Lᵀ.

    Only the named triangle of the matrix is read. A matrix that is not positive definite gives NaN.
    """
    batch = as_batch("cholesky", matrix)
    check_square("cholesky", matrix)
    check_width("cholesky", panel_width)
    name = name or "cholesky"
    view = batch if lower else batch.dim_shuffle([0, 2, 1])
    panels = copied_panels(graph, view, sequence, name, panel_width)
    for step in range(panels.n_panels if panels.n_batches else 0):
        _add_step(panels, step, sequence, name)
    factor = panels.matrix()
    return (factor if lower else factor.dim_shuffle([0, 2, 1])).reshape(matrix.shape)


def cholesky_in_place(
    graph: Graph,
    matrix: Tensor,
    sequence: Sequence,
    name: str = "",
    *,
    lower: bool = True,
    panel_width: int = DEFAULT_WIDTH,
) -> None:
    """Overwrite a matrix with its Cholesky factor."""
    factor = cholesky(graph, matrix, sequence, name, lower=lower, panel_width=panel_width)
    sequence.add(Copy(factor, matrix))


def create_cholesky_input(
    graph: Graph,
    shape: tuple[int, ...],
    name: str = "",
    *,
    lower: bool = True,
    panel_width: int = DEFAULT_WIDTH,
) -> Tensor:
    """A float tensor whose columns lie where `cholesky` works on them."""
    *batch, n_rows, n_columns = shape
    sizes = (int(np.prod(batch)), n_rows, n_columns)
    matrix = add_panels(graph, sizes, name or "choleskyInput", panel_width).matrix()
    return (matrix if lower else matrix.dim_shuffle([0, 2, 1])).reshape(shape)


def _add_step(panels: Panels, step: int, sequence: Sequence, name: str) -> None:
    """Factor one panel, and subtract its products from the panels to its right."""
    n = panels.n_rows
    first, end = int(panels.first_column(step)), int(panels.first_column(step + 1))
    batch, panel = panels.every(step, step + 1)
    PanelStep(panels, sequence, f"{name}/factor").run(
        cholesky_block_codelet(),
        batch,
        panel,
        {"block": panels.rows(batch, panel, 0, end), "n_columns": end - first},
    )
    if end == n:
        return
    PanelStep(panels, sequence, f"{name}/below").run(
        cholesky_below_codelet(),
        batch,
        panel,
        {
            "below": panels.rows(batch, panel, end, n),
            "block": panels.rows(batch, panel, first, end),
            "n_columns": end - first,
        },
    )
    batch, panel = panels.every(step + 1, panels.n_panels)
    source = np.full_like(panel, step)
    row, row_end = panels.first_column(panel), panels.first_column(panel + 1)
    PanelStep(panels, sequence, f"{name}/update").subtract_product(
        (batch, panel),
        panels.rows(batch, panel, row, n),
        panels.rows(batch, source, row, n),
        panels.rows(batch, source, row, row_end),
        n_inner=end - first,
        left_stride=end - first,
        is_right_transposed=True,
    )


@family
def cholesky_block_codelet() -> type:
    """The factor of a panel's square block; everything above its diagonal becomes zero."""

    class CholeskyBlock(Vertex):
        name = "poplin::CholeskyBlock<float>"
        provenance = "derived"
        block: InOut[Vector[float32]]  # the rows of the panel down to the block's last
        n_columns: uint32

        def compute(self: Any) -> None:
            block, n = self.block, int(self.n_columns)
            top = len(self.block) - n * n
            for i in range(top):
                block[i] = float32(0)
            for j in range(n):
                total = block[top + j * n + j]
                for k in range(j):
                    total -= block[top + j * n + k] * block[top + j * n + k]
                pivot = float32(sqrt(total))
                block[top + j * n + j] = pivot
                for i in range(j):
                    block[top + i * n + j] = float32(0)
                for i in range(j + 1, n):
                    total = block[top + i * n + j]
                    for k in range(j):
                        total -= block[top + i * n + k] * block[top + j * n + k]
                    block[top + i * n + j] = total / pivot

        @staticmethod
        def cycles(v: CostView, chip: Chip) -> np.ndarray:  # noqa: ARG004
            n = state(v, "n_columns")
            clearing = v.sizes["block"] - n * n + n * (n - 1) // 2
            dots = n * (n + 1) * (n + 2) // 6 * 2  # two loads per multiply-add
            roots = n * (SQRT_SLOTS + 8) + n * (n - 1) // 2 * (DIVIDE_SLOTS + 8)
            return START_SLOTS + clearing + dots + roots

        @staticmethod
        def flops(v: CostView, chip: Chip) -> np.ndarray:  # noqa: ARG004
            n = state(v, "n_columns")
            # A column: products with the columns before it, a root, a division for each row below.
            return sum_below(n, lambda j: (n - j) * (2 * j + 1))

    return CholeskyBlock


@family
def cholesky_below_codelet() -> type:
    """The rows below a factored block: X·Lᵀ = rows, solved in place; the workers share the rows."""

    class CholeskyBelow(MultiVertex):
        name = "poplin::CholeskyBelow<float>"
        provenance = "derived"
        below: InOut[Vector[float32]]
        block: Input[Vector[float32]]
        n_columns: uint32

        def compute(self: Any, worker_id: int) -> None:
            below, block, n = self.below, self.block, int(self.n_columns)
            n_rows = len(self.below) // n
            begin = n_rows * worker_id // self.n_workers
            end = n_rows * (worker_id + 1) // self.n_workers
            for i in range(begin, end):
                for j in range(n):
                    total = below[i * n + j]
                    for k in range(j):
                        total -= below[i * n + k] * block[j * n + k]
                    below[i * n + j] = total / block[j * n + j]

        @staticmethod
        def cycles(v: CostView, chip: Chip) -> np.ndarray:
            n = state(v, "n_columns")
            rows = ceil_div(v.sizes["below"] // n, chip.n_workers)
            per_row = n * (n - 1) // 2 * 2 + n * (DIVIDE_SLOTS + 8)
            return LAUNCH_CYCLES + chip.n_workers * (START_SLOTS + rows * per_row)

        @staticmethod
        def flops(v: CostView, chip: Chip) -> np.ndarray:  # noqa: ARG004
            return v.sizes["below"] * state(v, "n_columns")  # n (n - 1) / 2 products, n divisions

    return CholeskyBelow


# -- registry --------------------------------------------------------------------------------------


def _positive_definite(shape: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
    root = rng.standard_normal(shape)
    product = root @ root.swapaxes(-1, -2) + shape[-1] * np.eye(shape[-1])
    return product.astype(np.float32)


def _samples(type: Type, rng: np.random.Generator) -> Iterator[Sample]:
    assert type is FLOAT, type
    for shape in ((1, 1), (5, 5), (2, 7, 7), (35, 35), (0, 3, 3), (0, 0)):
        yield Sample((_positive_definite(shape, rng),))
    for width in (1, 3):
        options = {"lower": False, "panel_width": width}
        yield Sample((_positive_definite((2, 2, 8, 8), rng),), options)


def _reference(matrix: np.ndarray, *, lower: bool = True, panel_width: int = 0) -> np.ndarray:
    del panel_width
    factor = np.linalg.cholesky(matrix.astype(np.float64))
    return (factor if lower else factor.swapaxes(-1, -2)).astype(np.float32)


def _entry(name: str, function: object, about: str, *, is_in_place: bool) -> Op:
    return Op(
        name=name,
        function=function,  # pyright: ignore[reportArgumentType]
        about=about,
        types=(FLOAT,),
        samples=_samples,
        reference=_reference,
        codelets=(cholesky_block_codelet, cholesky_below_codelet, panel_update_codelet),
        errors=(
            ErrorCase(Sample((np.ones((2, 3), np.float32),)), "expected square matrices"),
            ErrorCase(Sample((np.ones(3, np.float32),)), "[..., n_rows, n_columns], got [3]"),
            ErrorCase(Sample((np.ones((2, 2), np.float16),)), "works on float, got the matrix of"),
            ErrorCase(
                Sample((np.ones((2, 2), np.float32),), {"panel_width": 0}), "a panel_width of 0"
            ),
        ),
        tolerance={"FLOAT": 1e-4},
        is_in_place=is_in_place,
    )


register(_entry("poplin.cholesky", cholesky, "The Cholesky factor of a matrix.", is_in_place=False))
register(
    _entry(
        "poplin.cholesky_in_place",
        cholesky_in_place,
        "The Cholesky factor of a matrix, written over it.",
        is_in_place=True,
    )
)
