"""LU factors with partial pivoting, panel by panel: each step exchanges rows, largest first."""

# Fields of codelets are annotated with values, which pyright cannot see as types.
# pyright: reportInvalidTypeForm=false, reportOperatorIssue=false

from collections.abc import Iterator
from math import fabs
from typing import Any

import numpy as np

from tremula.base.source import user_source
from tremula.base.types import FLOAT, INT, Type, float32, int32, uint32
from tremula.codelets import InOut, Input, MultiVertex, Output, Vector, Vertex
from tremula.codelets.cost.slots import LAUNCH_CYCLES
from tremula.codelets.flops import no_flops
from tremula.codelets.spec import CostView
from tremula.hardware import Chip
from tremula.poplar.graph import Graph
from tremula.poplar.programs import Sequence
from tremula.poplar.tensors.tensor import Tensor
from tremula.poplar.tensors.tile_map import TileMapping
from tremula.poplar.vertices.bulk import Slices
from tremula.poplibs.counts import ceil_div
from tremula.poplibs.families import family
from tremula.poplibs.poplin.solvers.panels import (
    DEFAULT_WIDTH,
    DIVIDE_SLOTS,
    START_SLOTS,
    Panels,
    PanelStep,
    as_batch,
    check_width,
    copied_panels,
    panel_solve_codelet,
    panel_update_codelet,
    state,
    sum_below,
)
from tremula.poplibs.poplin.solvers.triangular_solve import triangular_mask, triangular_mask_codelet
from tremula.poplibs.poputil.steps import run_vertices
from tremula.poplibs.registry import ErrorCase, Op, PoplibsError, Sample, register


def lu_factorization(
    graph: Graph,
    matrix: Tensor,
    sequence: Sequence,
    name: str = "",
    *,
    panel_width: int = DEFAULT_WIDTH,
) -> tuple[Tensor, Tensor, Tensor]:
    """(L, U, permutation) with matrix[permutation] = L·U; the permutation is int [..., n_rows].

    L is [..., n_rows, k] with ones on its diagonal, U is [..., k, n_columns], k the smaller size. A
    singular matrix gives a zero on U's diagonal, and infinities or NaN in L.
    """
    name = name or "lu"
    packed, pivots = lu_packed(graph, matrix, sequence, name, panel_width=panel_width)
    n_rows, n_columns = matrix.shape[-2:]
    k = min(n_rows, n_columns)
    lower = packed[..., :, :k]
    lower = triangular_mask(graph, lower, sequence, f"{name}/lower", unit_diagonal=True)
    upper = triangular_mask(graph, packed[..., :k, :], sequence, f"{name}/upper", lower=False)
    order = permutation_of_pivots(graph, pivots, sequence, f"{name}/permutation", n_rows=n_rows)
    return lower, upper, order


