"""How long a call takes on the machine: the modelled clock walked through the tile program."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # lazy: importing the tile compiler is slow
    from tremula.compiler.executable.executable import Executable
    from tremula.runtime.clock import Clock


Latency = tuple[float, float, float]  # least, most, average, in seconds
Counters = dict[str, list[list[float]]]


@dataclass(frozen=True)
class MicroBatches:
    """Those of a call, counted [iteration][accumulation][replica]."""

    n_total: int
    n_replicas: int
    returned: Sequence[int]  # whose results leave the device


@dataclass(frozen=True)
class CallTiming:
    """One call of a model on the machine."""

    total_cycles: int
    clock_hz: float
    transfers: dict[str, list[tuple[float, float]]]  # stream -> begin and end of each, in seconds
    cycle_interval: tuple[int, int] = (0, 0)  # where real hardware would be, nine times in ten

    def of_streams(self, prefix: str) -> list[list[tuple[float, float]]]:
        """The transfers of all streams `prefix:0`, `prefix:1`, …, in the order of their numbers."""
        result = {
            int(handle.rpartition(":")[2]): times
            for handle, times in self.transfers.items()
            if handle.rpartition(":")[0] == prefix
        }
        return [result[number] for number in sorted(result)]


def time_call(executable: "Executable", clock: "Clock") -> CallTiming:
    """Time a call on a clock that knows the cycles of every step; nothing is computed."""
    from tremula.compiler.report.intervals import cycle_interval, cycles_by_family
    from tremula.runtime.forecast import foretell_transfers  # lazy: slow to import

    clock_hz = executable.target.chip.clock_hz
    result = foretell_transfers(executable, clock)
    times = zip((result.begin / clock_hz).tolist(), (result.end / clock_hz).tolist(), strict=True)
    transfers: dict[str, list[tuple[float, float]]] = {}
    for step, pair in zip(result.steps.tolist(), times, strict=True):
        transfers.setdefault(str(executable.steps[step].detail["handle"]), []).append(pair)
    families = cycles_by_family(executable.analysis.costs, clock.executed, clock.compute)
    interval = cycle_interval(result.total_cycles, families)
    return CallTiming(result.total_cycles, clock_hz, transfers, interval)


def no_counters(n_inputs: int = 1, n_outputs: int = 1) -> Counters:
    """The counters of a model whose tensors have not moved: an empty list for each."""
    counts = {"input": n_inputs, "output": n_outputs}
    return {
        f"{name}{end}": [[] for _ in range(n)]
        for name, n in counts.items()
        for end in ("", "_complete")
    }


def perf_counters(timing: CallTiming, batches: MicroBatches, n_outputs: int) -> Counters:
    """When each transfer of a call began and ended, per tensor, in seconds of the machine's clock.

    Inputs have one entry per micro-batch, outputs one per micro-batch that is returned.
    """
    inputs = timing.of_streams("input")
    outputs = timing.of_streams("output-out")[:n_outputs]
    every = range(batches.n_total)
    return {
        "input": _column(inputs, every, batches.n_replicas, 0),
        "input_complete": _column(inputs, every, batches.n_replicas, 1),
        "output": _column(outputs, batches.returned, batches.n_replicas, 0),
        "output_complete": _column(outputs, batches.returned, batches.n_replicas, 1),
    }


def _column(
    streams: list[list[tuple[float, float]]], numbers: Iterable[int], n_replicas: int, side: int
) -> list[list[float]]:
    """Replicas run at the same time: `n_replicas` neighbouring micro-batches share their times."""
    numbers = list(numbers)
    return [[times[number // n_replicas][side] for number in numbers] for times in streams] or [[]]


def latency_between(
    counters: Counters,
    batches: MicroBatches,
    begin: tuple[str, Callable[[Iterable[float]], float]],
    end: tuple[str, Callable[[Iterable[float]], float]],
) -> Latency:
    """From one event to another, over all micro-batches.

    An event comes with the function that joins the times of several tensors, such as `max`.
    """
    starts, ends = _by_number(counters, batches, *begin), _by_number(counters, batches, *end)
    times = [ends[number] - starts[number] for number in starts if number in ends]
    if not times:
        return 0.0, 0.0, 0.0
    return min(times), max(times), sum(times) / len(times)


def _by_number(
    counters: Counters,
    batches: MicroBatches,
    event: str,
    join: Callable[[Iterable[float]], float],
) -> dict[int, float]:
    numbers = range(batches.n_total) if event.startswith("input") else batches.returned
    columns = [column for column in counters[event] if column]
    if not columns:
        return {}
    return {number: join(row) for number, *row in zip(numbers, *columns, strict=True)}


# Each latency: from which event, to which.
HOST_TO_IPU = (("input", min), ("input_complete", max))
COMPUTE = (("input_complete", max), ("output", min))
IPU_TO_HOST = (("output", min), ("output_complete", max))
ROUND_TRIP = (("input", min), ("output_complete", max))
