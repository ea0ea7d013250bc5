"""Workloads made of PopLibs operations: small rows of each family, predicted within reach."""

import pytest

from tremula.validate import GRID, PUBLISHED, read_rows, validate

# Row, and how far the prediction may be off today: a change of the model shows here first.
ROWS = {
    "jia-reduce1-1216": 0.10,
    "jia-reduce-w1": 0.15,
    "popsparse-dense-FP32-1024-16": 0.25,
    "jia-conv-rn50-Conv4_1-b1": 0.30,
    "hydro-gather-16-16-1024": 0.10,
    "hydro-scatter_add-64-64-512": 0.12,
    "hydro-schnet_block-64-64-512": 0.04,
    "gather-0.1-16-32-64": 0.12,
}


@pytest.mark.slow
@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("name", ROWS)
def test_a_row_of_each_family(name):
    """The workload is found, needs no execution, and its error is as small as it was."""
    (row,) = [r for r in (*read_rows(PUBLISHED), *read_rows(GRID)) if r.id == name]
    outcome = validate([row])
    assert not outcome.unchecked
    assert abs(outcome.checked[0].error) <= ROWS[name]
