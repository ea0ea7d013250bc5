"""Codelets of QR: a panel's reflections, their products with other panels, the identity."""

# Fields of codelets are annotated with values, which pyright cannot see as types.
# pyright: reportInvalidTypeForm=false, reportOperatorIssue=false, reportArgumentType=false

from math import sqrt
from typing import Any

import numpy as np

from tremula.base.types import float32, uint32
from tremula.codelets import InOut, Input, MultiVertex, Output, Vector, Vertex
from tremula.codelets.flops import no_flops
from tremula.codelets.spec import CostView
from tremula.hardware import Chip
from tremula.poplibs.counts import ceil_div
from tremula.poplibs.families import family
from tremula.poplibs.poplin.solvers.panels import (
    DIVIDE_SLOTS,
    LAUNCH_CYCLES,
    SQRT_SLOTS,
    START_SLOTS,
    state,
    sum_below,
)


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
    """R of one panel, over it, and the reflections that made it."""

    class QRPanel(Vertex):
        name = "poplin::QRPanel<float>"
        standing = "derived"
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
                    panel[i * n + j] = float32(0)
                _reflect_columns(panel, v, n, count, n_rows, j, tau)
                _fill_t_column(v, t, count, n_rows, j, tau)

        @staticmethod
        def cycles(v: CostView, chip: Chip) -> np.ndarray:  # noqa: ARG004
            n, count = state(v, "n_columns"), state(v, "n_reflectors")
            rows = v.sizes["panel"] // n
            # Per reflection and row: its norm and scaling (7 slots), a product and an update for
            # half the columns (2 and 3 slots), and its products with half the others (2 slots).
            per_row = 7 + 5 * n // 2 + count
            ends = count * (40 + SQRT_SLOTS + 2 * DIVIDE_SLOTS) + count**3 // 3
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
        standing = "derived"
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
        standing = "derived"
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
