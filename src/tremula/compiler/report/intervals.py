"""How far a predicted time can be trusted: a 90 % interval, from errors on published measurements.

A program's cycles are split into families: those of vertices by codelet, exchange and sync, links,
host. Each family has residuals, the logarithms of measured over predicted time of its rows in
`tremula validate`. Their quantiles give the family's interval. Families are combined as if they
were independent, steps of one family as equally wrong. What several families make up is less
certain than each of them: whole models were measured, too. docs/accuracy.md has the full rule.
"""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import numpy as np

from tremula.compiler.passes.cost import StepCosts

RESIDUALS_FILE = Path(__file__).parent / "data" / "residuals.json"
EXCHANGE, LINKS, HOST = "memory and exchange", "links between chips", "host"
OTHER, WHOLE, ENERGY = "other compute", "whole models", "energy"
_WHOLE = "whole|training|inference|decoding"
COVERED = 0.9
N_SHARED = 10.0  # rows that the residuals of all families count as in each of them
Floats = np.ndarray

# Families of vertices, by the names of their codelets; the first that matches.
_CODELETS = (
    (r"StaticSparse", "static sparse product"),
    (r"^popsparse::", "dynamic sparse product"),
    (r"^poplin::", "dense mat-mul"),
    (r"Conv", "convolution"),
    (r"Update|JoinPartials", "scatter-add"),
    (r"MultiSlice|DynamicSlice", "gather"),
    (r"Reduce", "reduce"),
)


class ConfidenceInterval(NamedTuple):
    """Where a measurement would be, nine times in ten."""

    low: float
    high: float


@dataclass(frozen=True, slots=True)
class LogResidual:
    """A row of `tremula validate`: the logarithm of measured over predicted time."""

    family: str
    source: str
    row: str
    log_ratio: float


@dataclass(frozen=True, slots=True)
class Residuals:
    """Residuals of all rows, and by how much intervals must be wider than their quantiles."""

    rows: tuple[LogResidual, ...]
    scale: float

    def without(self, source: str) -> "Residuals":
        return Residuals(tuple(r for r in self.rows if r.source != source), self.scale)

    def of_family(self, family: str) -> ConfidenceInterval:
        """Measured over predicted time of one family, at the ends of the interval."""
        low, middle, high = self._quantiles(family)
        ends = middle + self.scale * (low - middle), middle + self.scale * (high - middle)
        if family == ENERGY:  # few rows, all of busy machines: other programs draw less
            ends = -max(map(abs, ends)), max(map(abs, ends))
        return ConfidenceInterval(
            float(np.exp(min(ends[0], 0.0))), float(np.exp(max(ends[1], 0.0)))
        )

    def _quantiles(self, family: str) -> tuple[float, float, float]:
        """5, 50 and 95 %, of the family's rows and, counting less, of all rows."""
        # Joules and seconds say nothing of each other.
        rows = [row for row in self.rows if (row.family == ENERGY) == (family == ENERGY)]
        values = np.array([row.log_ratio for row in rows])
        if not len(values):
            return -1.0, 0.0, 1.0
        is_own = np.array([_is_of(row.family, family) for row in rows])
        weights = is_own + N_SHARED / len(values)
        order = np.argsort(values)
        share = np.cumsum(weights[order]) / weights.sum()
        at = [int(np.searchsorted(share, q)) for q in (0.05, 0.5, 0.95)]
        low, middle, high = values[order][np.minimum(at, len(values) - 1)].tolist()
        return low, middle, high

    def factors(self, cycles: Mapping[str, float]) -> ConfidenceInterval:
        """Measured over predicted time of a program with these cycles by family."""
        total = sum(cycles.values())
        if total <= 0:
            return self.of_family(OTHER)
        shares = {family: n / total for family, n in cycles.items() if n > 0}
        parts = [(share, self.of_family(family)) for family, share in shares.items()]
        whole, mixture = self.of_family(WHOLE), 1 - max(shares.values())
        below = np.sqrt(sum((share * (1 - one.low)) ** 2 for share, one in parts))
        above = np.sqrt(sum((share * (one.high - 1)) ** 2 for share, one in parts))
        below = max(float(below), mixture * (1 - whole.low))
        above = max(float(above), mixture * (whole.high - 1))
        return ConfidenceInterval(max(0.0, 1 - below), 1 + above)


def _is_of(own: str, family: str) -> bool:
    """Whether a row's family is the one; whole models have several."""
    return own == family or (family == WHOLE and re.search(_WHOLE, own) is not None)


@lru_cache(maxsize=1)
def shipped_residuals() -> Residuals:
    """Those of the validation that this version was released with."""
    data = json.loads(RESIDUALS_FILE.read_text(encoding="utf-8"))
    rows = tuple(LogResidual(*row) for row in data["rows"])
    return Residuals(rows, float(data["scale"]))


def family_of_codelet(name: str) -> str:
    """The family of measurements that a codelet's cost was compared with."""
    return next((family for text, family in _CODELETS if re.search(text, name)), OTHER)


def family_of_codelets(names: Iterable[str], cycles: Sequence[float]) -> str:
    """The family of the codelet that takes most of a compute set."""
    pairs = list(zip(names, cycles, strict=True))
    return family_of_codelet(max(pairs, key=lambda pair: pair[1])[0]) if pairs else OTHER


def cycles_by_family(costs: StepCosts, executed: np.ndarray, compute: np.ndarray) -> dict[str, int]:
    """Cycles of steps on their slowest chips, as often as they ran.

    `compute` int64[n_steps, n_chips] has those of steps that were counted, too.
    """
    result: dict[str, int] = {}

    def add(family: str, cycles: int) -> None:
        result[family] = result.get(family, 0) + cycles

    families = [
        family_of_codelets((t.codelet for t in one.tables), [t.total_cycles for t in one.tables])
        for one in costs.compute_sets
    ]
    on_chip = costs.exchange - costs.link_exchange - costs.host_exchange + costs.sync
    add(EXCHANGE, int(executed @ on_chip.max(axis=1)))
    add(LINKS, int(executed @ costs.link_exchange.max(axis=1)))
    add(HOST, int(executed @ costs.host_exchange.max(axis=1)))
    for step in np.flatnonzero(executed).tolist():
        number = int(costs.compute_set_of_step[step])
        family = families[number] if number >= 0 else EXCHANGE  # copies within tiles
        add(family, int(executed[step] * compute[step].max()))
    return {family: cycles for family, cycles in result.items() if cycles}


def energy_interval(joules: float) -> ConfidenceInterval:
    """Joules between which a measurement would be, nine times in ten, by stated powers."""
    low, high = shipped_residuals().of_family(ENERGY)
    return ConfidenceInterval(joules * low, joules * high)


def cycle_interval(cycles: int, by_family: Mapping[str, float]) -> tuple[int, int]:
    """Cycles between which a measurement would be, nine times in ten."""
    factors = shipped_residuals().factors(by_family)
    return int(cycles * factors.low), -int(-cycles * factors.high // 1)
