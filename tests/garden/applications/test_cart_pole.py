"""Carts with poles: their motion, what is learnt from how long they stood."""

import numpy as np
import pytest

jax = pytest.importorskip("jax")

from tremula.garden.applications.cart_pole.main import advantage, played  # noqa: E402
from tremula.garden.applications.cart_pole.world import moved, stands  # noqa: E402


def test_a_push_moves_the_cart_and_tips_the_pole_the_other_way():
    """From rest, the accelerations of the textbook's two equations."""
    rest = np.zeros((2, 4), np.float32)
    after = np.asarray(moved(rest, np.array([True, False])))
    falling = -(10 / 1.1) / (0.5 * (4 / 3 - 0.1 / 1.1))
    pushed = 10 / 1.1 - 0.1 * 0.5 * falling / 1.1
    assert after[0] == pytest.approx([0, 0.02 * pushed, 0, 0.02 * falling], rel=1e-5)
    assert after[1] == pytest.approx(-after[0])


def test_carts_fall_at_the_limits():
    """Within 2.4 m and 12 degrees they stand."""
    carts = np.array(
        [[0, 0, 0, 0], [2.5, 0, 0, 0], [0, 0, -0.22, 0], [-2.3, 9, 0.2, 9]], np.float32
    )
    assert np.asarray(stands(carts)).tolist() == [True, False, False, True]


def test_fallen_carts_stay_down_and_where_they_were():
    """A policy that always pushes right drops its pole; nothing happens after that."""
    weights = {
        "first": np.zeros((4, 2), np.float32),
        "bias": np.ones(2, np.float32),
        "second": np.full((2, 1), 50, np.float32),
    }
    chances = np.full((30, 3), 0.5, np.float32)
    seen, pushes, stood = (
        np.asarray(x) for x in played(weights, np.zeros((3, 4), np.float32), chances)
    )
    assert (pushes == 1).all()
    n_up = int(stood[:, 0].sum())
    assert 5 < n_up < 15
    assert not stood[n_up:].any()
    assert (seen[n_up + 1 :] == seen[n_up]).all()


def test_what_stands_longer_than_others_was_right():
    """Of two carts, the one that falls first was wrong while it stood; a draw teaches nothing."""
    stood = np.array([[1, 1], [1, 0], [1, 0]], np.float32)
    result = np.asarray(advantage(stood))
    assert (result[:2, 0] > 0).all()
    assert (result[:2, 1] < 0).all()
    assert result[2, 1] == 0
    assert not np.asarray(advantage(np.ones((3, 2), np.float32))).any()
