"""The model of all rows near one chip: times that are linear in what costs time.

A parameter is a constant relative to that of the first chip: `c / c0` for a cost, `c0 / c` for a
rate. Times are sums of such terms and maxima of sums, hence linear in them piece by piece.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tremula.hardware import Chip
from tremula.validate.fit.prediction import FITTABLE, RATE, TimePredictor, possible

Floats = np.ndarray
STEP = 0.1  # how far a constant is moved to see what it does
LEAST_EFFECT = 1e-3  # of doubling a constant on some row, relative to the row's time
LOWEST, HIGHEST = 0.02, 50.0  # of a parameter


@dataclass(frozen=True, slots=True)
class Parameters:
    """The constants that are varied, and the chip that they are relative to."""

    names: tuple[str, ...]
    base: Chip

    def scale(self, name: str) -> float:
        """What a parameter of 1 stands for; of a constant that is 0, a sync."""
        return float(getattr(self.base, name)) or float(self.base.sync_cycles)

    def of(self, chip: Chip) -> Floats:
        """float64[n]: the parameters of a chip."""
        return np.array([self.value(name, getattr(chip, name)) for name in self.names])

    def value(self, name: str, constant: float) -> float:
        scale = self.scale(name)
        return scale / constant if FITTABLE[name] is RATE else constant / scale

    def constant(self, name: str, parameter: float) -> float:
        """The constant that a parameter stands for, as near as it can be."""
        scale = self.scale(name)
        exact = scale / parameter if FITTABLE[name] is RATE else parameter * scale
        return possible(name, exact)

    def chip(self, parameters: Floats, start: Chip | None = None) -> Chip:
        """A chip with these parameters; other constants are those of `start`."""
        start = start or self.base
        constants = {
            name: self.constant(name, value)
            for name, value in zip(self.names, parameters.tolist(), strict=True)
        }
        return start.replace(name=start.name, **constants)

    def only(self, names: Sequence[str]) -> "Parameters":
        return Parameters(tuple(n for n in self.names if n in names), self.base)


@dataclass(frozen=True, slots=True)
class LinearModel:
    """Times of rows near a chip: `times + slopes @ (parameters - at)`."""

    parameters: Parameters
    at: Floats  # float64[n_parameters]
    times: Floats  # float64[n_rows]
    slopes: Floats  # float64[n_rows, n_parameters]

    def times_at(self, parameters: Floats) -> Floats:
        return np.maximum(self.times + self.slopes @ (parameters - self.at), 1e-3 * self.times)

    @property
    def effects(self) -> Floats:
        """float64[n_rows, n_parameters]: relative change of times with that of parameters."""
        return self.slopes / self.times[:, None]

    def rows(self, chosen: Sequence[int]) -> "LinearModel":
        chosen = list(chosen)
        return LinearModel(self.parameters, self.at, self.times[chosen], self.slopes[chosen])

    def columns(self, names: Sequence[str]) -> "LinearModel":
        chosen = [i for i, name in enumerate(self.parameters.names) if name in names]
        return LinearModel(
            self.parameters.only(names), self.at[chosen], self.times, self.slopes[:, chosen]
        )


def linear_model(predictor: TimePredictor, parameters: Parameters, chip: Chip) -> LinearModel:
    """Move each constant a little both ways, as far as it can be moved."""
    at = parameters.of(chip)
    slopes = np.zeros((len(predictor.rows), len(at)))
    for column, name in enumerate(parameters.names):
        low, high = (_moved(parameters, chip, name, sign) for sign in (-1, 1))
        one = Parameters((name,), parameters.base)
        distance = float(one.of(high)[0] - one.of(low)[0])
        if distance:
            slopes[:, column] = (predictor.times(high) - predictor.times(low)) / distance
    return LinearModel(parameters, at, predictor.times(chip), slopes)


def _moved(parameters: Parameters, chip: Chip, name: str, sign: int) -> Chip:
    """A chip with one constant moved by a tenth, or by one where it is whole and small."""
    constant = getattr(chip, name)
    further = STEP * (constant or parameters.scale(name))
    if isinstance(constant, int):
        further = max(1, round(further))
    value = possible(name, constant + sign * further)
    return chip.replace(name=chip.name, **{name: value})
