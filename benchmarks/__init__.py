"""Figures: what Tremula promises about its own speed, size and accuracy, measured in one run.

This package is not installed: `tremula bench SUITE` finds it in the checkout it runs from. Samples
that tests use too are in tests/.
"""

from importlib import import_module

from benchmarks.comparison import Record, print_changes, read_record, this_machine, write_record
from benchmarks.figures import Bar, Figure, Suite, print_figures, read_json, write_json, written
from benchmarks.measure import Ratio, Usage, peak_rss_of, ratio
from tremula.base.errors import InvalidOption, suggest

__all__ = [
    "SUITES", "load_suite",
    "Bar", "Figure", "Suite", "print_figures", "read_json", "write_json", "written",
    "Record", "print_changes", "read_record", "this_machine", "write_record",
    "Ratio", "Usage", "peak_rss_of", "ratio",
]  # fmt: skip

# Suite → the module that holds it as SUITE; imported only when it is measured.
SUITES = {
    "core": "benchmarks.core.suite",
    "poplibs": "benchmarks.poplibs.suite",
    "poptorch": "benchmarks.poptorch.suite",
    "geometric": "benchmarks.geometric.suite",
    "onnx": "benchmarks.onnx.suite",
    "popxl": "benchmarks.popxl.suite",
    "sparse": "benchmarks.sparse.suite",
    "jax": "benchmarks.jax.suite",
    "keras": "benchmarks.keras.suite",
    "keras-applications": "benchmarks.keras.applications",
    "optimum": "benchmarks.optimum.suite",
    "vision": "benchmarks.vision.suite",
    "scale": "benchmarks.scale.suite",
    "system": "benchmarks.system.suite",
    "garden": "benchmarks.garden.suite",
    "compat": "benchmarks.compat.suite",
    "fit": "benchmarks.fit.suite",
    "release": "benchmarks.release.suite",
}


def load_suite(name: str) -> Suite:
    """The suite of that name."""
    if name not in SUITES:
        raise InvalidOption(f"there is no bench suite {name!r}.", hint=suggest(name, SUITES))
    return import_module(SUITES[name]).SUITE
