"""QR factors by Householder reflections, a panel of them at a time: H₁…Hₖ = I - V·T·Vᵀ."""

# Fields of codelets are annotated with values, which pyright cannot see as types.
# pyright: reportInvalidTypeForm=false

from collections.abc import Iterator
from math import sqrt
from typing import Any, NamedTuple

import numpy as np

from tremula.base.types import FLOAT, Type, float32, uint32
from tremula.codelets import InOut, Input, MultiVertex, Output, Vector, Vertex
from tremula.codelets.cost.slots import LAUNCH_CYCLES
from tremula.codelets.flops import no_flops
from tremula.codelets.spec import CostView
from tremula.hardware import Chip
from tremula.poplar.graph import Graph
from tremula.poplar.programs import Sequence
from tremula.poplar.tensors.tensor import Tensor, concat
from tremula.poplar.tensors.tile_map import TileMapping
from tremula.poplar.vertices.bulk import Slices
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
    check_width,
    copied_panels,
    panel_update_codelet,
    state,
    sum_below,
)
from tremula.poplibs.poplin.solvers.triangular_solve import triangular_mask, triangular_mask_codelet
from tremula.poplibs.registry import ErrorCase, Op, Sample, register

# Fields of codelets are annotated with values, which pyright cannot see as types.
# pyright: reportInvalidTypeForm=false, reportOperatorIssue=false, reportArgumentType=false

# Derived roughly from the code: the slots of a reflection besides its rows, its
# square root and its divisions, which choose a sign and start three loops.
REFLECTION_SLOTS = 40


def _reflect_columns(
    panel: np.ndarray, v: np.ndarray, n: int, count: int, n_rows: int, j: int, tau: float
) -> None:
    """Apply reflection j to the columns to its right."""
    for c in range(j + 1, n):
        total = panel[j * n + c]
        for i in range(j + 1, n_rows):
            total += v[i * count + j] * panel[i * n + c]
        total *= tau
        for i in range(j, n_rows):
            panel[i * n + c] -= total * v[i * count + j]


def _fill_t_column(
    v: np.ndarray, t: np.ndarray, count: int, n_rows: int, j: int, tau: float
) -> None:
    """Column j of T: -tau times T's earlier columns times the products of their reflectors."""
    for k in range(j):
        total = float32(0)
        for i in range(j, n_rows):
            total += v[i * count + k] * v[i * count + j]
        t[j * count + k] = total  # until it is used: T is zero here
    for k in range(j):
        total = float32(0)
        for i in range(k, j):
            total += t[k * count + i] * t[j * count + i]
        t[k * count + j] = -tau * total
    for k in range(j):
        t[j * count + k] = float32(0)
    t[j * count + j] = tau


def _times_t(t: np.ndarray, out: np.ndarray, n: int, count: int, c: int) -> None:
    """Column c of out becomes T times it; rows from the first on need only those below."""
    for k in range(count):
        total = float32(0)
        for i in range(k, count):
            total += t[k * count + i] * out[i * n + c]
        out[k * n + c] = total


def _times_t_transposed(t: np.ndarray, out: np.ndarray, n: int, count: int, c: int) -> None:
    """Column c of out becomes Tᵀ times it; rows from the last on need only those above."""
    for k in range(count - 1, -1, -1):
        total = float32(0)
        for i in range(k + 1):
            total += t[i * count + k] * out[i * n + c]
        out[k * n + c] = total


def _reflector_flops(j: int, n: np.ndarray, n_rows: np.ndarray) -> np.ndarray:
    """Of reflection j: its norm and scaling, its columns to the right, its column of T."""
    length = n_rows - j
    making = 3 * (length - 1) + 7
    reflecting = (n - 1 - j) * (4 * length - 1)
    return making + reflecting + j * (2 * length + j + 2)


