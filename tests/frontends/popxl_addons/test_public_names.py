"""The package popxl_addons has the names and arguments of Graphcore's, and its table makes it."""

import importlib
import inspect
import re
import subprocess
import sys
from pathlib import Path

import popxl_addons

ROOT = Path(__file__).parents[3]
NAMES = Path(__file__).parent / "data" / "names.txt"
MAX_MISSING = 0.02


def missing_names():
    """Entries of the list that the package lacks, and how many entries there are."""
    missing, n, module, owner = [], 0, None, None
    for line in NAMES.read_text().splitlines():
        if line.startswith("  from "):
            continue
        n += 1
        text = line.strip()
        if not line.startswith(" "):
            module, owner = _imported(text), None
            entry = module
        elif line.startswith("      "):
            name = re.match(r"@?(\w+)", text)[1]
            fields = getattr(owner, "__dataclass_fields__", {})
            entry = getattr(owner, name, fields.get(name))
        else:
            is_class = text.startswith("class ")
            name = re.match(r"(?:class )?(\w+)", text)[1]
            entry = getattr(module, name, None)
            owner = entry if is_class else None
            if entry is not None and not is_class and not _accepts(entry, text):
                missing.append(f"{module.__name__}: arguments of {text}")
        if entry is None:
            missing.append(f"{module and module.__name__}: {text}")
    return missing, n


def _imported(name):
    try:
        return importlib.import_module(name)
    except ImportError:
        return None


def _accepts(function, text):
    """Whether a function has the arguments of its line of the list."""
    wanted = re.search(r"\((.*)\)$", text)[1].split(", ")
    names = [a.split("=")[0] for a in wanted if a and not a.startswith("*")]
    parameters = inspect.signature(function).parameters
    return all(name in parameters for name in names if name.isidentifier())


def test_names_and_arguments_are_those_of_the_list():
    """At most two per cent of modules, classes, methods and arguments are missing."""
    missing, n = missing_names()
    assert len(missing) <= MAX_MISSING * n, missing


def test_modules_are_made_from_their_table():
    """The files of the package are what tools/redirect_modules.py writes."""
    tool = ROOT / "tools" / "redirect_modules.py"
    result = subprocess.run(
        [sys.executable, tool, "--check", "popxl_addons"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stdout


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
