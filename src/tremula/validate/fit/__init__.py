"""A chip fitted to measurements of small programs: docs/fit.md describes the method."""

from tremula.validate.fit.fit_report import fit_record, fit_text, save_fit
from tremula.validate.fit.measurements import Measurement, read_measurements
from tremula.validate.fit.solve import Estimate, FitResult, fit
from tremula.validate.fit.template import write_template

__all__ = [
    "Estimate", "FitResult", "Measurement",
    "fit", "fit_record", "fit_text", "read_measurements", "save_fit", "write_template",
]  # fmt: skip
