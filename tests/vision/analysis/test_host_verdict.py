"""Host, input or device: verdicts on made-up traces whose answer is plain."""

import numpy as np
import pytest

from tremula.vision.analysis.host_verdict import _covered, call_times, host_verdict

CLOCK_HZ = 1e9  # so a microsecond is 1,000 cycles
LABELS = ["run", "load batch", "write profile", "prepare", "StreamCallback.fetch"]


def trace(events, device_us=1_000, n_runs=3, run_us=5_000, gap_us=400):
    """Facts and columns: runs with gaps between them, and events (lane, label, start, length)."""
    period = run_us + gap_us
    runs = [
        {"name": "m", "from": i * period, "to": i * period + run_us, "cycles_from": 0,
         "cycles_to": device_us * 1_000}
        for i in range(n_runs)
    ]  # fmt: skip
    rows = [(0, "run", run["from"], run_us) for run in runs]
    for lane, label, start, length in events:
        rows += [(lane, label, i * period + start, length) for i in range(n_runs)]
    lane, label, start, length = zip(*rows, strict=True)
    columns = {
        "lane": np.array(lane), "label": np.array([LABELS.index(name) for name in label]),
        "start_us": np.array(start, float), "duration_us": np.array(length, float),
    }  # fmt: skip
    return {"labels": LABELS, "lanes": ["main", "loader"], "runs": runs}, columns


def verdict(events, share=0.1, **sizes):
    return host_verdict(*trace(events, **sizes), CLOCK_HZ, share)


def test_device_bound():
    """A device that works longer than the host does between runs is what counts."""
    result = verdict([], gap_us=50)
    assert result["verdict"] == "device-bound"
    assert [round(part["us"]) for part in result["parts"]] == [900, 100, 0, 50]
    assert result["modelling_us"] == 5_000
    assert result["total_us"] == pytest.approx(1_050)


def test_modelling_is_no_host_time():
    """However long the model computes, only what is between runs is the host's."""
    slow, fast = (verdict([], run_us=run_us, gap_us=50) for run_us in (900_000, 10))
    assert slow["parts"] == fast["parts"]
    assert slow["why"] == fast["why"]


def test_host_bound_names_what_takes_the_time():
    """Code between runs that takes longer than a run; the largest event is named."""
    result = verdict([(0, "prepare", 5_010, 3_000)], gap_us=4_000)
    assert result["verdict"] == "host-bound"
    assert "“prepare”" in result["why"]
    assert "4 ms" in result["why"]
    small = [(0, "prepare", 5_010, 300), (0, "load batch", 5_400, 900)]
    assert "mostly" not in verdict(small, gap_us=4_000)["why"]


def test_input_bound_by_loading():
    """Loading on the thread that runs counts as input; in another process it does not."""
    result = verdict([(0, "load batch", 5_000, 3_900)], gap_us=4_000)
    assert result["verdict"] == "input-bound"
    assert "DataLoaderMode.Async" in result["why"]
    beside = verdict([(1, "load batch", 0, 3_900)], gap_us=40)
    assert beside["verdict"] == "device-bound"


def test_input_bound_by_transfers():
    """A device that mostly transfers is bound by its input."""
    result = verdict([], share=0.8, gap_us=50)
    assert result["verdict"] == "input-bound"
    assert "smaller types" in result["why"]


def test_callbacks_inside_runs_are_input():
    """The device waits for a stream's callback, so its time is input's."""
    result = verdict([(0, "StreamCallback.fetch", 100, 2_000)], gap_us=50)
    assert result["verdict"] == "input-bound"


def test_what_happens_once_is_left_out():
    """Writing a profile between two runs is no part of a call."""
    facts, columns = trace([(0, "write profile", 5_000, 390)], gap_us=400)
    assert call_times(facts, columns, CLOCK_HZ, 0.0).host_us == pytest.approx(10)


def test_one_run_says_so():
    """Nothing is known of the time between runs if there is one."""
    assert "one run" in verdict([], n_runs=1)["why"]
    assert host_verdict({"runs": []}, {}, CLOCK_HZ, 0.0)["verdict"] == "unknown"


def test_covered_counts_overlaps_once():
    """The covered time before t is that of a plain count over microseconds."""
    random = np.random.default_rng(3)
    begin = random.integers(0, 200, 40)
    end = begin + random.integers(0, 20, 40)
    cells = np.zeros(300, bool)
    for a, b in zip(begin.tolist(), end.tolist(), strict=True):
        cells[a:b] = True
    times = np.arange(300)
    wanted = np.concatenate(([0], np.cumsum(cells)))[:300]
    assert np.allclose(_covered(begin.astype(float), end.astype(float))(times), wanted)
