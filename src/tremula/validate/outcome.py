"""What the model says of one row: its value and the steps behind it, or why there is none."""

from dataclasses import dataclass

from tremula.base.errors import PoplarError
from tremula.validate.rows import MeasuredRow
from tremula.validate.workloads.table import ModelledValue, Workload, chip_of


@dataclass(frozen=True, slots=True)
class Outcome:
    """A prediction in the row's unit, and the cycles of its steps by name; or a reason."""

    value: float = 0.0
    steps: tuple[tuple[str, int], ...] = ()  # name, cycles in all, largest first
    reason: str = ""

    def as_record(self) -> dict[str, object]:
        if self.reason:
            return {"reason": self.reason}
        return {"value": self.value, "steps": [list(step) for step in self.steps]}

    @classmethod
    def from_record(cls, record: dict) -> "Outcome":
        if "reason" in record:
            return cls(reason=str(record["reason"]))
        steps = tuple((str(name), int(cycles)) for name, cycles in record.get("steps", ()))
        return cls(float(record["value"]), steps)


def predict(workload: Workload, row: MeasuredRow) -> Outcome:
    """The outcome of a row. A row of someone else's may describe what cannot be built."""
    try:
        modelled = workload.predict(row, chip_of(row))
        return Outcome(modelled.in_unit(row.unit), cycles_by_step(modelled))
    except PoplarError as error:
        return Outcome(reason=error.what)
    except MemoryError:
        return Outcome(reason="this computer has too little memory for it")
    except Exception as error:  # noqa: BLE001 - one row must not end a run of hours
        return Outcome(reason=f"its workload failed: {type(error).__name__}: {error}")


def cycles_by_step(modelled: ModelledValue) -> tuple[tuple[str, int], ...]:
    """Cycles of equally named steps together, largest first."""
    total: dict[str, int] = {}
    for name, times, cycles in modelled.steps:
        total[name] = total.get(name, 0) + times * cycles
    ranked = sorted(total.items(), key=lambda step: (-step[1], step[0]))
    return tuple((name, cycles) for name, cycles in ranked if cycles)
