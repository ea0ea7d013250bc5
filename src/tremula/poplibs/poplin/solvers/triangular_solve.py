"""Triangular systems: A·X = B or X·A = B for a triangle A, panel by panel; triangular masks."""

# Fields of codelets are annotated with values, which pyright cannot see as types.
# pyright: reportInvalidTypeForm=false

from collections.abc import Iterator
from typing import Any

import numpy as np

from tremula.base.source import user_source
from tremula.base.types import FLOAT, HALF, Type, int32, uint32
from tremula.codelets import Input, MultiVertex, Output, Vector
from tremula.codelets.cost.slots import LAUNCH_CYCLES
from tremula.codelets.flops import no_flops
from tremula.codelets.spec import CostView
from tremula.hardware import Chip
from tremula.poplar.graph import Graph
from tremula.poplar.programs import Sequence
from tremula.poplar.tensors.tensor import Tensor
from tremula.poplar.vertices.bulk import Slices
from tremula.poplibs.counts import ceil_div
from tremula.poplibs.families import family
from tremula.poplibs.poplin.solvers.panels import (
    DEFAULT_WIDTH,
    START_SLOTS,
    Panels,
    PanelStep,
    add_panels,
    as_batch,
    check_square,
    check_width,
    copied_panels,
    panel_solve_codelet,
    panel_update_codelet,
)
from tremula.poplibs.poputil import tile_regions
from tremula.poplibs.poputil.steps import run_vertices
from tremula.poplibs.registry import ErrorCase, Op, PoplibsError, Sample, register


def triangular_solve(  # noqa: PLR0913 - PopLibs' own options
    graph: Graph,
    a: Tensor,
    b: Tensor,
    sequence: Sequence,
    name: str = "",
    *,
    left_side: bool = True,
    lower: bool = True,
    unit_diagonal: bool = False,
    transpose_a: bool = False,
    panel_width: int = DEFAULT_WIDTH,
) -> Tensor:
    """X with A·X = B, or X·A = B if not `left_side`; A is `a`'s named triangle, or its transpose.

    The other triangle of `a` is never read; with `unit_diagonal` its diagonal counts as 1.
    """
    name = name or "triangularSolve"
    check_width("triangular_solve", panel_width)
    batch_a, batch_b = _checked(a, b, left_side)
    # Every case is L·X = B with L lower: transposing and reversing are views.
    is_transposed = transpose_a == left_side
    batch_a = batch_a.dim_shuffle([0, 2, 1]) if is_transposed else batch_a
    batch_b = batch_b if left_side else batch_b.dim_shuffle([0, 2, 1])
    is_reversed = lower == is_transposed
    if is_reversed:
        batch_a, batch_b = batch_a.reverse(1).reverse(2), batch_b.reverse(1)
    triangle = copied_panels(graph, batch_a, sequence, f"{name}/a", panel_width)
    right = copied_panels(graph, batch_b, sequence, f"{name}/b", panel_width)
    if b.n_elems:
        for step in range(triangle.n_panels):
            _add_step(triangle, right, step, sequence, name, unit_diagonal)
    solved = right.matrix()
    solved = solved.reverse(1) if is_reversed else solved
    return (solved if left_side else solved.dim_shuffle([0, 2, 1])).reshape(b.shape)


def _checked(a: Tensor, b: Tensor, left_side: bool) -> tuple[Tensor, Tensor]:
    batch_a = as_batch("triangular_solve", a, "a")
    batch_b = as_batch("triangular_solve", b, "b")
    check_square("triangular_solve", a)
    n, side = a.shape[-1], b.shape[-2 if left_side else -1]
    if n != side or a.shape[:-2] != b.shape[:-2]:
        wanted = "[..., n, n_right]" if left_side else "[..., n_right, n]"
        raise PoplibsError(
            f"triangular_solve with a of shape {list(a.shape)} expected b of shape {wanted} with "
            f"n = {n} and the same batch, got {list(b.shape)}.",
            source=user_source(),
            hint="use left_side=False for X·A = B; broadcast the smaller batch",
        )
    return batch_a, batch_b


