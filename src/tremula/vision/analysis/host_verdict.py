"""Host, input or device: which of them a call of a program spends most of its time in.

Runs are modelled, so the host needs far longer to compute one than a device would. Time inside a
run is therefore the model's, on the device's clock, and only what the host does *between* two
runs is taken from its own clock:

    host     ├─ run (modelled) ─┤ load batch │ other │├─ run ─┤
    device   ├ work ┤ transfers ┤                     ├ …
    a call = work + transfers and load batch (input) + other (host)
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from tremula.base.storage.strict_json import JsonObject

Columns = Mapping[str, np.ndarray]
Floats = np.ndarray

DEVICE, INPUT, HOST, UNKNOWN = "device-bound", "input-bound", "host-bound", "unknown"
# Getting data ready, on a thread that runs programs; the last two while the device waits in a run.
_BETWEEN = ("load batch", "wait for batch")
_INSIDE = ("StreamCallback.fetch", "host function")
_RUNS = ("run", "Engine.run")
# Done once, or for this report only (an engine writes it inside a run): no part of a call.
_ONCE = (
    "compile", "capture", "open session", "compile tile program", "lower to tiles",
    "compile graph", "write profile", "copyWeightsToDevice", "Engine.compile", "Engine.load",
    *_RUNS,
)  # fmt: skip
_CLEARLY = 1.25  # the largest part by this factor; closer ones are called nearly balanced


@dataclass(frozen=True, slots=True)
class CallTimes:
    """What a typical call takes, in microseconds; medians over the calls of a trace."""

    n_calls: int
    device_us: float  # modelled: everything but transfers from and to the host
    transfer_us: float  # modelled: those
    loading_us: float  # the host gets data ready, and nothing else continues
    host_us: float  # other code between two runs
    modelling_us: float  # what computing a run took here; a device would not need it

    @property
    def input_us(self) -> float:
        return self.transfer_us + self.loading_us

    @property
    def total_us(self) -> float:
        return self.device_us + self.input_us + self.host_us


def host_verdict(
    facts: JsonObject, columns: Columns, clock_hz: float, transfer_share: float
) -> dict[str, object]:
    """The verdict on a system trace (`host_columns`), its reasons, and the parts of a call.

    `transfer_share` is the part of the device's time that goes into transfers with the host.
    """
    if not facts.get("runs"):
        return {"verdict": UNKNOWN, "why": "The trace has no run of this program.", "parts": []}
    times = call_times(facts, columns, clock_hz, transfer_share)
    sizes = {DEVICE: times.device_us, INPUT: times.input_us, HOST: times.host_us}
    verdict = max(sizes, key=lambda name: sizes[name])
    return {
        "verdict": verdict,
        "is_close": sorted(sizes.values())[-2] * _CLEARLY > sizes[verdict],
        "why": _why(verdict, times, _busiest(facts, columns, times.host_us)),
        "n_calls": times.n_calls,
        "total_us": times.total_us,
        "modelling_us": times.modelling_us,
        "parts": [
            {"name": "device works", "key": "device", "us": times.device_us},
            {"name": "transfers", "key": "transfer", "us": times.transfer_us},
            {"name": "host loads data", "key": "loading", "us": times.loading_us},
            {"name": "other host code", "key": "host", "us": times.host_us},
        ],
    }


def call_times(
    facts: JsonObject, columns: Columns, clock_hz: float, transfer_share: float
) -> CallTimes:
    """Medians over all runs, and over the gaps between two of them."""
    runs = sorted(facts["runs"], key=lambda run: run["from"])
    device = np.array([run["cycles_to"] - run["cycles_from"] for run in runs]) / clock_hz * 1e6
    wall = np.array([run["to"] - run["from"] for run in runs])
    begin, end = _gaps(runs)
    between = _covered(*_spans(facts, columns, _BETWEEN))
    inside = _covered(*_spans(facts, columns, _INSIDE))
    no_part = _covered(*_spans(facts, columns, (*_BETWEEN, *_ONCE)))
    loading = _typical(between(end) - between(begin))
    starts, ends = (np.array([run[name] for run in runs]) for name in ("from", "to"))
    loading += _typical(inside(ends) - inside(starts))
    return CallTimes(
        len(runs),
        _typical(device) * (1 - transfer_share),
        _typical(device) * transfer_share,
        loading,
        _typical((end - begin) - (no_part(end) - no_part(begin))),
        _typical(wall),
    )


def _gaps(runs: list[JsonObject]) -> tuple[Floats, Floats]:
    """Where each gap between two runs begins and ends; none where runs overlap."""
    ends = np.maximum.accumulate(np.array([run["to"] for run in runs], np.float64))[:-1]
    starts = np.array([run["from"] for run in runs[1:]], np.float64)
    return ends, np.maximum(starts, ends)


def _typical(values: Floats) -> float:
    return max(0.0, float(np.median(values))) if len(values) else 0.0


def _spans(facts: JsonObject, columns: Columns, labels: Iterable[str]) -> tuple[Floats, Floats]:
    """(begin, end) of events of these names, on threads that run programs."""
    numbers = [i for i, label in enumerate(facts["labels"]) if label in set(labels)]
    chosen = np.isin(columns["label"], numbers) & _is_on_running_thread(facts, columns)
    start = np.asarray(columns["start_us"], np.float64)[chosen]
    return start, start + np.maximum(np.asarray(columns["duration_us"], np.float64)[chosen], 0)


def _is_on_running_thread(facts: JsonObject, columns: Columns) -> np.ndarray:
    """Bool per event; a process that only loads data works beside the device, not instead of it."""
    numbers = [i for i, label in enumerate(facts["labels"]) if label in _RUNS]
    lanes = np.unique(np.asarray(columns["lane"])[np.isin(columns["label"], numbers)])
    return np.isin(columns["lane"], lanes)


def _covered(begin: Floats, end: Floats):  # noqa: ANN202 - a function of times
    """A function: how much of the time before t these stretches cover, overlaps once."""
    if not len(begin):
        return lambda t: np.zeros(len(t))
    order = np.argsort(begin, kind="stable")
    begin, reach = begin[order], np.maximum.accumulate(end[order])
    is_new = np.concatenate(([True], begin[1:] > reach[:-1]))
    starts = begin[is_new]
    ends = np.append(reach[:-1][is_new[1:]], reach[-1])
    edges = np.stack([starts, ends], axis=1).reshape(-1)
    before = np.cumsum(ends - starts)
    heights = np.stack([before - (ends - starts), before], axis=1).reshape(-1)
    return lambda t: np.interp(t, edges, heights)


def _busiest(facts: JsonObject, columns: Columns, host_us: float) -> str:
    """The event that takes most of the host's own time between runs; empty if none is named."""
    begin, end = _gaps(sorted(facts["runs"], key=lambda run: run["from"]))
    start = np.asarray(columns["start_us"], np.float64)
    stop = start + np.maximum(np.asarray(columns["duration_us"], np.float64), 0)
    if not len(begin) or not len(start):
        return ""
    labels, label = facts["labels"], np.asarray(columns["label"])
    others = [i for i, name in enumerate(labels) if name in (*_BETWEEN, *_ONCE)]
    gap = np.clip(np.searchsorted(begin, start, "right") - 1, 0, None)
    inside = (start >= begin[gap]) & (stop <= end[gap]) & _is_on_running_thread(facts, columns)
    named = inside & ~np.isin(label, others)
    sums = np.bincount(label[named], (stop - start)[named], len(labels)) / len(begin)
    return str(labels[int(sums.argmax())]) if sums.max(initial=0) > host_us / 2 else ""


