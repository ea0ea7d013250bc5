"""PopXL's public names: modules, classes, functions and their arguments."""

import importlib
from pathlib import Path

import popxl
from popxl import ops
from popxl._modules import MODULES
from tests.name_lists import differences
from tests.scripts import run_code

# Helpers of PopART's own code, which work on its internal objects.
ABSENT = {
    "multi_conv_options", "receptive_attributes", "create_adamupdater", "handle_optimizer_value",
    "popxl.ops.var_updates.utils", "find_exponential_range", "log_histogram",
    "CandidateConfig", "__init__", "calculate_metric_mse", "calculate_candidate_metric",
}  # fmt: skip


def test_public_names_exist():
    """All names of the list exist, with their arguments, but for PopART's internal helpers."""
    result = differences(Path(__file__).with_name("names.txt"))
    assert not result.lacking
    unexpected = [n for n in result.missing if not any(absent in n for absent in ABSENT)]
    assert not unexpected
    assert len(result.missing) <= 0.04 * result.n_entries


def test_modules_do_not_hide_functions():
    """Importing a module leaves the function of its name; names from it are the same objects."""
    for name in MODULES:
        importlib.import_module(f"popxl.{name}")
    assert callable(popxl.remote_buffer)
    assert callable(ops.add)
    assert callable(ops.collectives.all_reduce)
    assert callable(popxl.transforms.autodiff)
    from popxl.ops.add import add
    from popxl.transforms.autodiff import autodiff

    assert add is ops.add
    assert autodiff is popxl.transforms.autodiff


def test_a_module_may_be_imported_first(tmp_path):
    """A script may begin with a module of the package, whichever it is."""
    code = "from popxl.ops.collectives.collectives import CommGroup; import popxl.tensor, popxl;"
    code += "assert popxl.tensor.Variable is popxl.variable.__globals__['Variable']"
    assert run_code(code, tmp_path) == (0, "")


def test_earlier_names():
    """Casts of 8-bit floats have the names of earlier versions, too."""
    assert ops.pow2scale_then_cast is ops.pow2scale_cast_to_fp8
    assert ops.cast_then_pow2scale is ops.pow2scale_cast_from_fp8
    assert popxl.utils.host_pow2scale_then_cast is popxl.fp8_utils.host_pow2scale_cast_to_fp8
