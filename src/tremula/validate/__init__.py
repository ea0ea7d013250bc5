"""The cost model against measurements of real machines."""

from tremula.validate.rows import (
    ENERGY,
    GRID,
    LINK_ROWS,
    MORE,
    PUBLISHED,
    MeasuredRow,
    every_nth,
    read_rows,
)
from tremula.validate.saved_rows import SavedResults
from tremula.validate.score import (
    Checked,
    Score,
    Unchecked,
    ValidationResult,
    rank_correlation,
    validate,
)
from tremula.validate.workloads.table import ModelledValue, NoWorkload, workload

__all__ = [
    "ENERGY", "GRID", "LINK_ROWS", "MORE", "PUBLISHED", "MeasuredRow", "every_nth", "read_rows",
    "Checked", "SavedResults", "Score", "Unchecked", "ValidationResult",
    "rank_correlation", "validate",
    "ModelledValue", "NoWorkload", "workload",
]  # fmt: skip
