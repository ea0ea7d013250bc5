"""The package popxl_addons has the names and arguments of Graphcore's, and its table makes it."""

import ast
import importlib
from pathlib import Path

import popxl_addons
from popxl_addons._modules import MODULES
from popxl_addons._modules import NAMES as TABLE
from tests.name_lists import differences

NAMES = Path(__file__).parent / "data" / "names.txt"
MAX_MISSING = 0.02


def test_names_and_arguments_are_those_of_the_list():
    """At most two per cent of modules, classes, methods and functions are missing, no argument."""
    result = differences(NAMES)
    assert len(result.missing) <= MAX_MISSING * result.n_entries, result.missing
    assert not result.lacking


def test_every_module_of_the_table_can_be_imported():
    """Each row of the table is a module whose `__all__` are names that it has."""
    for name in MODULES:
        module = importlib.import_module(f"popxl_addons.{name}")
        assert all(hasattr(module, n) for n in module.__all__), name


def test_importing_a_module_does_not_hide_a_function():
    """Functions keep their names when the modules of those names are imported."""
    names = ("seed_variable", "transforms.autodiff", "ops.cross_entropy")
    for name in names:
        importlib.import_module(f"popxl_addons.{name}")
    assert callable(popxl_addons.seed_variable)
    assert callable(popxl_addons.transforms.autodiff)
    assert callable(popxl_addons.ops.cross_entropy)
    loss = importlib.import_module("popxl_addons.ops.cross_entropy_sharded_loss")
    assert callable(loss.cross_entropy_sharded_loss)
    assert popxl_addons.module.Module is popxl_addons.Module


def test_type_checkers_see_the_names_of_the_table():
    """The stub of the package imports each name from where the table says that it is."""
    stub = Path(popxl_addons.__file__).with_suffix(".pyi")
    nodes = [n for n in ast.parse(stub.read_text()).body if isinstance(n, ast.ImportFrom)]
    written = {(node.module, name.asname) for node in nodes for name in node.names}
    rows = [row.split(": ") for row in TABLE]
    assert written == {(module, name) for module, names in rows for name in names.split()}
