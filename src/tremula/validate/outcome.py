"""What the model says of one row: its value and the steps behind it, or why there is none."""

import time
import traceback
from dataclasses import dataclass, replace

from tremula.base.errors import PoplarError
from tremula.base.processes import peak_bytes, reset_peak_bytes
from tremula.validate.rows import MeasuredRow
from tremula.validate.workloads.table import ModelledValue, Workload, chip_of


@dataclass(frozen=True, slots=True)
class Outcome:
    """A prediction in the row's unit, and the cycles of its steps by name; or a reason.

    `seconds` and `gbytes` are what this took: time, and the process's memory at its largest.
    """

    value: float = 0.0
    steps: tuple[tuple[str, int], ...] = ()  # name, cycles in all, largest first
    reason: str = ""
    seconds: float = 0.0
    gbytes: float = 0.0
    trace: str = ""  # where an unexpected error was raised

    def as_record(self) -> dict[str, object]:
        took = {"seconds": round(self.seconds, 2), "gbytes": round(self.gbytes, 3)}
        if self.reason:
            return {"reason": self.reason, **({"trace": self.trace} if self.trace else {}), **took}
        return {"value": self.value, "steps": [list(step) for step in self.steps], **took}

    @classmethod
    def from_record(cls, record: dict) -> "Outcome":
        seconds, gbytes = (float(record.get(name, 0.0)) for name in ("seconds", "gbytes"))
        if "reason" in record:
            reason, trace = str(record["reason"]), str(record.get("trace", ""))
            return cls(reason=reason, trace=trace, seconds=seconds, gbytes=gbytes)
        steps = tuple((str(name), int(cycles)) for name, cycles in record.get("steps", ()))
        return cls(float(record["value"]), steps, seconds=seconds, gbytes=gbytes)


def predict(workload: Workload, row: MeasuredRow) -> Outcome:
    """The outcome of a row, with the time and memory it took."""
    reset_peak_bytes()
    began = time.perf_counter()
    outcome = _predicted(workload, row)
    seconds, gbytes = time.perf_counter() - began, peak_bytes() / 2**30
    return replace(outcome, seconds=seconds, gbytes=gbytes)


def _predicted(workload: Workload, row: MeasuredRow) -> Outcome:
    """A row of someone else's may describe what cannot be built."""
    try:
        modelled = workload.predict(row, chip_of(row))
        return Outcome(modelled.in_unit(row.unit), cycles_by_step(modelled))
    except PoplarError as error:
        return Outcome(reason=error.what)
    except MemoryError:
        return Outcome(reason="this computer has too little memory for it")
    except Exception as error:  # noqa: BLE001 - one row must not end a run of hours
        reason = f"its workload failed: {type(error).__name__}: {error}"
        return Outcome(reason=reason, trace=traceback.format_exc())


def cycles_by_step(modelled: ModelledValue) -> tuple[tuple[str, int], ...]:
    """Cycles of equally named steps together, largest first."""
    total: dict[str, int] = {}
    for name, times, cycles in modelled.steps:
        total[name] = total.get(name, 0) + times * cycles
    ranked = sorted(total.items(), key=lambda step: (-step[1], step[0]))
    return tuple((name, cycles) for name, cycles in ranked if cycles)
