"""Prices an Asian call by Monte Carlo on tiles: control variate, Greeks, known answers beside."""

from dataclasses import dataclass

import numpy as np

from tremula.garden.application import Findings, Settings, modelled_engine
from tremula.garden.applications.asian_options.program import SUMS, path_engine
from tremula.garden.models.science.black_scholes import european, geometric_asian_call

TERMS = (100.0, 105.0, 0.03, 0.25, 1.0)  # spot, strike, interest, volatility, years
N_DATES = 12


def run(settings: Settings) -> Findings:
    n_paths, n_tiles = (400_000, 64) if settings.tiny else (50_000_000, 1472)
    engine = path_engine(n_paths, N_DATES, n_tiles).load()
    engine.write_tensor("terms", np.array(TERMS, np.float32))
    engine.run()
    n_paths = len(engine.read_tensor("sums")) * -(-n_paths // len(engine.read_tensor("sums")))
    settings.show(f"{n_paths:,} paths of {N_DATES} dates on {n_tiles} tiles")
    means = Means.of(engine.read_tensor("sums"), n_paths)
    modelled = modelled_engine(engine, settings, n_items=n_paths, unit="paths/s")
    known = european(*TERMS, is_call=True)
    middle = geometric_asian_call(*TERMS, N_DATES)
    price, error, plain_error = means.controlled(middle)
    settings.show(
        f"  Asian call {price:.4f} ± {error:.4f}; without control variate ± {plain_error:.4f}"
    )
    settings.show(f"  its delta {means['asian_delta']:.4f}, its vega {means['asian_vega']:.3f}")
    settings.show(f"  European {means['european']:.4f}, Black and Scholes {known.price:.4f}")
    return Findings(
        results={
            "asian_price": price,
            "asian_standard_error": error,
            "gain_by_control": plain_error / error,
            "geometric_deviations": abs(means["geometric"] - middle) / means.error("geometric"),
            "european_deviations": abs(means["european"] - known.price) / means.error("european"),
            "european_delta_error": abs(means["european_delta"] - known.delta),
            "european_vega_error": abs(means["european_vega"] / known.vega - 1),
        },
        modelled=modelled,
    )


@dataclass(frozen=True, slots=True)
class Means:
    """Means over all paths, by the names of SUMS."""

    of_name: dict[str, float]
    n_paths: int

    @classmethod
    def of(cls, sums: np.ndarray, n_paths: int) -> "Means":
        means = sums.astype(np.float64).sum(0) / n_paths
        return cls(dict(zip(SUMS, means.tolist(), strict=True)), n_paths)

    def __getitem__(self, name: str) -> float:
        return self.of_name[name]

    def error(self, name: str) -> float:
        """The standard error of a payoff's mean."""
        return self._variance(name) ** 0.5 / self.n_paths**0.5

    def _variance(self, name: str) -> float:
        return self[f"{name}_squared"] - self[name] ** 2

    def controlled(self, known_geometric: float) -> tuple[float, float, float]:
        """The Asian price corrected by the control variate, its error, and the error without."""
        shared = self["asian_times_geometric"] - self["asian"] * self["geometric"]
        slope = shared / self._variance("geometric")
        price = self["asian"] + slope * (known_geometric - self["geometric"])
        left = max(self._variance("asian") - slope * shared, 0.0)
        return price, (left / self.n_paths) ** 0.5, self.error("asian")
