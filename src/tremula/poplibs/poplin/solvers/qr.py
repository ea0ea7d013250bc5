"""QR factors by Householder reflections, a panel of them at a time: H₁…Hₖ = I - V·T·Vᵀ."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from tremula.base.types import FLOAT, Type
from tremula.poplar.graph import Graph
from tremula.poplar.programs import Sequence
from tremula.poplar.tensors.tensor import Tensor
from tremula.poplar.tensors.tile_map import TileMapping
from tremula.poplar.vertices.bulk import Slices
from tremula.poplibs.poplin.solvers.panels import (
    DEFAULT_WIDTH,
    Panels,
    Step,
    add_panels,
    as_batch,
    check_width,
    copied_panels,
    panel_update_codelet,
)
from tremula.poplibs.poplin.solvers.qr_codelets import (
    identity_codelet,
    qr_panel_codelet,
    reflector_products_codelet,
)
from tremula.poplibs.poplin.solvers.triangular_solve import triangular_mask, triangular_mask_codelet
from tremula.poplibs.registry import ErrorCase, Op, Sample, register


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
    batch = as_batch("qr", matrix)
    check_width("qr", panel_width)
    panels = copied_panels(graph, batch, sequence, name, panel_width)
    n_rows, k = panels.n_rows, min(batch.shape[1:])
    done = []
    for step in range(-(-k // panel_width) if matrix.n_elems else 0):
        done.append(_factor(panels, step, k, sequence, name))
        later = panels.every(step + 1, panels.n_panels)
        _apply(panels, later, done[-1], sequence, name, is_transposed=True)
    n_kept = n_rows if full_matrices else k
    q = _identity(graph, (panels.n_batches, n_rows, n_kept), sequence, name, panel_width)
    for step, reflectors in reversed(list(enumerate(done))):
        # Columns before this panel's are still those of the identity, zero where it reaches.
        _apply(q, q.every(step, q.n_panels), reflectors, sequence, name, is_transposed=False)
    *sizes, _, n_columns = matrix.shape
    upper = panels.matrix().reshape(matrix.shape)[..., :n_kept, :]
    r = triangular_mask(graph, upper, sequence, f"{name}/r", lower=False)
    return q.matrix().reshape((*sizes, n_rows, n_kept)), r.reshape((*sizes, n_kept, n_columns))


def _factor(panels: Panels, step: int, k: int, sequence: Sequence, name: str) -> Reflectors:
    first, end = int(panels.first_column(step)), int(panels.first_column(step + 1))
    count, height = min(end, k) - first, panels.n_rows - first
    batch, panel = panels.every(step, step + 1)
    v = _per_batch(panels, f"{name}/v", height * count, step)
    t = _per_batch(panels, f"{name}/t", count * count, step)
    Step(panels, sequence, f"{name}/factor").run(
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
    Step(panels, sequence, f"{name}/products").run(
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
    Step(panels, sequence, f"{name}/update").subtract_product(
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
    Step(panels, sequence, f"{name}/identity").run(identity_codelet(), batch, panel, fields)
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


register(
    Op(
        name="poplin.qr_factorization",
        function=qr_factorization,
        about="Q with orthonormal columns and upper triangular R with Q·R = matrix.",
        types=(FLOAT,),
        samples=_samples,
        reference=_reference,
        codelets=(
            qr_panel_codelet,
            reflector_products_codelet,
            identity_codelet,
            panel_update_codelet,
            triangular_mask_codelet,
        ),
        errors=(
            ErrorCase(Sample((np.ones(3, np.float32),)), "[..., n_rows, n_columns], got [3]"),
            ErrorCase(Sample((np.ones((2, 2), np.float16),)), "works on float, got the matrix of"),
            ErrorCase(
                Sample((np.ones((2, 2), np.float32),), {"panel_width": 0}), "a panel_width of 0"
            ),
        ),
        tolerance={"FLOAT": 1e-4},
    )
)
