"""A controller that is killed at any moment starts again as if it had been asked to stop."""

from tremula.bench.system.kills import killed_often


def test_kills_under_load_leave_a_consistent_state(tmp_path):
    """Twenty kills: what clients were told is there, what was removed is gone."""
    assert list(killed_often(tmp_path, 20)) == [[]] * 20
