"""Samples the coefficients of a logistic regression with many chains, against quadrature."""

import numpy as np

from tremula.garden.application import Findings, Settings, modelled_engine
from tremula.garden.applications.parallel_chains.chains import Chains
from tremula.garden.applications.parallel_chains.model import exact_moments, observations


def run(settings: Settings) -> Findings:
    n_tiles = 64 if settings.tiny else 1472
    x, y = observations()
    expected_mean, expected_deviation = exact_moments(x, y)
    chains = Chains(len(y), n_tiles=n_tiles)
    n_chains = n_tiles * chains.n_workers
    settings.show(f"{n_chains:,} chains on {n_tiles} tiles, {len(y)} observations")
    result = chains.run(x, y)
    settings.show(
        f"  they agree after {result.n_steps} steps each (ratio {result.ratio:.4f}),"
        f" {result.taken:.0%} of the steps were taken"
    )
    for k in range(len(result.mean)):
        settings.show(
            f"  coefficient {k}: {result.mean[k]:.3f} ± {result.deviation[k]:.3f},"
            f" by quadrature {expected_mean[k]:.3f} ± {expected_deviation[k]:.3f}"
        )
    return Findings(
        results={
            "mean_error_in_deviations": float(
                np.abs((result.mean - expected_mean) / expected_deviation).max()
            ),
            "deviation_error": float(np.abs(result.deviation / expected_deviation - 1).max()),
            "steps_of_a_chain": float(result.n_steps),
        },
        modelled=modelled_engine(
            chains.engine, settings, n_items=n_chains * result.n_steps, unit="steps/s"
        ),
    )