@family
def qr_panel_codelet() -> type:
    """R of one panel, in place, above the reflections that made it; they are also apart, with T."""

    class QRPanel(Vertex):
        name = "poplin::QRPanel<float>"
        provenance = "derived"
        panel: InOut[Vector[float32]]
        v: Output[Vector[float32]]
        t: Output[Vector[float32]]
        n_columns: uint32
        n_reflectors: uint32

        def compute(self: Any) -> None:
            panel, v, t = self.panel, self.v, self.t
            n, count = int(self.n_columns), int(self.n_reflectors)
            n_rows = len(self.panel) // n
            for j in range(count):
                squares = float32(0)
                for i in range(j + 1, n_rows):
                    squares += panel[i * n + j] * panel[i * n + j]
                alpha = panel[j * n + j]
                tau, scale, beta = float32(0), float32(0), alpha
                if squares > float32(0):
                    norm = float32(sqrt(alpha * alpha + squares))
                    beta = -norm if alpha >= float32(0) else norm
                    tau = (beta - alpha) / beta
                    scale = float32(1) / (alpha - beta)
                panel[j * n + j] = beta
                for i in range(j):
                    v[i * count + j] = float32(0)
                v[j * count + j] = float32(1)
                for i in range(j + 1, n_rows):
                    v[i * count + j] = panel[i * n + j] * scale
                    panel[i * n + j] = v[i * count + j]
                _reflect_columns(panel, v, n, count, n_rows, j, tau)
                _fill_t_column(v, t, count, n_rows, j, tau)

        @staticmethod
        def cycles(v: CostView, chip: Chip) -> np.ndarray:  # noqa: ARG004
            n, count = state(v, "n_columns"), state(v, "n_reflectors")
            rows = v.sizes["panel"] // n
            # Per reflection and row: its norm and scaling (7 slots), a product and an update for
            # half the columns (2 and 3 slots), and its products with half the others (2 slots).
            per_row = 7 + 5 * n // 2 + count
            ends = count * (REFLECTION_SLOTS + SQRT_SLOTS + 2 * DIVIDE_SLOTS) + count**3 // 3
            return START_SLOTS + ends + count * (rows - count // 2) * per_row

        @staticmethod
        def flops(v: CostView, chip: Chip) -> np.ndarray:  # noqa: ARG004
            n, count = state(v, "n_columns"), state(v, "n_reflectors")
            rows = v.sizes["panel"] // n
            return sum_below(count, lambda j: _reflector_flops(j, n, rows))

    return QRPanel


def _product_flops(v: CostView, chip: Chip) -> np.ndarray:  # noqa: ARG001
    """Vᵀ times the panel, and the triangle T times that."""
    count = v.sizes["out"] // state(v, "n_columns")
    return 2 * v.sizes["panel"] * count + v.sizes["out"] * (count + 1)


@family
def reflector_products_codelet() -> type:
    """The products T·Vᵀ·panel or, transposed, Tᵀ·Vᵀ·panel; the workers share the columns."""

    class ReflectorProducts(MultiVertex):
        name = "poplin::ReflectorProducts<float>"
        provenance = "derived"
        panel: Input[Vector[float32]]
        v: Input[Vector[float32]]
        t: Input[Vector[float32]]
        out: Output[Vector[float32]]
        n_columns: uint32
        is_transposed: uint32

        def compute(self: Any, worker_id: int) -> None:
            panel, v, t, out = self.panel, self.v, self.t, self.out
            n = int(self.n_columns)
            n_rows, count = len(self.panel) // n, len(self.out) // n
            first, end = n * worker_id // self.n_workers, n * (worker_id + 1) // self.n_workers
            for k in range(count):
                for c in range(first, end):
                    out[k * n + c] = float32(0)
            for i in range(n_rows):
                for k in range(count):
                    factor = v[i * count + k]
                    for c in range(first, end):
                        out[k * n + c] += factor * panel[i * n + c]
            for c in range(first, end):
                if self.is_transposed != 0:
                    _times_t_transposed(t, out, n, count, c)
                else:
                    _times_t(t, out, n, count, c)

        @staticmethod
        def cycles(v: CostView, chip: Chip) -> np.ndarray:
            n = state(v, "n_columns")
            rows, count = v.sizes["panel"] // n, v.sizes["out"] // n
            columns = ceil_div(n, chip.n_workers)
            # A product per vector of two columns: two loads and a multiply-add beside a store.
            worker = rows * count * (1 + 2 * ceil_div(columns, 2)) + columns * count * (count + 8)
            return LAUNCH_CYCLES + chip.n_workers * (START_SLOTS + worker)

        flops = staticmethod(_product_flops)

    return ReflectorProducts


@family
def identity_codelet() -> type:
    """A panel of the identity; the workers share the rows."""

    class IdentityPanel(MultiVertex):
        name = "poplin::IdentityPanel<float>"
        provenance = "derived"
        panel: Output[Vector[float32]]
        first_column: uint32
        n_columns: uint32

        def compute(self: Any, worker_id: int) -> None:
            panel, n, first = self.panel, int(self.n_columns), int(self.first_column)
            n_rows = len(self.panel) // n
            begin = n_rows * worker_id // self.n_workers
            end = n_rows * (worker_id + 1) // self.n_workers
            for i in range(begin, end):
                for c in range(n):
                    panel[i * n + c] = float32(1) if i == c + first else float32(0)

        @staticmethod
        def cycles(v: CostView, chip: Chip) -> np.ndarray:
            # The published cost of a fill, 1 slot per 64 bits, and a store for each row.
            rows = ceil_div(v.sizes["panel"] // state(v, "n_columns"), chip.n_workers)
            worker = START_SLOTS + rows * (3 + ceil_div(state(v, "n_columns"), 2))
            return LAUNCH_CYCLES + chip.n_workers * worker

        flops = no_flops

    return IdentityPanel


# -- the operation ---------------------------------------------------------------------------------


class Reflectors(NamedTuple):
    """What one panel did: rows from `first` on were multiplied by I - V·Tᵀ·Vᵀ."""

    first: int
    n_reflectors: int
    v: Tensor  # [n_batches, n_rows - first, count], flat: ones on the diagonal, zeros above
    t: Tensor  # [n_batches, count, count], flat: upper triangle


def qr_factorization(
    graph: Graph,
    matrix: Tensor,
    sequence: Sequence,
    name: str = "",
    *,
    full_matrices: bool = False,
    panel_width: int = DEFAULT_WIDTH,
) -> tuple[Tensor, Tensor]:
    """(Q, R) with Q·R = matrix, Q's columns orthonormal, R upper triangular.

    Q is [..., n_rows, k] and R [..., k, n_columns], k the smaller size, or n_rows with
    `full_matrices`. A diagonal element of R has the sign opposite to the one it replaces.
    """
    name = name or "qr"
    panels, done = _factored(graph, matrix, sequence, name, panel_width)
    n_rows, k = panels.n_rows, min(matrix.shape[-2:])
    n_kept = n_rows if full_matrices else k
    q = _identity(graph, (panels.n_batches, n_rows, n_kept), sequence, name, panel_width)
    for step, reflectors in reversed(list(enumerate(done))):
        # Columns before this panel's are still those of the identity, zero where it reaches.
        _apply(q, q.every(step, q.n_panels), reflectors, sequence, name, is_transposed=False)
    *sizes, _, n_columns = matrix.shape
    upper = panels.matrix().reshape(matrix.shape)[..., :n_kept, :]
    r = triangular_mask(graph, upper, sequence, f"{name}/r", lower=False)
    return q.matrix().reshape((*sizes, n_rows, n_kept)), r.reshape((*sizes, n_kept, n_columns))


def qr_packed(
    graph: Graph, matrix: Tensor, sequence: Sequence, name: str = "", *,
    panel_width: int = DEFAULT_WIDTH,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """(packed, tau): R, and below its diagonal the reflections I - tau·v·vᵀ, as LAPACK has them.

    Q is their product in order. A v is zero above the diagonal and 1 on it, where R is stored.
    """
    panels, done = _factored(graph, matrix, sequence, name or "qr", panel_width)
    factors = [
        step.t.reshape((panels.n_batches, step.n_reflectors**2)).sub_sample(
            step.n_reflectors + 1, 1
        )
        for step in done
    ]
    shape = (*matrix.shape[:-2], min(matrix.shape[-2:]))
    if not factors:
        return panels.matrix().reshape(matrix.shape), graph.add_variable(FLOAT, shape, mapping=0)
    return panels.matrix().reshape(matrix.shape), concat(factors, 1).reshape(shape)


def _factored(
    graph: Graph, matrix: Tensor, sequence: Sequence, name: str, panel_width: int
) -> tuple[Panels, list[Reflectors]]:
    """Panel after panel: R above the reflections in the panels, and what each panel did."""
    batch = as_batch("qr", matrix)
    check_width("qr", panel_width)
    panels = copied_panels(graph, batch, sequence, name, panel_width)
    k, done = min(batch.shape[1:]), []
    for step in range(-(-k // panel_width) if matrix.n_elems else 0):
        done.append(_factor(panels, step, k, sequence, name))
        later = panels.every(step + 1, panels.n_panels)
        _apply(panels, later, done[-1], sequence, name, is_transposed=True)
    return panels, done


def _factor(panels: Panels, step: int, k: int, sequence: Sequence, name: str) -> Reflectors:
    first, end = int(panels.first_column(step)), int(panels.first_column(step + 1))
    count, height = min(end, k) - first, panels.n_rows - first
    batch, panel = panels.every(step, step + 1)
    v = _per_batch(panels, f"{name}/v", height * count, step)
    t = _per_batch(panels, f"{name}/t", count * count, step)
    PanelStep(panels, sequence, f"{name}/factor").run(
        qr_panel_codelet(),
        batch,
        panel,
        {
            "panel": panels.rows(batch, panel, first, panels.n_rows),
            "v": v,
            "t": t,
            "n_columns": end - first,
            "n_reflectors": count,
        },
    )
    return Reflectors(first, count, v, t)


def _per_batch(panels: Panels, name: str, n_elems: int, step: int) -> Tensor:
    """A variable [n_batches, n_elems] on the tiles of a step's panels."""
    variable = panels.graph.add_variable(FLOAT, [panels.n_batches, n_elems], name)
    rows, panel = panels.every(step, step + 1)
    n_tiles = panels.graph.target.n_tiles
    tiles = panels.tiles(rows, panel)
    mapping = TileMapping(rows * n_elems, (rows + 1) * n_elems, tiles, n_tiles)
    panels.graph.set_tile_mapping(variable, mapping)
    return variable


def _apply(
    panels: Panels,
    chosen: tuple[np.ndarray, np.ndarray],
    reflectors: Reflectors,
    sequence: Sequence,
    name: str,
    *,
    is_transposed: bool,
) -> None:
    """Multiply panels from the left by I - V·T·Vᵀ, or by its transpose."""
    batch, panel = chosen
    if not len(batch):
        return
    first, count, n_rows = reflectors.first, reflectors.n_reflectors, panels.n_rows
    width = panels.widths(panel)
    ends = np.cumsum(count * width)
    graph, tiles = panels.graph, panels.tiles(batch, panel)
    products = graph.add_variable(FLOAT, [int(ends[-1])], f"{name}/products")
    begins = ends - count * width
    n_tiles = graph.target.n_tiles
    graph.set_tile_mapping(products, TileMapping(begins, ends, tiles, n_tiles))
    height = n_rows - first
    v = Slices(reflectors.v, batch * height * count, (batch + 1) * height * count)
    PanelStep(panels, sequence, f"{name}/products").run(
        reflector_products_codelet(),
        batch,
        panel,
        {
            "panel": panels.rows(batch, panel, first, n_rows),
            "v": v,
            "t": Slices(reflectors.t, batch * count * count, (batch + 1) * count * count),
            "out": Slices(products, begins, ends),
            "n_columns": width,
            "is_transposed": int(is_transposed),
        },
    )
    PanelStep(panels, sequence, f"{name}/update").subtract_product(
        chosen,
        panels.rows(batch, panel, first, n_rows),
        v,
        Slices(products, begins, ends),
        n_inner=count,
        left_stride=count,
    )


def _identity(
    graph: Graph, shape: tuple[int, int, int], sequence: Sequence, name: str, width: int
) -> Panels:
    panels = add_panels(graph, shape, f"{name}/q", width)
    batch, panel = panels.every(0, panels.n_panels)
    fields = {
        "panel": panels.rows(batch, panel, 0, panels.n_rows),
        "first_column": panels.first_column(panel),
        "n_columns": panels.widths(panel),
    }
    PanelStep(panels, sequence, f"{name}/identity").run(identity_codelet(), batch, panel, fields)
    return panels


# -- registry --------------------------------------------------------------------------------------


def _samples(type: Type, rng: np.random.Generator) -> Iterator[Sample]:
    for shape in ((1, 1), (6, 6), (2, 7, 4), (2, 2, 4, 7), (19, 34), (37, 20), (0, 2, 2)):
        yield Sample((rng.standard_normal(shape).astype(type.dtype),))
    for width in (1, 3):
        matrix = rng.standard_normal((2, 9, 5)).astype(type.dtype)
        yield Sample((matrix,), {"panel_width": width, "full_matrices": True})


def _reference(
    matrix: np.ndarray, *, full_matrices: bool = False, panel_width: int = 0
) -> tuple[np.ndarray, np.ndarray]:
    del panel_width
    mode = "complete" if full_matrices else "reduced"
    q, r = np.linalg.qr(matrix.astype(np.float64), mode)
    return q.astype(np.float32), r.astype(np.float32)


def _packed_samples(type: Type, rng: np.random.Generator) -> Iterator[Sample]:
    for shape in ((1, 1), (6, 6), (2, 7, 4), (2, 4, 7), (37, 20)):
        yield Sample((rng.standard_normal(shape).astype(type.dtype),))
    yield Sample((rng.standard_normal((9, 5)).astype(type.dtype),), {"panel_width": 3})


def _packed_reference(matrix: np.ndarray, *, panel_width: int = 0) -> tuple[np.ndarray, np.ndarray]:
    del panel_width
    packed, tau = np.linalg.qr(matrix.astype(np.float64), "raw")
    return np.swapaxes(packed, -1, -2).astype(np.float32), tau.astype(np.float32)


_ERRORS = (
    ErrorCase(Sample((np.ones(3, np.float32),)), "[..., n_rows, n_columns], got [3]"),
    ErrorCase(Sample((np.ones((2, 2), np.float16),)), "works on float, got the matrix of"),
    ErrorCase(Sample((np.ones((2, 2), np.float32),), {"panel_width": 0}), "a panel_width of 0"),
)
_CODELETS = (qr_panel_codelet, reflector_products_codelet, panel_update_codelet)

register(
    Op(
        name="poplin.qr_packed",
        function=qr_packed,
        about="R and, below it, the reflections whose product is Q; their factors.",
        types=(FLOAT,),
        samples=_packed_samples,
        reference=_packed_reference,
        codelets=_CODELETS,
        errors=_ERRORS,
        tolerance={"FLOAT": 1e-4},
    )
)
register(
    Op(
        name="poplin.qr_factorization",
        function=qr_factorization,
        about="Q with orthonormal columns and upper triangular R with Q·R = matrix.",
        types=(FLOAT,),
        samples=_samples,
        reference=_reference,
        codelets=(*_CODELETS, identity_codelet, triangular_mask_codelet),
        errors=_ERRORS,
        tolerance={"FLOAT": 1e-4},
    )
)