def lu_packed(
    graph: Graph,
    matrix: Tensor,
    sequence: Sequence,
    name: str = "",
    *,
    panel_width: int = DEFAULT_WIDTH,
) -> tuple[Tensor, Tensor]:
    """(L below the diagonal and U on and above it, as one matrix; pivots).

    Step i exchanged row i with row pivots[i], as LAPACK's getrf (counting from 0).
    """
    batch = as_batch("lu", matrix)
    check_width("lu", panel_width)
    panels = copied_panels(graph, batch, sequence, name or "lu", panel_width)
    k = min(batch.shape[1:])
    pivots = _add_pivots(panels, k, name or "lu")
    if matrix.n_elems:
        for step in range(-(-k // panel_width)):
            _add_step(panels, pivots, step, sequence, name or "lu")
    return panels.matrix().reshape(matrix.shape), pivots.reshape((*matrix.shape[:-2], k))


def _add_pivots(panels: Panels, k: int, name: str) -> Tensor:
    """Pivots, int [n_batches, k]: each panel's lie on its tile."""
    pivots = panels.graph.add_variable(INT, [panels.n_batches, k], f"{name}/pivots")
    n_steps = -(-k // panels.width)
    batch, panel = panels.every(0, n_steps)
    begin = batch * k + panels.first_column(panel)
    end = batch * k + np.minimum(panels.first_column(panel + 1), k)
    n_tiles = panels.graph.target.n_tiles
    mapping = TileMapping(begin, end, panels.tiles(batch, panel), n_tiles)
    panels.graph.set_tile_mapping(pivots, mapping)
    return pivots


def _add_step(panels: Panels, pivots: Tensor, step: int, sequence: Sequence, name: str) -> None:
    """Factor one panel, exchange rows of all others, and eliminate from those to its right."""
    n_rows, k = panels.n_rows, pivots.shape[1]
    first, end = int(panels.first_column(step)), int(panels.first_column(step + 1))
    last = min(end, k)  # rows first … last are done after this step

    batch, panel = panels.every(0, panels.n_panels)
    for what, codelet, chosen in (
        ("factor", lu_panel_codelet(), panel == step),
        ("exchange", exchange_rows_codelet(), panel != step),
    ):
        of_batch, of_panel = batch[chosen], panel[chosen]
        fields = {
            "panel": panels.rows(of_batch, of_panel, first, n_rows),
            "pivots": Slices(pivots, of_batch * k + first, of_batch * k + last),
            "n_columns": panels.widths(of_panel),
            "first_row": first,
        }
        PanelStep(panels, sequence, f"{name}/{what}").run(codelet, of_batch, of_panel, fields)
    _eliminate(panels, step, last, sequence, name)


def _eliminate(panels: Panels, step: int, last: int, sequence: Sequence, name: str) -> None:
    n_rows, first = panels.n_rows, int(panels.first_column(step))
    stride = int(panels.widths(step))
    batch, panel = panels.every(step + 1, panels.n_panels)
    source = np.full_like(panel, step)
    PanelStep(panels, sequence, f"{name}/solve").run(
        panel_solve_codelet(),
        batch,
        panel,
        {
            "out": panels.rows(batch, panel, first, last),
            "triangle": panels.rows(batch, source, first, last),
            "n_columns": panels.widths(panel),
            "stride": stride,
            "is_unit": 1,
        },
    )
    if last == n_rows:
        return
    PanelStep(panels, sequence, f"{name}/update").subtract_product(
        (batch, panel),
        panels.rows(batch, panel, last, n_rows),
        panels.rows(batch, source, last, n_rows),
        panels.rows(batch, panel, first, last),
        n_inner=last - first,
        left_stride=stride,
    )


def permutation_of_pivots(
    graph: Graph, pivots: Tensor, sequence: Sequence, name: str = "", *, n_rows: int
) -> Tensor:
    """Int [..., n_rows]: where each row of L·U stood in the matrix that gave `pivots` [..., k]."""
    if not pivots.rank:
        raise PoplibsError(
            "permutation_of_pivots: pivots is a scalar, expected pivots [..., k].",
            source=user_source(),
            hint="pass what lu_packed returns beside the factors",
        )
    n_batches = int(np.prod(pivots.shape[:-1]))
    name = name or "permutation"
    permutation = graph.add_variable(INT, [n_batches, n_rows], name)
    rows = np.arange(n_batches)
    tiles = rows % graph.target.n_tiles
    mapping = TileMapping(rows * n_rows, (rows + 1) * n_rows, tiles, graph.target.n_tiles)
    graph.set_tile_mapping(permutation, mapping)
    if permutation.n_elems:
        flat = pivots.reshape((n_batches, pivots.shape[-1]))
        fields = {"pivots": flat, "permutation": permutation}
        run_vertices(graph, permutation_codelet(), fields, tiles, sequence, name)
    return permutation.reshape((*pivots.shape[:-1], n_rows))


@family
def lu_panel_codelet() -> type:
    """The factors of one panel, in place, and which rows were exchanged."""

    class LUPanel(Vertex):
        name = "poplin::LUPanel<float>"
        provenance = "derived"
        panel: InOut[Vector[float32]]
        pivots: Output[Vector[int32]]
        n_columns: uint32
        first_row: uint32

        def compute(self: Any) -> None:
            panel, n = self.panel, int(self.n_columns)
            n_rows, first = len(self.panel) // n, int(self.first_row)
            for j in range(len(self.pivots)):
                best, largest = j, float32(fabs(panel[j * n + j]))
                for i in range(j + 1, n_rows):
                    size = float32(fabs(panel[i * n + j]))
                    if size > largest:
                        best, largest = i, size
                self.pivots[j] = int32(best + first)
                for c in range(n):
                    swapped = panel[j * n + c]
                    panel[j * n + c] = panel[best * n + c]
                    panel[best * n + c] = swapped
                pivot = panel[j * n + j]
                for i in range(j + 1, n_rows):
                    factor = panel[i * n + j] / pivot
                    panel[i * n + j] = factor
                    for c in range(j + 1, n):
                        panel[i * n + c] -= factor * panel[j * n + c]

        @staticmethod
        def cycles(v: CostView, chip: Chip) -> np.ndarray:  # noqa: ARG004
            n, n_pivots = state(v, "n_columns"), v.sizes["pivots"]
            rows = v.sizes["panel"] // n
            below = n_pivots * rows - n_pivots * (n_pivots + 1) // 2
            # A row below a pivot: 4 slots to find the largest, a division, half its columns in
            # vectors of two at 3 slots; an exchange takes 2 slots per vector of either row.
            per_row = 4 + DIVIDE_SLOTS + 4 + 3 * ceil_div(n, 4)
            return START_SLOTS + n_pivots * (20 + 4 * ceil_div(n, 2)) + below * per_row

        @staticmethod
        def flops(v: CostView, chip: Chip) -> np.ndarray:  # noqa: ARG004
            n, n_rows = state(v, "n_columns"), v.sizes["panel"] // state(v, "n_columns")
            # Per row below a pivot: a comparison, a division, a product and a sum in each column.
            return sum_below(v.sizes["pivots"], lambda j: (n_rows - 1 - j) * 2 * (n - j))

    return LUPanel


@family
def exchange_rows_codelet() -> type:
    """Exchange the rows of a panel that another panel's pivots name; workers share columns."""

    class ExchangeRows(MultiVertex):
        name = "poplin::ExchangeRows<float>"
        provenance = "derived"
        panel: InOut[Vector[float32]]
        pivots: Input[Vector[int32]]
        n_columns: uint32
        first_row: uint32

        def compute(self: Any, worker_id: int) -> None:
            panel, n, first = self.panel, int(self.n_columns), int(self.first_row)
            for j in range(len(self.pivots)):
                other = int(self.pivots[j]) - first
                begin = n * worker_id // self.n_workers
                end = n * (worker_id + 1) // self.n_workers
                for c in range(begin, end):
                    swapped = panel[j * n + c]
                    panel[j * n + c] = panel[other * n + c]
                    panel[other * n + c] = swapped

        @staticmethod
        def cycles(v: CostView, chip: Chip) -> np.ndarray:
            columns = ceil_div(state(v, "n_columns"), chip.n_workers)
            worker = START_SLOTS + v.sizes["pivots"] * (8 + 4 * columns)
            return LAUNCH_CYCLES + chip.n_workers * worker

        flops = no_flops

    return ExchangeRows


@family
def permutation_codelet() -> type:
    """The permutation that a list of exchanges makes."""

    class PermutationOfPivots(Vertex):
        name = "poplin::PermutationOfPivots"
        provenance = "derived"
        pivots: Input[Vector[int32]]
        permutation: Output[Vector[int32]]

        def compute(self: Any) -> None:
            for i in range(len(self.permutation)):
                self.permutation[i] = int32(i)
            for j in range(len(self.pivots)):
                other = int(self.pivots[j])
                swapped = self.permutation[j]
                self.permutation[j] = self.permutation[other]
                self.permutation[other] = swapped

        @staticmethod
        def cycles(v: CostView, chip: Chip) -> np.ndarray:  # noqa: ARG004
            return START_SLOTS + 2 * v.sizes["permutation"] + 8 * v.sizes["pivots"]

        flops = no_flops

    return PermutationOfPivots


# -- registry --------------------------------------------------------------------------------------


def _samples(type: Type, rng: np.random.Generator) -> Iterator[Sample]:
    for shape in ((1, 1), (6, 6), (2, 7, 4), (2, 2, 4, 7), (20, 34), (37, 20), (0, 2, 2)):
        yield Sample((rng.standard_normal(shape).astype(type.dtype),))
    for width in (1, 3):
        matrix = rng.standard_normal((2, 7, 8)).astype(type.dtype)
        yield Sample((matrix,), {"panel_width": width})


def _packed_reference(matrix: np.ndarray, *, panel_width: int = 0) -> tuple[np.ndarray, np.ndarray]:
    del panel_width
    *batch, n_rows, n_columns = matrix.shape
    work = matrix.reshape((int(np.prod(batch)), n_rows, n_columns)).astype(np.float64)
    k = min(n_rows, n_columns)
    pivots = np.zeros((len(work), k), np.int32)
    for one, exchanges in zip(work, pivots, strict=True):
        for j in range(k):
            exchanges[j] = best = j + int(np.argmax(np.abs(one[j:, j])))
            one[[j, best]] = one[[best, j]]
            one[j + 1 :, j] /= one[j, j]
            one[j + 1 :, j + 1 :] -= np.outer(one[j + 1 :, j], one[j, j + 1 :])
    return work.reshape(matrix.shape).astype(np.float32), pivots.reshape((*batch, k))


def _reference(
    matrix: np.ndarray, *, panel_width: int = 0
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    packed, pivots = _packed_reference(matrix, panel_width=panel_width)
    n_rows, n_columns = matrix.shape[-2:]
    k = min(n_rows, n_columns)
    lower = np.tril(packed[..., :k], -1) + np.eye(n_rows, k, dtype=np.float32)
    return lower, np.triu(packed[..., :k, :]), _order_reference(pivots, n_rows=n_rows)


def _pivot_samples(type: Type, rng: np.random.Generator) -> Iterator[Sample]:
    for shape, n_rows in (((1,), 1), ((4,), 4), ((2, 3), 5), ((0, 2), 2)):
        last = np.arange(shape[-1])
        pivots = last + rng.integers(0, n_rows - last, shape)
        yield Sample((pivots.astype(type.dtype),), {"n_rows": n_rows})


def _order_reference(pivots: np.ndarray, *, n_rows: int) -> np.ndarray:
    flat = pivots.reshape((-1, pivots.shape[-1]))
    order = np.tile(np.arange(n_rows, dtype=np.int32), (len(flat), 1))
    for one, exchanges in zip(order, flat, strict=True):
        for j, other in enumerate(exchanges.tolist()):
            one[[j, other]] = one[[other, j]]
    return order.reshape((*pivots.shape[:-1], n_rows))


_ERRORS = (
    ErrorCase(Sample((np.ones(3, np.float32),)), "[..., n_rows, n_columns], got [3]"),
    ErrorCase(Sample((np.ones((2, 2), np.float16),)), "works on float, got the matrix of half"),
    ErrorCase(Sample((np.ones((2, 2), np.float32),), {"panel_width": 0}), "a panel_width of 0"),
)
_CODELETS = (lu_panel_codelet, exchange_rows_codelet, panel_solve_codelet, panel_update_codelet)

register(
    Op(
        name="poplin.lu_packed",
        function=lu_packed,
        about="LU factors with partial pivoting in one matrix, and the rows exchanged.",
        types=(FLOAT,),
        samples=_samples,
        reference=_packed_reference,
        codelets=_CODELETS,
        errors=_ERRORS,
        tolerance={"FLOAT": 1e-4},
    )
)
register(
    Op(
        name="poplin.lu_factorization",
        function=lu_factorization,
        about="L, U and a permutation with matrix[permutation] = L·U.",
        types=(FLOAT,),
        samples=_samples,
        reference=_reference,
        codelets=(*_CODELETS, permutation_codelet, triangular_mask_codelet),
        errors=_ERRORS,
        tolerance={"FLOAT": 1e-4},
    )
)
register(
    Op(
        name="poplin.permutation_of_pivots",
        function=permutation_of_pivots,
        about="The order of rows that a list of exchanges makes.",
        types=(INT,),
        samples=_pivot_samples,
        reference=_order_reference,
        codelets=(permutation_codelet,),
        errors=(ErrorCase(Sample((np.array(1, np.int32),), {"n_rows": 2}), "pivots is a scalar"),),
    )
)
