"""The PopLibs figures: results are checked before they are timed."""

import numpy as np
import pytest

from benchmarks.poplibs.suite import check
from tremula.base.errors import RuntimeFailure


def test_a_wrong_result_is_no_figure():
    """A result that differs from the reference stops the measurement and says by how much."""
    right = np.array([1.0, 2.0], np.float32)
    check(right, right, "the sum")
    with pytest.raises(RuntimeFailure, match=r"the sum differs from the reference by 0\.25"):
        check(np.array([1.0, 2.5], np.float32), right, "the sum")
    with pytest.raises(RuntimeFailure, match="by nan"):
        check(np.array([1.0, np.nan], np.float32), right, "the sum")
