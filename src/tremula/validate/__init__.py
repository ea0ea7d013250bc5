"""The cost model against measurements of real machines."""

from tremula.validate.rows import GRID, LINK_ROWS, PUBLISHED, Row, every_nth, read_rows
from tremula.validate.saved_rows import KeptResults
from tremula.validate.score import (
    Checked,
    Outcome,
    Score,
    Unchecked,
    rank_correlation,
    validate,
)
from tremula.validate.workloads.table import Modelled, NoWorkload, workload

__all__ = [
    "GRID", "LINK_ROWS", "PUBLISHED", "Row", "every_nth", "read_rows",
    "Checked", "KeptResults", "Outcome", "Score", "Unchecked", "rank_correlation", "validate",
    "Modelled", "NoWorkload", "workload",
]  # fmt: skip