def _add_step(
    triangle: Panels, right: Panels, step: int, sequence: Sequence, name: str, is_unit: bool
) -> None:
    """Solve for the rows of one panel of the triangle, and eliminate them from the rows below."""
    n = triangle.n_rows
    first, end = int(triangle.first_column(step)), int(triangle.first_column(step + 1))
    batch, panel = right.every(0, right.n_panels)
    source = np.full_like(panel, step)
    PanelStep(right, sequence, f"{name}/solve").run(
        panel_solve_codelet(),
        batch,
        panel,
        {
            "out": right.rows(batch, panel, first, end),
            "triangle": triangle.rows(batch, source, first, end),
            "n_columns": right.widths(panel),
            "stride": end - first,
            "is_unit": int(is_unit),
        },
    )
    if end == n:
        return
    PanelStep(right, sequence, f"{name}/update").subtract_product(
        (batch, panel),
        right.rows(batch, panel, end, n),
        triangle.rows(batch, source, end, n),
        right.rows(batch, panel, first, end),
        n_inner=end - first,
        left_stride=end - first,
    )


def create_triangular_solve_input_lhs(
    graph: Graph, shape: tuple[int, ...], name: str = "", *, panel_width: int = DEFAULT_WIDTH
) -> Tensor:
    """A float tensor for `a` of a lower, left-sided solve, its columns where they are used."""
    return _created(graph, shape, name or "a", panel_width)


def create_triangular_solve_input_rhs(
    graph: Graph, shape: tuple[int, ...], name: str = "", *, panel_width: int = DEFAULT_WIDTH
) -> Tensor:
    """A float tensor for `b` of a left-sided solve, its columns where they are used."""
    return _created(graph, shape, name or "b", panel_width)


def _created(graph: Graph, shape: tuple[int, ...], name: str, width: int) -> Tensor:
    *batch, n_rows, n_columns = shape
    sizes = (int(np.prod(batch)), n_rows, n_columns)
    return add_panels(graph, sizes, name, width).matrix().reshape(shape)


def triangular_mask(
    graph: Graph,
    a: Tensor,
    sequence: Sequence,
    name: str = "",
    *,
    lower: bool = True,
    unit_diagonal: bool = False,
) -> Tensor:
    """The named triangle of matrices, zeros elsewhere; with `unit_diagonal` a diagonal of ones."""
    if a.rank < 2 or a.type not in (FLOAT, HALF):
        raise PoplibsError(
            f"triangular_mask expected float or half of shape [..., n_rows, n_columns], got "
            f"{a.type} {list(a.shape)}.",
            source=user_source(),
            hint="give matrices; leading dimensions are a batch",
        )
    out = graph.add_variable(a.type, a.shape, name or "triangularMask", mapping="linear")
    regions = tile_regions(graph, out)
    if not out.n_elems:
        return out
    run_vertices(
        graph,
        triangular_mask_codelet(a.type),
        {
            "a": Slices(a, regions.begin, regions.end),
            "out": Slices(out, regions.begin, regions.end),
            "first": regions.begin % (a.shape[-2] * a.shape[-1]),
            "n_rows": a.shape[-2],
            "n_columns": a.shape[-1],
            "sign": 1 if lower else -1,
            "is_unit": int(unit_diagonal),
        },
        regions.tile,
        sequence,
        name or "triangularMask",
    )
    return out


@family
def triangular_mask_codelet(element: Type) -> type:
    """A triangle of an interval of flattened matrices; the workers share the interval."""

    class TriangularMask(MultiVertex):
        name = f"poplin::TriangularMask<{element}>"
        provenance = "derived"
        a: Input[Vector[element]]
        out: Output[Vector[element]]
        first: uint32  # where in its matrix the interval begins
        n_rows: uint32
        n_columns: uint32
        sign: int32  # 1 keeps what is below the diagonal, -1 what is above
        is_unit: uint32

        def compute(self: Any, worker_id: int) -> None:
            a, out, n = self.a, self.out, len(self.out)
            n_columns, n_rows, sign = int(self.n_columns), int(self.n_rows), int(self.sign)
            begin, end = n * worker_id // self.n_workers, n * (worker_id + 1) // self.n_workers
            at = begin + int(self.first)
            row, column = at // n_columns % n_rows, at % n_columns
            for i in range(begin, end):
                below = (row - column) * sign
                value = a[i] if below >= 0 else element(0)
                out[i] = element(1) if self.is_unit != 0 and below == 0 else value
                column += 1
                if column == n_columns:
                    column = 0
                    row = row + 1 if row + 1 < n_rows else 0

        @staticmethod
        def cycles(v: CostView, chip: Chip) -> np.ndarray:
            # The published 5 slots of a select, and the division that finds the first row.
            worker = START_SLOTS + 280 + 5 * ceil_div(v.sizes["out"], chip.n_workers)
            return LAUNCH_CYCLES + chip.n_workers * worker

        flops = no_flops

    return TriangularMask


