"""Classes of operations in `popart._internal.ir.op`."""

import subprocess
import sys


def test_classes_of_operations_are_there_before_popxl_is_imported():
    """A script that imports only PopART's internals has a class for each kind of operation."""
    code = "from popart._internal.ir.op import AddOp, GroupNormOp, MatMulOp; print(AddOp.__name__)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "AddOp", done.stderr
