"""One entry makes a reduction: samples, reference, page, and vertices that run."""

import numpy as np
import pytest

import tremula as tr
from tests.poplibs.run_op import Call, run_calls
from tremula.poplibs import popops
from tremula.poplibs.registry import PoplibsError, all_ops
from tremula.poplibs.registry_pages import ops_markdown

ABS_MAX = popops.ReduceOp(
    "ABS_MAX", "max({0}, abs({1}))", (tr.FLOAT, tr.HALF), 0,
    lambda a, b: np.maximum(a, np.abs(b)), join="MAX", is_exact=True, flops=2,
)  # fmt: skip


@pytest.fixture
def abs_max():
    """A reduction that does not come with Tremula, taken back after the test."""
    popops.register_reduction(ABS_MAX)
    yield "ABS_MAX"
    popops.remove_reduction("ABS_MAX")


def test_one_entry_is_enough(abs_max):
    """The operation is sampled, runs on tiles, and is on the page."""
    op = all_ops()["popops.reduce"]
    for type in (tr.FLOAT, tr.HALF):
        mine = [
            s for s in op.samples(type, np.random.default_rng(0))
            if s.options["operation"] == abs_max
        ]  # fmt: skip
        assert mine
        calls = [Call(op.function, (-s.inputs[0],), type, s.options) for s in mine]
        for sample, (got,) in zip(mine, run_calls(calls)[0], strict=True):
            assert (got == op.reference(-sample.inputs[0], **sample.options)).all()
    assert "LOGICAL_OR or ABS_MAX" in ops_markdown()


def test_refused():
    """A name is taken once, and partial results are joined by an operation there is."""
    with pytest.raises(PoplibsError, match="the name ADD is taken"):
        popops.register_reduction(popops.ReduceOp("ADD", "{0}", (tr.FLOAT,), 0, np.add))
    with pytest.raises(PoplibsError, match="not by 'JOIN'"):
        popops.register_reduction(popops.ReduceOp("X", "{0}", (tr.FLOAT,), 0, np.add, join="JOIN"))
    assert "ABS_MAX" not in ops_markdown()
