"""How far results may be off: a difference counts if no draw of noise explains it."""

import pytest
import torch

from tools.fuzz.case import CheckFailure, SetAside
from tools.fuzz.conditioning import Judge


def _plain(movements):
    """Plain results that noise moves by another amount in each draw."""

    def results(noise, draw):
        return [torch.ones(2) + (movements[draw % len(movements)] if noise else 0)]

    return results


def test_one_quiet_draw_does_not_condemn_a_case():
    """A result that the first draw leaves, but another moves, may be off by what that allows."""
    off = [torch.ones(2) + 1e-3]
    Judge(_plain([0.0, 1e-4]), "float", 1).compare(off, "tiles")
    with pytest.raises(CheckFailure, match="wrong values on tiles"):
        Judge(_plain([0.0]), "float", 1).compare(off, "tiles")


def test_what_moves_by_itself_decides_nothing():
    """A case whose plain output moves far in any draw is set aside, not failed."""
    with pytest.raises(SetAside):
        Judge(_plain([0.0, 0.1]), "float", 1).compare([torch.ones(2) + 0.5], "host")
