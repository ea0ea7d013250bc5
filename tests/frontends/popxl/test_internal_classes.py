"""Classes of operations in `popart._internal.ir.op`."""

from tests.scripts import run_code


def test_classes_of_operations_are_there_before_popxl_is_imported(tmp_path):
    """A script that imports only PopART's internals has a class for each kind of operation."""
    code = "from popart._internal.ir.op import AddOp, GroupNormOp, MatMulOp; print(AddOp.__name__)"
    assert run_code(code, tmp_path) == (0, "AddOp\n")
