"""Infers the parameters of an epidemic from its first 49 days, by simulating millions of others.

The tolerance falls in stages. Whatever is near enough for a stage would have passed all before it,
so each stage draws from the box around what the one before it kept, and little is wasted.
"""

import numpy as np

from tremula.garden.application import Findings, Settings, modelled_engine
from tremula.garden.applications.epidemic_abc.inference import Accepted, Inference
from tremula.garden.applications.epidemic_abc.model import (
    HIGH,
    LOW,
    PARAMETERS,
    TRUTH,
    Epidemic,
    observations,
)

N_TILES = 1472  # all of a Bow
TOLERANCES_TINY = (0.25, 0.12, 0.08)
TOLERANCES = (*TOLERANCES_TINY, 0.06, 0.05)
MARGIN = 0.1  # of its width, added on both sides of a box of few samples
INFECTION, REGULATION, RECOVERY, TESTS, FATALITY = 0, 2, 3, 4, 5  # places in PARAMETERS


def run(settings: Settings) -> Findings:
    epidemic = Epidemic()
    observed = observations(epidemic)
    tolerances = TOLERANCES_TINY if settings.tiny else TOLERANCES
    inference = Inference(epidemic, n_tiles=N_TILES, n_samples=16)
    stages = infer(inference, observed, tolerances, 80 if settings.tiny else 500, settings)
    last = stages[-1].parameters
    for parameter, values in zip(PARAMETERS, last.T, strict=True):
        settings.show(
            f"  {parameter.name:32} {values.mean():7.3f} ± {values.std():6.3f}"
            f"   made with {parameter.truth:g}"
        )
    n_simulated = sum(stage.n_simulated for stage in stages)
    return Findings(
        results=results(last) | {"simulations": float(n_simulated)},
        modelled=modelled_engine(
            inference.engine, settings, n_items=n_simulated, unit="simulations/s"
        ),
        curves={
            f"deviation of {PARAMETERS[at].name}": [
                float(stage.parameters[:, at].std()) for stage in stages
            ]
            for at in (RECOVERY, FATALITY)
        },
        picture=picture(last),
    )


def infer(
    inference: Inference,
    observed: np.ndarray,
    tolerances: tuple[float, ...],
    wanted: int,
    settings: Settings,
) -> list[Accepted]:
    """What passed each stage."""
    low, high, stages = LOW, HIGH, []
    for tolerance in tolerances:
        result = inference.run(observed, tolerance, wanted, low=low, high=high)
        settings.show(
            f"within {tolerance:g}: {len(result.distances):,} of {result.n_simulated:,}"
            " simulations,"
            f" left after {result.n_days / result.n_simulated:.0f} of {len(observed)} days"
            " on average"
        )
        stages.append(result)
        low, high = box(result.parameters)
    return stages


def box(parameters: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Bounds of the samples with a margin, inside the prior's."""
    low, high = parameters.min(axis=0), parameters.max(axis=0)
    margin = MARGIN * (high - low)
    return np.maximum(low - margin, LOW), np.minimum(high + margin, HIGH)


def results(parameters: np.ndarray) -> dict[str, float]:
    """Relative errors of what days 0 to 48 can tell, and how many intervals hold the truth."""
    middle = parameters.mean(axis=0)
    error = np.abs(middle / TRUTH - 1)
    # Of α0 and γ only the ratio is known: new infections of an infected person in the long run.
    ratio = float(np.median(parameters[:, INFECTION] / parameters[:, TESTS]))
    true_ratio = float(TRUTH[INFECTION] / TRUTH[TESTS])
    low, high = np.quantile(parameters, [0.025, 0.975], axis=0)
    return {
        "recovery_rate_error": float(error[RECOVERY]),
        "fatality_rate_error": float(error[FATALITY]),
        "regulation_error": float(error[REGULATION]),
        "reproduction_error": abs(ratio / true_ratio - 1),
        "truths_in_95_percent_intervals": float(((low <= TRUTH) & (high >= TRUTH)).mean()),
    }


def picture(parameters: np.ndarray) -> np.ndarray:
    """How often samples have each recovery rate (across) and fatality rate (up)."""
    bounds = [(LOW[at], HIGH[at]) for at in (FATALITY, RECOVERY)]
    counts, *_ = np.histogram2d(
        parameters[:, FATALITY], parameters[:, RECOVERY], bins=40, range=bounds
    )
    return counts[::-1] / counts.max()
