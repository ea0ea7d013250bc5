"""Where tiles lie on a chip."""

import math
from functools import lru_cache

import numpy as np

from tremula.hardware.chip_model import Chip


def tile_positions(chip: Chip) -> tuple[np.ndarray, np.ndarray]:
    """Centres of the tiles, x and y in millimetres: float64[n_tiles] each.

    Columns of supertiles stand on both sides of the exchange, which crosses the middle of a square
    chip; tile ids snake along the columns. That row 0 lies at the exchange, and that a supertile is
    two by two, are guesses.
    """
    column, row, place = _grid_of_tile(chip)
    n_across = math.ceil(chip.n_columns / 2)  # columns on one side of the exchange
    is_far = column >= n_across
    x_column = np.where(is_far, chip.n_columns - 1 - column, column)
    n_wide = math.ceil(math.sqrt(chip.n_tiles_per_supertile))
    n_high = math.ceil(chip.n_tiles_per_supertile / n_wide)
    x_cell = x_column * n_wide + place % n_wide + 0.5
    # Half a row of supertiles is left free on each side for the exchange.
    from_exchange = (row + 0.5) * n_high + place // n_wide + 0.5
    side_mm = math.sqrt(chip.die_area_mm2)
    half_height_cells = (n_rows(chip) + 0.5) * n_high
    x = x_cell * (side_mm / (n_across * n_wide))
    y = side_mm / 2 * (1 + np.where(is_far, 1, -1) * from_exchange / half_height_cells)
    return x, y


def exchange_latency_cycles(chip: Chip, source: np.ndarray, target: np.ndarray) -> np.ndarray:
    """int64[n]: cycles a word is on its way from tile source[i] to tile target[i] of one chip.

    Down the sender's column to the exchange, along it, and up the receiver's column.
    """
    up, along, across = exchange_ways(chip)
    return (
        chip.exchange_latency_cycles
        + (up[source] + up[target])
        + np.abs(along[source] - along[target])
        + np.abs(across[source] - across[target])
    )


def exchange_ways(chip: Chip) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """int64[n_tiles] each: cycles along a tile's column, and its place along and across, in cycles.

    A word takes the sum of two tiles' cycles along columns and the differences of their places,
    beside what each takes.
    """
    column, row, _ = _grid_of_tile(chip)
    is_far = column >= math.ceil(chip.n_columns / 2)
    place = np.where(is_far, chip.n_columns - 1 - column, column)
    return (
        chip.exchange_latency_cycles_per_row * row,
        chip.exchange_latency_cycles_per_column * place,
        chip.exchange_latency_cycles_across * is_far,
    )


def longest_exchange_latency_cycles(chip: Chip) -> int:
    """Between the two tiles of a chip that are farthest from each other."""
    return (
        chip.exchange_latency_cycles
        + chip.exchange_latency_cycles_per_row * 2 * (n_rows(chip) - 1)
        + chip.exchange_latency_cycles_per_column * (math.ceil(chip.n_columns / 2) - 1)
        + chip.exchange_latency_cycles_across
    )


def n_rows(chip: Chip) -> int:
    """Rows of supertiles in a column."""
    return math.ceil(chip.n_tiles / (chip.n_columns * chip.n_tiles_per_supertile))


@lru_cache(maxsize=16)
def _grid_of_tile(chip: Chip) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Column, row and place within its supertile of each tile: int64[n_tiles] each."""
    n_per_step = chip.n_tiles_per_numbering_step
    n_strips_per_column = chip.n_tiles_per_supertile // n_per_step
    strip, within = np.divmod(np.arange(chip.n_tiles), n_rows(chip) * n_per_step)
    row, lane = np.divmod(within, n_per_step)
    row = np.where(strip % 2 == 1, n_rows(chip) - 1 - row, row)
    column, strip_in_column = np.divmod(strip, n_strips_per_column)
    return column, row, strip_in_column + lane * n_strips_per_column
