"""The fit: robust least squares, what rows can tell, and errors on rows that were left out.

Residuals are logarithms of predicted over measured times, in units of the noise; the loss grows
like their square near 0 and like themselves far out, so single wrong rows do not decide. The noise
is estimated from the residuals. Fisher's information of the rows gives the uncertainty of each
constant: one that the rows tell to within `limit` is fitted. Where only a combination is told, one
constant stands for it, and the others stay as they were.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tremula.base.requirements import require_for_command
from tremula.hardware import Chip
from tremula.validate.fit.linear import (
    HIGHEST,
    LEAST_EFFECT,
    LOWEST,
    LinearModel,
    Parameters,
    linear_model,
)
from tremula.validate.fit.measurements import Measurement
from tremula.validate.fit.prediction import FITTABLE, TimePredictor, changed

Floats = np.ndarray
LIMIT = 0.10  # half of the 90 % interval of a constant that is fitted, relative to it
N_ROUNDS = 8
# How far a constant may well be from that of the first chip, relative to it, by its provenance.
PRIORS = {"stated": 0.15, "derived": 0.3, "fitted": 0.3, "guessed": 0.5, "yours": 0.5}
NOISE, N_NOISE = 0.02, 3  # expected before any row was seen, and how many rows that is worth
CLOSE = 0.002  # parameters that move less have arrived
OUTLIER = 4.0  # in units of the noise
SOFT = 1.5  # in units of the noise: where the loss turns from square to linear
N_FOLDS = 25
_WIDE = (0.5, 0.7, 1.4, 2.0)  # tried for constants that do nothing near the first chip


@dataclass(frozen=True, slots=True)
class Estimate:
    """What rows say of one constant.

    `status` is "fitted"; "confirmed": told, and the old value is within the interval, so it stays;
    "combined": fitted, but only together with `partners`, which stay as they were; or "left".
    `half_width` is half of the 90 % interval, relative to the value.
    """

    name: str
    status: str
    before: float
    value: float
    half_width: float
    rows: tuple[str, ...] = ()  # that tell most of it
    partners: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RowFit:
    """A row before and after the fit, and predicted by a fit without it."""

    measurement: Measurement
    before: float
    after: float
    held_out: float  # each relative to the measurement, less 1
    is_outlier: bool


@dataclass(frozen=True, slots=True)
class FitResult:
    chip: Chip
    base: Chip
    estimates: tuple[Estimate, ...]
    rows: tuple[RowFit, ...]
    noise: float
    is_better: bool  # than the first chip, on rows that were left out; else that chip stays

    def of(self, name: str) -> Estimate:
        return next(one for one in self.estimates if one.name == name)

    def median(self, which: str) -> float:
        """The median of absolute errors: "before", "after" or "held_out"."""
        return float(np.median([abs(getattr(row, which)) for row in self.rows]))


def fit(
    rows: Sequence[Measurement],
    base: Chip,
    *,
    name: str = "",
    limit: float = LIMIT,
    progress: Callable[[float], None] = lambda _: None,
) -> FitResult:
    """Fit the constants of a chip that rows tell, starting from those of `base`."""
    require_for_command("tremula fit", "fit")
    predictor = TimePredictor(rows, base, lambda share: progress(0.5 * share))
    return Fitter(predictor, base, limit).result(name or f"{base.name}, fitted", progress)


class Fitter:
    """Rows and the chip they start from."""

    def __init__(self, predictor: TimePredictor, base: Chip, limit: float = LIMIT):
        self.predictor, self.base, self.limit = predictor, base, limit
        self.rows = predictor.rows
        self.measured = np.log([row.time for row in self.rows])
        self.stated = np.array([row.error for row in self.rows])
        self.noise = 0.1
        facts = base.facts
        self.prior = {name: PRIORS[facts[name].provenance] for name in FITTABLE}

    def result(self, name: str, progress: Callable[[float], None] = lambda _: None) -> FitResult:
        start = self._start()
        parameters = Parameters(self._active(start), self.base)
        chip, model = self._converge(parameters, start, progress)
        known = _Knowledge(model, self._weights(model), self.limit)
        names = [n for n in (*known.told, *known.combined) if n not in known.confirmed]
        chip = self._final(parameters.only(names), known, chip)
        model = linear_model(self.predictor, parameters.only(names), chip)
        held_out = self._held_out(model, chip)
        after = self._errors(chip)
        estimates = tuple(known.estimate(n, self.base, chip, self.rows) for n in FITTABLE)
        result = tuple(
            RowFit(row, *three, abs(np.log1p(three[1])) > OUTLIER * sigma)
            for row, three, sigma in zip(
                self.rows,
                zip(self._errors(self.base), after, held_out, strict=True),
                self._sigma(),
                strict=True,
            )
        )
        is_better = _median(held_out) <= _median(self._errors(self.base))
        progress(1.0)
        chip = chip_with(chip, self.base, name, _facts(estimates, len(self.rows)))
        return FitResult(
            chip if is_better else self.base.replace(name=name),
            self.base,
            estimates if is_better else tuple(map(_taken_back, estimates)),
            result,
            self.noise,
            is_better,
        )

    # -- steps of the fit --------------------------------------------------------------------------

    def _active(self, start: Chip) -> tuple[str, ...]:
        """Constants that some row depends on near a chip."""
        model = linear_model(self.predictor, Parameters(tuple(FITTABLE), self.base), start)
        effect = np.abs(model.effects * np.maximum(model.at, 0.1)).max(axis=0)
        return tuple(n for n, e in zip(FITTABLE, effect, strict=True) if e > LEAST_EFFECT)

    def _start(self) -> Chip:
        """The first chip, or one beyond a limit that hides a constant: see _WIDE."""
        chip, active = self.base, self._active(self.base)
        best = self._cost(chip)
        for name in (n for n in FITTABLE if n not in active and getattr(self.base, n)):
            for factor in _WIDE:
                other = changed(chip, name, getattr(self.base, name) * factor)
                if (cost := self._cost(other)) < 0.98 * best:
                    chip, best = other, cost
        return chip

    def _cost(self, chip: Chip) -> float:
        return float(np.abs(np.log(self.predictor.times(chip)) - self.measured).sum())

    def _converge(
        self, parameters: Parameters, chip: Chip, progress: Callable[[float], None]
    ) -> tuple[Chip, LinearModel]:
        """Solve the linear model, move there, and look again, until nothing moves."""
        before = parameters.of(chip)
        for number in range(N_ROUNDS):
            progress(0.5 + 0.4 * number / N_ROUNDS)
            solved = self._solved_near(parameters, chip)
            if np.abs(solved.at - before).max(initial=0.0) < max(CLOSE, 0.2 * self.noise):
                return chip, solved
            chip, before = parameters.chip(solved.at, chip), solved.at
        return chip, self._solved_near(parameters, chip)

    def _solved_near(self, parameters: Parameters, chip: Chip) -> LinearModel:
        """The linear model near a chip, moved to its own solution."""
        model = linear_model(self.predictor, parameters, chip)
        solution = self._solve(model)
        self.noise = self._noise_of(model, solution)
        return replace(model, at=solution, times=model.times_at(solution))

    def _solve(self, model: LinearModel, rows: Sequence[int] | None = None) -> Floats:
        from scipy.optimize import least_squares

        chosen = list(range(len(self.rows))) if rows is None else list(rows)
        model, sigma = model.rows(chosen), self._sigma()[chosen]
        target, home = self.measured[chosen], model.parameters.of(self.base)
        prior = self._priors(model)

        def residuals(parameters: Floats) -> Floats:
            of_rows = (np.log(model.times_at(parameters)) - target) / sigma
            return np.concatenate([of_rows, (parameters - home) / prior])

        def jacobian(parameters: Floats) -> Floats:
            slopes = model.slopes / model.times_at(parameters)[:, None] / sigma[:, None]
            return np.concatenate([slopes, np.diag(1 / prior)])

        low = np.maximum(0.5 * model.at, LOWEST)
        high = np.minimum(2 * np.maximum(model.at, 0.25), HIGHEST)
        low[home == 0] = 0.0
        start = np.clip(model.at, low + 1e-9, high - 1e-9)
        settings: dict[str, Any] = {"jac": jacobian, "loss": "soft_l1", "f_scale": SOFT}
        return least_squares(residuals, start, bounds=(low, high), **settings).x

    def _priors(self, model: LinearModel) -> Floats:
        return np.array([self.prior[name] for name in model.parameters.names])

    def _sigma(self) -> Floats:
        return np.maximum(self.stated, self.noise)

    def _noise_of(self, model: LinearModel, solution: Floats) -> float:
        """The spread of residuals, outliers cut; parameters take away as many of them."""
        residual = np.log(model.times_at(solution)) - self.measured
        sigma = self._sigma()
        n_rows, priors = len(residual), self._priors(model)
        n_spare = max(1.0, n_rows - _n_effective(model.effects / sigma[:, None], priors))
        spread = 1.4826 * float(np.median(np.abs(residual))) * np.sqrt(n_rows / n_spare)
        cut = np.minimum(np.abs(residual), 3 * spread)
        square = float((cut**2).sum()) + N_NOISE * NOISE**2
        return float(np.sqrt(square / (n_spare + N_NOISE)))

    def _weights(self, model: LinearModel) -> Floats:
        """float64[n_rows]: 1 / standard error, less for rows that do not fit."""
        residual = (np.log(model.times) - self.measured) / self._sigma()
        return (1 + (residual / SOFT) ** 2) ** -0.25 / self._sigma()

    def _final(self, parameters: Parameters, known: "_Knowledge", chip: Chip) -> Chip:
        """Told constants as solved, others as they were; combined ones solved again."""
        told = {name: getattr(chip, name) for name in known.told if name not in known.confirmed}
        chip = self.base.replace(name=self.base.name, **told)
        only = parameters.only(known.combined)
        if known.combined:
            chip, _ = self._converge(only, chip, lambda _: None)
        return chip

    # -- rows that were left out -------------------------------------------------------------------

    def _held_out(self, model: LinearModel, chip: Chip) -> Floats:
        """Errors of rows by fits that did not see them; rows of a source are left out together."""
        result = np.zeros(len(self.rows))
        for out in folds_of(self.rows):
            rest = [i for i in range(len(self.rows)) if i not in set(out)]
            other = chip
            if len(model.at) and rest:
                other = model.parameters.chip(self._solve(model, rest), chip)
            times = self.predictor.times(other, out)
            result[out] = times / np.exp(self.measured[out]) - 1
        return self._as_values(result)

    def _errors(self, chip: Chip) -> Floats:
        return self._as_values(self.predictor.times(chip) / np.exp(self.measured) - 1)

    def _as_values(self, errors: Floats) -> Floats:
        """Errors of times as errors of what was measured: a rate is an inverse."""
        is_rate = np.array([row.is_rate for row in self.rows])
        return np.where(is_rate, 1 / (1 + errors) - 1, errors)


def folds_of(rows: Sequence[Measurement]) -> list[list[int]]:
    """Rows by source if there are several, else one by one, or in 25 parts."""
    sources = list(dict.fromkeys(row.source for row in rows))
    if len(sources) > 1:
        return [[i for i, row in enumerate(rows) if row.source == name] for name in sources]
    n_folds = min(N_FOLDS, len(rows))
    return [list(range(k, len(rows), n_folds)) for k in range(n_folds)]


def _n_effective(effects: Floats, priors: Floats) -> float:
    """How many parameters the rows decide, and not what was expected before."""
    information = effects.T @ effects
    return float(np.trace(np.linalg.solve(information + np.diag(priors**-2), information)))


class _Knowledge:
    """What rows tell of each parameter of a model."""

    def __init__(self, model: LinearModel, weights: Floats, limit: float):
        self.model, self.limit = model, limit
        self.names = list(model.parameters.names)
        self.weighted = model.effects * weights[:, None]
        n_spare = len(weights) - len(self.names)
        self.quantile = _quantile(n_spare)
        self.half_widths = dict(zip(self.names, self._half_widths(self.names), strict=True))
        self.told = [n for n in self.names if self.half_widths[n] <= limit and self._is_there(n)]
        self.confirmed = [n for n in self.told if self._is_confirmed(n)]
        self.combined, self.dropped = self._combinations()

    def _covariance(self, names: Sequence[str]) -> Floats:
        columns = self.weighted[:, [self.names.index(n) for n in names]]
        nearly_nothing = np.eye(len(names)) / 100**2
        return np.linalg.inv(columns.T @ columns + nearly_nothing)

    def _half_widths(self, names: Sequence[str]) -> Floats:
        at = np.array([self.model.at[self.names.index(n)] for n in names])
        errors = np.sqrt(np.diag(self._covariance(names))) if len(names) else np.empty(0)
        base = self.model.parameters.base
        at = np.array([a if getattr(base, n) else 1.0 for a, n in zip(at, names, strict=True)])
        widths = self.quantile * errors / np.maximum(at, LOWEST)
        return np.array([self._whole(*one) for one in zip(names, at, widths, strict=True)])

    def _is_confirmed(self, name: str) -> bool:
        """Whether the old value is within the interval."""
        at = self.model.at[self.names.index(name)]
        home = Parameters((name,), self.model.parameters.base).of(self.model.parameters.base)[0]
        return bool(abs(at - home) <= self.half_widths[name] * at)

    def _is_there(self, name: str) -> bool:
        """Whether a constant that was 0 is clearly more; others are there anyway."""
        was = getattr(self.model.parameters.base, name)
        return bool(was) or self.model.at[self.names.index(name)] > 2 * self.half_widths[name]

    def _whole(self, name: str, at: float, width: float) -> float:
        """Of a constant that is whole, the distance to others in its interval counts, too."""
        parameters = self.model.parameters
        nearest = parameters.constant(name, at)
        if not isinstance(nearest, int) or not getattr(parameters.base, name) or not width < 1:
            return width
        ends = [at / (1 + width), at * (1 + width)]
        others = [parameters.constant(name, end) for end in ends]
        return max(width, *(abs(other / nearest - 1) for other in others))

    def _combinations(self) -> tuple[list[str], list[str]]:
        """Of what is not told, constants that are once others stay fixed; and those others."""
        rest, dropped = [n for n in self.names if n not in self.told and self._is_there(n)], []
        widths: dict[str, float] = {}
        while rest:
            chosen = self.told + rest
            widths = dict(zip(chosen, self._half_widths(chosen), strict=True))
            vague = [n for n in rest if widths[n] > self.limit]
            if not vague:
                break
            worst = max(vague, key=lambda n: (self._alone(n), self.names.index(n)))
            rest.remove(worst)
            dropped.append(worst)
        self.half_widths |= {n: widths[n] for n in rest}
        return [n for n in rest if self._partners(n, dropped)], dropped

    def _alone(self, name: str) -> float:
        """How badly rows tell a constant even if all others are known, to three digits."""
        return float(f"{self._half_widths([name])[0]:.3g}")

    def _partners(self, name: str, dropped: Sequence[str]) -> tuple[str, ...]:
        """Constants that rows hardly tell from this one."""
        if not dropped:
            return ()
        chosen = [name, *dropped]
        covariance = self._covariance([*self.names])
        index = [self.names.index(n) for n in chosen]
        part = covariance[np.ix_(index, index)]
        scale = np.sqrt(np.diag(part))
        correlation = np.abs(part[0] / scale[0] / scale)
        return tuple(n for n, c in zip(dropped, correlation[1:], strict=True) if c > 0.5)

    def estimate(self, name: str, base: Chip, chip: Chip, rows: Sequence[Measurement]) -> Estimate:
        before, value = float(getattr(base, name)), float(getattr(chip, name))
        if name not in self.names:
            return Estimate(name, "left", before, before, np.inf)
        width, told_by = float(self.half_widths[name]), self._told_by(name, rows)
        if name in self.told:
            status = "confirmed" if name in self.confirmed else "fitted"
            return Estimate(name, status, before, value, width, told_by)
        if name in self.combined:
            partners = self._partners(name, self.dropped)
            return Estimate(name, "combined", before, value, width, told_by, partners)
        return Estimate(name, "left", before, before, width, told_by)

    def _told_by(self, name: str, rows: Sequence[Measurement]) -> tuple[str, ...]:
        """The three rows that depend on it most."""
        effect = np.abs(self.weighted[:, self.names.index(name)])
        order = [i for i in np.argsort(-effect)[:3] if effect[i] > 0]
        return tuple(rows[i].row.id for i in order)


def _taken_back(one: Estimate) -> Estimate:
    """A constant that stays as it was, since moving it does not help other rows."""
    return replace(one, status="left", value=one.before)


def _median(errors: Floats) -> float:
    return float(np.median(np.abs(errors)))


def _quantile(n_spare: int) -> float:
    """Of Student's distribution, for intervals of 90 %."""
    from scipy.special import stdtrit

    return float(stdtrit(max(2, n_spare), 0.95))


def _facts(estimates: Sequence[Estimate], n_rows: int) -> dict[str, str]:
    """Where each fitted constant comes from, in words."""
    result = {}
    for one in estimates:
        if one.status not in ("fitted", "combined"):
            continue
        interval = f"±{one.half_width:.1%} (90 %)"
        text = f"fitted to {n_rows} rows, {interval}, most by {', '.join(one.rows)}"
        if one.partners:
            text += f"; only together with {', '.join(one.partners)}, left as before"
        result[one.name] = text
    return result


def chip_with(chip: Chip, base: Chip, name: str, sources: dict[str, str]) -> Chip:
    """A chip whose fitted constants say so."""
    from tremula.hardware import Fact

    facts = {key: Fact(getattr(chip, key), "fitted", text) for key, text in sources.items()}
    return base.replace(name=name, **facts)
