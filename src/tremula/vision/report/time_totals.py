"""Where time goes, for every reader: the one place that adds up a report's cycles.

docs/vision-design.md has the definitions. The numbers themselves are in the file:
`timeline/measure.py` makes them when it is written.
"""

from typing import TYPE_CHECKING, Any

import numpy as np

from tremula.compiler.report.intervals import cycle_interval
from tremula.compiler.report.phases import PHASES

if TYPE_CHECKING:
    from tremula.vision.report.reader import ReportReader

Ints = np.ndarray

# What a chip's total splits into.
PARTS = (*PHASES, "waiting")


def apportioned(total: int, weights: Ints) -> Ints:
    """Whole numbers in proportion to weights that add up to the total; all 0 without weights."""
    flat = np.ravel(weights).astype(np.float64)
    everything = flat.sum()
    if not everything > 0:
        return np.zeros(np.shape(weights), np.int64)
    exact = flat * (total / everything)
    result = np.floor(exact).astype(np.int64)
    missing = total - int(result.sum())
    # Rounding may leave a little more than one for each, or (of huge totals) too much.
    order = np.argsort(result - exact, kind="stable")
    order = order[flat[order] > 0]
    each, more = divmod(missing, len(order))
    result[order] += each
    result[order[:more]] += 1
    return result.reshape(np.shape(weights))


def mean_split(of_chips: Ints) -> dict[str, int]:
    """Means over chips of int64[n_chips, 6] (five phases and waiting), rounded.

    Chips have the same total, and so has the mean.
    """
    n_chips = len(of_chips)
    sums = of_chips.sum(axis=0)
    result, rest = sums // n_chips, sums % n_chips
    order = np.argsort(-rest, kind="stable")
    result[order[: int(rest.sum()) // n_chips]] += 1
    return dict(zip(PARTS, result.tolist(), strict=True))


def chip_split(reader: "ReportReader") -> Ints:
    """int64[n_chips, 6]: five phases and waiting of each chip; rows add up to the total."""
    ipus = reader.table("ipus")
    return np.stack([ipus[name] for name in PARTS], axis=1)


def total_cycles(reader: "ReportReader") -> int:
    """The engine's clock at the end; 0 if nothing ran."""
    return int(reader.info.get("total_cycles") or 0)


def machine_split(reader: "ReportReader") -> dict[str, int]:
    """Where time goes on the machine: means over its chips; they add up to the total."""
    return mean_split(chip_split(reader))


def path_of_steps(reader: "ReportReader") -> Ints:
    """int64[n_steps, 5]: cycles on the critical path, by phase; they add up to the total."""
    steps = reader.table("steps")
    return np.stack([steps[f"path_{name}"] for name in PHASES], axis=1)


def path_of_types(reader: "ReportReader") -> dict[str, int]:
    """Cycles on the critical path by type of program; they add up to the total."""
    result: dict[str, int] = {}
    steps: dict[str, Any] = reader.table("steps")
    for name, cycles in zip(steps["type"], steps["total_cycles"].tolist(), strict=True):
        result[name] = result.get(name, 0) + cycles
    return result


def interval_of_total(reader: "ReportReader") -> tuple[int, int] | None:
    """Cycles between which real hardware would be, nine times in ten; None in older reports."""
    families = reader.info.get("cycles_by_family")
    return cycle_interval(total_cycles(reader), families) if families else None