def _why(verdict: str, times: CallTimes, busiest: str) -> str:
    """Two sentences: what takes most of a call, and what would change that."""
    mostly = f", mostly in “{busiest}”" if busiest else ""
    if times.n_calls == 1:
        return (
            f"The trace has one run, so nothing is known of the time between two. In the run the "
            f"device works for {_time(times.device_us)}, and transfers with the host take "
            f"{_time(times.input_us)}."
        )
    if verdict == HOST:
        return (
            f"Between two runs the host's own code takes {_time(times.host_us)}{mostly}; a run "
            f"takes a device {_time(times.device_us + times.transfer_us)}. Let a call do more "
            f"(deviceIterations, gradientAccumulation), or do less between calls."
        )
    if verdict == INPUT:
        slower = "loading" if times.loading_us > times.transfer_us else "transfers"
        remedy = (
            "Load in other processes (DataLoaderMode.Async, more workers) or prepare less."
            if slower == "loading"
            else "Send smaller types, or overlap transfers with compute."
        )
        return (
            f"Getting data takes {_time(times.input_us)} of a call: the host loads it for "
            f"{_time(times.loading_us)}, and transfers take {_time(times.transfer_us)}; the device "
            f"works for {_time(times.device_us)}. {remedy}"
        )
    return (
        f"The device works for {_time(times.device_us)} of a call; data takes "
        f"{_time(times.input_us)} and the host's own code {_time(times.host_us)}. "
        f"What makes the program itself faster helps: see Summary and Operations."
    )


def _time(microseconds: float) -> str:
    for unit, size in (("s", 1e6), ("ms", 1e3), ("µs", 1.0)):
        if microseconds >= size:
            return f"{microseconds / size:.3g} {unit}"
    return f"{microseconds * 1e3:.3g} ns" if microseconds else "no time"
