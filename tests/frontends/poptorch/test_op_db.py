"""PyTorch's database of operators: a sample of it in every run, all of it in `make test-wide`."""

from pathlib import Path

import pytest

from tests.frontends.poptorch import op_db, op_db_rows
from tests.sampling import one_in

pytestmark = pytest.mark.slow

# One of each kind: element-wise, reduction, views, a layer, indices, random, several results.
# Every other one here, the rest with the wide tests.
_SAMPLE = (
    "bernoulli", "add", "cumsum", "amax", "nn.functional.unfold", "as_strided", "nonzero", "sort",
)  # fmt: skip
_N_SHARDS = 16


def _page(repository: Path) -> str:
    return (repository / "docs" / "op-db.md").read_text()


@pytest.mark.parametrize("name", one_in(2, _SAMPLE))
def test_operators_equal_pytorch_on_host_and_tiles(name):
    """All samples of an operator, forward and gradient, on both executions."""
    row = op_db.check(name)
    assert not op_db.failures(row)
    assert bool(row.not_counted) == (name == "nonzero")
    assert row.is_random == (name == "bernoulli")


def test_a_wrong_value_a_refusal_and_an_error_are_told_apart():
    """The outcome of an operator is that of its worst sample, and its other samples still count."""
    (sample, *_), name = op_db.samples_of(op_db.operators()["add"], trained=False), "forward"
    right = sample.forward(*sample.tensors)
    wrong = [result + 1 for result in right]
    for wanted, outcome in ((right, op_db.PASS), (wrong, op_db.WRONG)):
        matches = op_db.Comparison([sample, sample], [right, wanted], name).all_outcomes()
        assert {o.outcome for o in matches.values()} == {outcome}
        assert {o.n_passed for o in matches.values()} == {1 + (outcome == op_db.PASS)}


def test_tiles_may_be_as_inexact_as_pytorch():
    """At 10000 float32 is no closer than 0.001: PyTorch is off by that, and tiles may be, too."""
    (sample, *_) = op_db.samples_of(op_db.operators()["logcumsumexp"], trained=True)
    right = sample.with_gradients(*sample.tensors)
    compared = op_db.Comparison([sample], [right], "with_gradients")
    for off, is_wrong in ((0.003, False), (0.1, True)):
        result = compared._difference_of(sample, right, [r + off for r in right], op_db.TILES)
        assert bool(result) == is_wrong


def test_the_page_lists_what_fails():
    """`failing` reads back from a page which operators do not pass."""
    bad = op_db.Outcome(op_db.WRONG, "1 | 2", 0, 1)
    rows = [op_db.Row("a", forward={op_db.TILES: bad}), op_db.Row("b", not_counted="c")]
    assert op_db_rows.failing(op_db.page(rows)) == {"a"}


@pytest.mark.wide
@pytest.mark.parametrize("shard", range(_N_SHARDS))
def test_every_operator_that_passed_still_does(shard, repository):
    """Nothing fails that docs/op-db.md does not list."""
    names = sorted(op_db.operators())[shard::_N_SHARDS]
    rows = {row.name: row for row in op_db.sweep(names, n_processes=1)}
    bad = {name for name, row in rows.items() if op_db.failures(row)}
    assert bad <= op_db_rows.failing(_page(repository))
