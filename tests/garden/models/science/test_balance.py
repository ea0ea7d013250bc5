"""Balance: no tile has much more than it must."""

import numpy as np
import pytest

from tremula.garden.models.science.balance import balanced_tiles


@pytest.mark.parametrize("seed", range(5))
def test_no_tile_exceeds_the_bound(seed):
    """The busiest tile has at most 4/3 of the least possible: the mean, or the largest piece."""
    random = np.random.default_rng(seed)
    work = random.pareto(1.5, 60) + 0.1
    tiles = balanced_tiles(work, 7)
    busiest = np.bincount(tiles, work, 7).max()
    assert busiest <= 4 / 3 * max(work.sum() / 7, work.max())


def test_equal_work_is_dealt_evenly():
    """Twelve equal pieces on five tiles: two or three each."""
    counts = np.bincount(balanced_tiles(np.ones(12), 5), minlength=5)
    assert sorted(counts.tolist()) == [2, 2, 2, 3, 3]
