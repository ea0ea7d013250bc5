"""Patterns that operations name by number: known while they are held or were used of late."""

import numpy as np
import pytest

from tremula.ir.errors import UnsuitableModel
from tremula.ir.ops import sparse_pattern
from tremula.ir.ops.sparse_pattern import SparsePattern, pattern_numbered


def diagonal(n: int, shift: int = 0) -> SparsePattern:
    starts = np.arange(n + 1, dtype=np.int32)
    return SparsePattern(n, n, 1, starts, np.roll(np.arange(n, dtype=np.int32), shift))


@pytest.fixture
def nothing_known(monkeypatch):
    """No pattern, and room for twelve blocks of those used last."""
    monkeypatch.setattr(sparse_pattern, "_known", type(sparse_pattern._known)())
    monkeypatch.setattr(sparse_pattern, "_used_last", sparse_pattern._UsedLast(12))


@pytest.mark.usefixtures("nothing_known")
def test_patterns_used_last_are_kept():
    """Three of four blocks fit; the one that was not used for longest goes."""
    numbers = [diagonal(4, shift).number for shift in range(3)]
    assert pattern_numbered(numbers[0]).columns.tolist() == [0, 1, 2, 3]
    numbers.append(diagonal(4, 3).number)
    assert [n in sparse_pattern._known for n in numbers] == [True, False, True, True]
    with pytest.raises(UnsuitableModel, match="is gone"):
        pattern_numbered(numbers[1])


@pytest.mark.usefixtures("nothing_known")
def test_a_held_pattern_stays():
    """However many are used since; also when it is equal to one that went."""
    held = diagonal(4)
    first = diagonal(4).number  # an equal one has the number now
    for shift in range(1, 4):
        assert diagonal(4, shift).number != first
    assert held.number == first
    for shift in range(1, 4):
        diagonal(4, shift).number  # noqa: B018
    assert pattern_numbered(first) is held


@pytest.mark.usefixtures("nothing_known")
def test_one_pattern_is_kept_whatever_its_size():
    """A single one larger than the bound is there."""
    number = diagonal(50).number
    assert pattern_numbered(number).n_blocks == 50
