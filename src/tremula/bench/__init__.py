"""Figures: what Tremula promises about its own speed, size and accuracy, measured in one run."""

from importlib import import_module

from tremula.base.errors import InvalidOption, suggest
from tremula.bench.figures import Bar, Figure, Suite, print_figures, write_json
from tremula.bench.measure import Ratio, Usage, peak_rss_of, ratio

__all__ = [
    "SUITES", "load_suite",
    "Bar", "Figure", "Suite", "print_figures", "write_json",
    "Ratio", "Usage", "peak_rss_of", "ratio",
]  # fmt: skip

# Suite → the module that holds it as SUITE; imported only when it is measured.
SUITES = {
    "core": "tremula.bench.core.suite",
    "poplibs": "tremula.bench.poplibs.suite",
    "poptorch": "tremula.bench.poptorch.suite",
    "geometric": "tremula.bench.geometric.suite",
    "onnx": "tremula.bench.onnx.suite",
    "popxl": "tremula.bench.popxl.suite",
    "sparse": "tremula.bench.sparse.suite",
    "jax": "tremula.bench.jax.suite",
    "keras": "tremula.bench.keras.suite",
    "keras-applications": "tremula.bench.keras.applications",
    "optimum": "tremula.bench.optimum.suite",
    "vision": "tremula.bench.vision.suite",
    "scale": "tremula.bench.scale.suite",
    "system": "tremula.bench.system.suite",
    "garden": "tremula.bench.garden.suite",
}


def load_suite(name: str) -> Suite:
    """The suite of that name."""
    if name not in SUITES:
        raise InvalidOption(f"there is no bench suite {name!r}.", hint=suggest(name, SUITES))
    return import_module(SUITES[name]).SUITE
