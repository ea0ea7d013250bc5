"""Sweeps: Python and native code are the same function."""

import numpy as np
import pytest

from tremula.compiler.passes import sweeps


def race_columns(random):
    begin = np.sort(random.integers(0, 40, 12))
    written = random.random(12) < 0.3
    return begin, begin + random.integers(1, 9, 12), random.integers(0, 6, 12), written


def worker_columns(random):
    tile = random.integers(0, 3, 20).astype(np.int32)
    return tile, random.integers(0, 50, 20), np.zeros((3, 6), np.int64)


def liveness_columns(random):
    n, words = 6, 2
    live_in, live_out = np.zeros((2, n, words), np.uint64)
    use, kill = random.integers(0, 2**63, (2, n, words)).astype(np.uint64)
    successor_start = np.minimum(np.arange(n + 1), n - 1)
    called = np.array([-1, -1, 4, -1, -1, -1])
    rows, returns = np.arange(n), np.array([[4, 5]])
    return rows, live_in, live_out, use, kill, successor_start, np.arange(1, n), called, returns


def peak_columns(random):
    n, n_tiles = 8, 3
    first = np.sort(random.integers(0, n, 5))
    last = np.minimum(first + random.integers(0, 4, 5), n - 1)
    variables, by_last, at = (
        random.permutation(5),
        np.argsort(last, kind="stable"),
        np.arange(n + 1),
    )
    starts_at, ends_at = np.searchsorted(first, at), np.searchsorted(last[by_last], at)
    tiles, sizes = random.integers(0, n_tiles, 10), random.integers(1, 99, 10)
    temporary_row, temporary = random.integers(-1, 2, n), random.integers(0, 50, (2, n_tiles))
    peak, peak_at = np.zeros(n_tiles, np.int64), np.full(n_tiles, -1)
    ranges = (starts_at, variables, ends_at, variables[by_last])
    return *ranges, np.arange(0, 11, 2), tiles, sizes, temporary_row, temporary, peak, peak_at


def placement_columns(random):
    start = np.array([0, 7, 12])
    first = np.concatenate([np.sort(random.integers(0, 9, 7)), np.sort(random.integers(0, 9, 5))])
    last, sizes = first + random.integers(0, 5, 12), random.integers(1, 40, 12)
    lowest, align = random.integers(0, 30, 12), random.choice([4, 8, 16], 12)
    address, active = np.zeros((2, 12), np.int64)
    return start, first, last, sizes, lowest, align, address, active, np.zeros(2, np.int64)


SWEEPS = {
    sweeps.find_race: race_columns,
    sweeps.deal_to_workers: worker_columns,
    sweeps.flow_back: liveness_columns,
    sweeps.sweep_peak: peak_columns,
    sweeps.place_ranges: placement_columns,
}


@pytest.mark.parametrize("sweep", SWEEPS, ids=lambda sweep: sweep.__name__)
def test_python_and_native_code_agree(sweep):
    """A sweep returns and writes the same, whichever way it runs."""
    for seed in range(5):
        columns = [SWEEPS[sweep](np.random.default_rng(seed)) for _ in range(2)]
        python, native = sweep.function(*columns[0]), sweep.native(*columns[1])
        assert python == native
        for ours, other in zip(*columns, strict=True):
            np.testing.assert_array_equal(ours, other)


def test_a_sweep_turns_native_when_it_was_called_enough(monkeypatch):
    """Calls in Python are few: many short columns take native code as one long one does."""
    called = []
    monkeypatch.setattr(sweeps, "TURNS_IN_PYTHON", 10)
    sweep = sweeps.Sweep(lambda *_: called.append("python"), len)
    sweep.__dict__["native"] = lambda *_: called.append("native")
    for _ in range(4):
        sweep([0] * 4)
    assert called == ["python", "python", "native", "native"]
