"""One entry makes an element-wise operation: functions, expressions, samples, page, stubs."""

import importlib.util
import inspect
from pathlib import Path

import numpy as np
import pytest

import tremula as tr
from tests.poplibs.run_op import Call, run_calls, run_op
from tremula.poplibs import popops
from tremula.poplibs.popops.elementwise import stubs
from tremula.poplibs.popops.elementwise.expr import _1, _2
from tremula.poplibs.popops.elementwise.operations import ELEMENT_OPS
from tremula.poplibs.registry import PoplibsError, all_ops
from tremula.poplibs.registry_pages import ops_markdown

MODULE = '''
"""An element-wise operation that does not come with Tremula."""

import numpy as np

from tremula import FLOAT, HALF
from tremula.poplibs import popops
from tremula.poplibs.popops import VectorCost


def soft_sign(a):
    return a / (abs(a) + 1)


popops.register_element_op(
    popops.ElementOp(
        name="softsign",
        about="The value divided by 1 plus its size.",
        n_operands=1,
        tile=soft_sign,
        numpy=lambda a: a / (1 + np.abs(a)),
        types=(FLOAT, HALF),
        cost={"FLOAT": VectorCost(12, 2), "HALF": VectorCost(24, 4)},
        in_float=True,
        flops=3,
        domain=(-9.0, 9.0),
    )
)
'''


@pytest.fixture
def softsign(tmp_path):
    """An operation registered from a module elsewhere, and taken back after the test."""
    path = tmp_path / "my_operations.py"
    path.write_text(MODULE, encoding="utf-8")
    spec = importlib.util.spec_from_file_location("my_operations", path)
    spec.loader.exec_module(importlib.util.module_from_spec(spec))
    yield "softsign"
    popops.remove_element_op("softsign")


def test_one_entry_is_enough(softsign):
    """The operation runs on tiles in all its forms, has samples and errors, and is on the page."""
    op = all_ops()[f"popops.{softsign}"]
    for type in op.types:
        samples = list(op.samples(type, np.random.default_rng(0)))
        calls = [Call(op.function, s.inputs, type) for s in samples]
        for sample, (got,) in zip(samples, run_calls(calls)[0], strict=True):
            expected = op.reference(*sample.inputs)
            np.testing.assert_allclose(got, expected, rtol=2e-3 if type is tr.HALF else 1e-6)
    assert op.errors[0].expected == "softsign does not work on bool"
    assert ops_markdown().count("| `popops.softsign` |") == 2
    assert "def softsign_in_place(graph: Graph, a: Tensor, seq" in stubs.functions_stub()
    assert list(inspect.signature(popops.softsign).parameters) == ["graph", "a", "sequence", "name"]


def test_registered_operation_in_expressions_and_in_place(softsign):
    """It is part of larger expressions, and writes over its operand."""
    x = np.linspace(-5, 5, 40).astype(np.float32)

    def function(graph, a, b, *, sequence):
        both = popops.map(graph, popops.expr.softsign(_1) * 2.0 + _2, [a, b], sequence)
        popops.softsign_in_place(graph, a, sequence)
        return both, a

    both, changed = run_op(function, [x, x])
    np.testing.assert_allclose(both, 2 * (x / (1 + abs(x))) + x, rtol=1e-6)
    np.testing.assert_allclose(changed, x / (1 + abs(x)), rtol=1e-6)


def test_removed_operation_is_gone(softsign):
    """Nothing of a removed operation remains, and a name can be taken once."""
    with pytest.raises(PoplibsError, match="popops already has softsign"):
        popops.register_element_op(ELEMENT_OPS[softsign])
    op = ELEMENT_OPS[softsign]
    popops.remove_element_op(softsign)
    assert not hasattr(popops, softsign)
    assert not hasattr(popops.expr, softsign)
    assert f"popops.{softsign}" not in all_ops()
    popops.register_element_op(op)


def test_stubs_are_up_to_date():
    """functions.pyi and expr.pyi are what `make docs` would write."""
    for name, stub in stubs.STUBS.items():
        written = (Path(stubs.__file__).parent / name).read_text(encoding="utf-8")
        assert written == stub(), "run `make docs`"
