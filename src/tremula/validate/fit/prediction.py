"""Rows predicted on many chips: each row's programs are compiled once and costed again."""

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from tremula.base.errors import PoplarError
from tremula.hardware import Chip
from tremula.hardware.constant_records import quantities
from tremula.validate.fit.measurements import Measurement
from tremula.validate.fit.recosting import RecostableLowering
from tremula.validate.rows import RowError
from tremula.validate.timing import Build, Timing, lowered_program, timed_by

Floats = np.ndarray

# Constants that rows can be fitted to, and whether more of it takes less time. Where rows cannot
# tell two of them apart, the earlier one is fitted and the later one left.
RATE, TIME = True, False
FITTABLE: dict[str, bool] = {
    "clock_hz": RATE,
    "sync_cycles": TIME,
    "external_sync_cycles": TIME,
    "compute_set_start_cycles": TIME,
    "exchange_bytes_per_cycle": RATE,
    "exchange_latency_cycles": TIME,
    "exchange_latency_cycles_per_column": TIME,
    "exchange_latency_cycles_per_row": TIME,
    "exchange_latency_cycles_across": TIME,
    "exchange_fragment_cycles": TIME,
    "on_tile_copy_setup_cycles": TIME,
    "one_word_copy_cycles": TIME,
    "memcpy_bytes_per_cycle": RATE,
    "ipu_link_gbytes_per_s": RATE,
    "ipu_link_latency_s": TIME,
    "n_sends_in_flight": RATE,
    "ipu_link_efficiency": RATE,
    "host_link_gbytes_per_s": RATE,
    "host_latency_s": TIME,
}


class TimePredictor:
    """Predicted times of rows on chips that differ from the first in fittable constants."""

    def __init__(
        self,
        rows: Sequence[Measurement],
        chip: Chip,
        progress: Callable[[float], None] = lambda _: None,
    ):
        self.rows, self.chip = rows, chip
        self._programs: list[list[RecostableLowering]] = []
        self._depends: list[tuple[str, ...]] = []  # of each row, constants that it depends on
        self._known: list[dict[tuple[float, ...], float]] = []
        variants = {name: _variants(chip, name) for name in FITTABLE}
        for number, row in enumerate(rows):
            self._programs.append(_programs_of(row, chip))
            self._depends.append(tuple(FITTABLE))
            self._known.append({})
            self._depends[-1] = self._constants_of(number, variants)
            self._known[-1].clear()
            progress((number + 1) / len(rows))

    def part(self, numbers: Sequence[int]) -> "TimePredictor":
        """Some of the rows, with the programs that were compiled for all."""
        result = object.__new__(TimePredictor)
        result.rows, result.chip = [self.rows[i] for i in numbers], self.chip
        result._programs = [self._programs[i] for i in numbers]
        result._depends = [self._depends[i] for i in numbers]
        result._known = [self._known[i] for i in numbers]
        return result

    def _constants_of(self, number: int, variants: Mapping[str, Sequence[Chip]]) -> tuple[str, ...]:
        """Constants that change a row's time if they are smaller or larger by a third or so."""
        own = self._time(number, self.chip)
        return tuple(
            name
            for name, chips in variants.items()
            if any(self._time(number, chip) != own for chip in chips)
        )

    def times(self, chip: Chip, only: Sequence[int] | None = None) -> Floats:
        """float64[n]: every row on a chip, or some of them; rates as their inverse."""
        numbers = range(len(self.rows)) if only is None else only
        return np.array([self._time(number, chip) for number in numbers])

    def _time(self, number: int, chip: Chip) -> float:
        key = tuple(getattr(chip, name) for name in self._depends[number])
        known = self._known[number]
        if key not in known:
            known[key] = self._computed_time(number, chip)
        return known[key]

    def _computed_time(self, number: int, chip: Chip) -> float:
        row, programs = self.rows[number], iter(self._programs[number])

        def timer(_: str | Chip, __: int, ___: Build) -> Timing:
            return next(programs).timing_on(chip)

        with timed_by(timer):
            return _time_of(row, chip)


def _programs_of(row: Measurement, chip: Chip) -> list[RecostableLowering]:
    """What a row's workload times, in its order."""
    result: list[RecostableLowering] = []

    def timer(chip: str | Chip, n_ipus: int, build: Build) -> Timing:
        result.append(RecostableLowering(lowered_program(chip, n_ipus, build)))
        return result[-1].timing_on(result[-1].chip)

    try:
        with timed_by(timer):
            _time_of(row, chip)
    except PoplarError as error:
        raise RowError(
            f"row {row.row.id!r} cannot be built: {error.what}", hint=error.hint
        ) from error
    if not result:
        raise RowError(
            f"row {row.row.id!r} is not one program of tiles, so no constant can be fitted to it.",
            hint="give rows of single operations",
        )
    return result


def _time_of(row: Measurement, chip: Chip) -> float:
    value = row.workload.predict(row.row, chip).in_unit(row.row.unit)  # pyright: ignore[reportArgumentType]
    return 1 / value if row.is_rate else value


def _variants(chip: Chip, name: str) -> list[Chip]:
    """Chips on which one constant is smaller or larger by a third or so, and by one."""
    value = getattr(chip, name)
    tried = [value * 0.7, value * 1.4] if value else [chip.sync_cycles]
    if isinstance(value, int):
        tried += [value - 1, value + 1]
    return [changed(chip, name, other) for other in tried]


def changed(chip: Chip, name: str, value: float) -> Chip:
    """A chip with one constant changed, rounded to what it can be."""
    return chip.replace(name=chip.name, **{name: possible(name, value)})


def possible(name: str, value: float) -> float:
    """The nearest value a constant can have: whole for most, in its range."""
    field = quantities(Chip)[name]
    rules = field.metadata
    if field.type is int:
        return max(0 if rules["may_be_zero"] else 1, round(value))
    return float(min(max(value, 1e-30), rules["at_most"]))
