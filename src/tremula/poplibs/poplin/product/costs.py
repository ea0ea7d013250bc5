"""Cycles of the vertices of products: used by the vertices themselves and by the planner.

The formulae follow the estimators PopLibs published; all arguments may be columns.
"""

from typing import NamedTuple

import numpy as np

from tremula.base.types import FLOAT, Type
from tremula.hardware import Chip
from tremula.poplibs.counts import ceil_div

Ints = np.ndarray
Count = np.ndarray | int

# Positions that the start of a pass of the matrix unit includes. PopLibs' estimators say three.
# Fitted: dense products measured on a Bow (m = k = 1024 … 8192, n = 4 … 32768, 34 rates) grow with
# every position from the first on; with one their median error is 3 %, with three 8 %.
N_POSITIONS_IN_START = 1


class Work(NamedTuple):
    """What one vertex multiplies: its share of each dimension. `n_rows` output rows of a field."""

    n_groups: Count
    n_positions: Count
    n_rows: Count
    n_in: Count
    n_out: Count
    n_taps: Count


def amp_units(chip: Chip, inputs: Type, partials: Type) -> tuple[int, int]:
    """(input channels, output channels) of one pass of the matrix unit; zeros if it has none."""
    return chip.weights_per_conv_unit(inputs), chip.n_conv_units(inputs, partials)


def amp_slots(chip: Chip, inputs: Type, partials: Type) -> float:
    """Worker slots per output position and pass."""
    n_in, n_out = amp_units(chip, inputs, partials)
    return 2 * n_in * n_out / chip.flops_per_cycle(inputs, partials)


def amp_cycles(work: Work, chip: Chip, inputs: Type, partials: Type) -> Ints:
    """A product on the matrix unit: weights are loaded, then all positions pass by."""
    n_in, n_out = amp_units(chip, inputs, partials)
    in_groups, out_groups = ceil_div(work.n_in, n_in), ceil_div(work.n_out, n_out)
    load = ceil_div(n_in * n_out * inputs.n_bytes, chip.conv_unit_coeff_load_bytes_per_cycle)
    slots = amp_slots(chip, inputs, partials)
    positions = ceil_div(work.n_positions, chip.n_workers)
    one = _amp_1x1(in_groups, out_groups, positions, load, slots, inputs, chip)
    many = _amp_nx1(work, in_groups, out_groups, load, slots, inputs, chip)
    each = np.where(np.asarray(work.n_taps) == 1, one, many)
    return np.ceil(50 + work.n_groups * (13 + each)).astype(np.int64)


def _amp_1x1(
    in_groups: Ints, out_groups: Ints, positions: Ints, load: Ints, slots: float, inputs: Type,
    chip: Chip,
) -> Ints:  # fmt: skip
    first = 46 if inputs is FLOAT else 31
    worker = first + slots * np.maximum(positions - N_POSITIONS_IN_START, 0)
    return in_groups * (15 + out_groups * (19 + 7 + load + chip.n_workers * worker))


def _amp_nx1(
    work: Work, in_groups: Ints, out_groups: Ints, load: Ints, slots: float, inputs: Type,
    chip: Chip,
) -> Ints:  # fmt: skip
    """Per tap: weights are loaded, and each worker has its rows as work items; zeroing first."""
    first = 39 if inputs is FLOAT else 28
    rows = ceil_div(work.n_rows, chip.n_workers)
    length = ceil_div(work.n_positions, np.maximum(work.n_rows, 1))
    item = first + slots * np.maximum(length - N_POSITIONS_IN_START, 0)
    worker = 18 + rows * item
    passes = work.n_taps * in_groups * out_groups
    zeroing = out_groups * chip.n_workers * (5 + ceil_div(work.n_positions * 8, chip.n_workers))
    return 109 - 50 + passes * (12 + 3 + 15 + load + chip.n_workers * worker) + zeroing


def outer_product_cycles(work: Work, chip: Chip, inputs: Type) -> Ints:
    """One input channel: each output channel of a position is one multiplication."""
    width, lead = (2, 6) if inputs is FLOAT else (4, 12)
    columns = np.asarray(work.n_out)
    each = 6 + np.maximum(ceil_div(columns - lead, width), 0)
    share = ceil_div(np.asarray(work.n_positions) * work.n_groups, chip.n_workers)
    return chip.n_workers * (25 + share * each * work.n_in * work.n_taps)


def hmac_cycles(work: Work, chip: Chip, inputs: Type) -> Ints:
    """Vector multiply-accumulate along the input channels."""
    width = 2 if inputs is FLOAT else 4
    rows = ceil_div(work.n_rows, chip.n_workers)
    length = ceil_div(work.n_positions, np.maximum(work.n_rows, 1))
    position = 7 + work.n_out * (9 + ceil_div(work.n_in, width))
    worker = 32 + work.n_taps * rows * (19 + length * position)
    return 65 + work.n_groups * (23 + 15 + 10 + chip.n_workers * worker)


def vmac_cycles(work: Work, chip: Chip, inputs: Type) -> Ints:
    """Vector multiply-accumulate along the groups, for one channel in and out."""
    width, slots = (4, 2) if inputs is FLOAT else (8, 3)
    rows = ceil_div(work.n_rows, chip.n_workers)
    length = ceil_div(work.n_positions, np.maximum(work.n_rows, 1))
    vectors = ceil_div(work.n_groups, width)
    tap = 22 + length * slots * vectors
    return 100 + chip.n_workers * (25 + work.n_taps * rows * tap * work.n_in * work.n_out)


def work_cycles(method: str, work: Work, chip: Chip, inputs: Type, partials: Type) -> Ints:
    """Tile cycles of a vertex that does `work` by a method."""
    if method == "AMP":
        return amp_cycles(work, chip, inputs, partials)
    by_method = {"OUTER_PRODUCT": outer_product_cycles, "HMAC": hmac_cycles, "VMAC": vmac_cycles}
    return np.asarray(by_method[method](work, chip, inputs), np.int64)


def reduce_cycles(n_outputs: Count, n_partials: Count, chip: Chip, partials: Type) -> Ints:
    """Adding up partial results: n_outputs from n_partials each; of one it is a cast."""
    width = 4 if partials is FLOAT else 8
    vectors = ceil_div(ceil_div(n_outputs, width), chip.n_workers)
    adding = 33 + chip.n_workers * (20 + vectors * (2 * np.asarray(n_partials) + 8))
    casting = 12 + chip.n_workers * (37 + vectors * 2)
    return np.where(np.asarray(n_partials) == 1, casting, adding)


def transpose_cycles(
    n_matrices: Count, n_rows: Count, n_cols: Count, chip: Chip, element: Type
) -> Ints:
    """Transposing matrices of [n_rows, n_cols] in grains of 4x4 halfs or 2x2 floats."""
    grain, slots = (2, 3) if element is FLOAT else (4, 4)
    rows, cols = ceil_div(n_rows, grain), ceil_div(n_cols, grain)
    share = ceil_div(np.asarray(n_matrices) * rows, chip.n_workers)  # rows of grains
    return 7 + chip.n_workers * (29 + 18 + share * (12 + slots * cols))