# -- registry --------------------------------------------------------------------------------------

_SOLVE_CASES = (
    ((1, 1), (1, 1), {}),
    ((5, 5), (5, 3), {"lower": False}),
    ((20, 20), (20, 18), {}),
    ((2, 6, 6), (2, 4, 6), {"left_side": False, "unit_diagonal": True, "panel_width": 4}),
    ((9, 9), (2, 9), {"left_side": False, "lower": False, "panel_width": 2}),
    ((2, 3, 5, 5), (2, 3, 5, 1), {"transpose_a": True}),
    ((6, 6), (6, 5), {"transpose_a": True, "lower": False, "panel_width": 4}),
    ((6, 6), (5, 6), {"transpose_a": True, "left_side": False, "unit_diagonal": True}),
    ((3, 3), (3, 0), {}),
)


def _solve_samples(type: Type, rng: np.random.Generator) -> Iterator[Sample]:
    for a_shape, b_shape, options in _SOLVE_CASES:
        a = rng.uniform(-0.5, 0.5, a_shape) + 2 * np.eye(a_shape[-1])
        b = rng.standard_normal(b_shape)
        yield Sample((a.astype(type.dtype), b.astype(type.dtype)), options)


def _solve_reference(
    a: np.ndarray,
    b: np.ndarray,
    *,
    left_side: bool = True,
    lower: bool = True,
    unit_diagonal: bool = False,
    transpose_a: bool = False,
    panel_width: int = 0,
) -> np.ndarray:
    del panel_width
    a = np.tril(a) if lower else np.triu(a)
    if unit_diagonal:
        eye = np.eye(a.shape[-1], dtype=a.dtype)
        a = a * (1 - eye) + eye
    a = (a.swapaxes(-1, -2) if transpose_a else a).astype(np.float64)
    if left_side:
        return np.linalg.solve(a, b.astype(np.float64)).astype(np.float32)
    solved = np.linalg.solve(a.swapaxes(-1, -2), b.swapaxes(-1, -2).astype(np.float64))
    return solved.swapaxes(-1, -2).astype(np.float32)


def _mask_samples(type: Type, rng: np.random.Generator) -> Iterator[Sample]:
    shapes = ((1, 1), (4, 4), (3, 5), (2, 5, 3))
    for number, shape in enumerate(shapes):
        lower, unit = number < 2, number in (0, 3)
        a = rng.standard_normal(shape).astype(type.dtype)
        yield Sample((a,), {"lower": lower, "unit_diagonal": unit})


def _mask_reference(
    a: np.ndarray, *, lower: bool = True, unit_diagonal: bool = False
) -> np.ndarray:
    triangle = np.tril(a) if lower else np.triu(a)
    is_diagonal = np.eye(*a.shape[-2:], dtype=bool)
    return np.where(is_diagonal & unit_diagonal, np.ones_like(a), triangle)


_SQUARE = np.ones((3, 3), np.float32)

register(
    Op(
        name="poplin.triangular_solve",
        function=triangular_solve,
        about="The solution of a triangular system.",
        types=(FLOAT,),
        samples=_solve_samples,
        reference=_solve_reference,
        codelets=(panel_solve_codelet, panel_update_codelet),
        errors=(
            ErrorCase(Sample((_SQUARE, np.ones((2, 3), np.float32))), "expected b of shape"),
            ErrorCase(Sample((_SQUARE[:2], _SQUARE)), "expected square matrices"),
            ErrorCase(
                Sample((_SQUARE, _SQUARE.astype(np.float16))), "works on float, got b of half"
            ),
        ),
        tolerance={"FLOAT": 1e-4},
    )
)
register(
    Op(
        name="poplin.triangular_mask",
        function=triangular_mask,
        about="The lower or upper triangle of matrices, zeros elsewhere.",
        types=(FLOAT, HALF),
        samples=_mask_samples,
        reference=_mask_reference,
        codelets=(triangular_mask_codelet,),
        errors=(ErrorCase(Sample((np.ones(3, np.float32),)), "[..., n_rows, n_columns], got"),),
    )
)
