"""The system trace beside a report, as columns for the Host view."""

from typing import Any

import numpy as np

from tremula.vision.report_reader import ReportReader

Ints = np.ndarray


def host_columns(reader: ReportReader) -> tuple[dict[str, Any], dict[str, Ints]]:
    """Facts and columns; `found` says whether there is a trace at all."""
    return {"found": False, "why": "no system trace lies beside this report"}, {}
