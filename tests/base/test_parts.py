"""Parts of Tremula with separate wheels: the core works without them, and says how to get them."""

import ast
import re
import subprocess
import sys
import tomllib

import pytest

from tests.sources import ROOT, tree_of
from tremula.base.libraries.parts import PARTS
from tremula.base.version import VERSION

sys.path.insert(0, str(ROOT / "tools"))
import divide

SOURCE = ROOT / "src" / "tremula"
# As in an installation of the wheel `tremula` alone: parts of the checkout cannot be imported.
WITHOUT_PARTS = """
import sys, tremula
from tremula.base.libraries import parts
parts.is_installed = lambda name: name not in parts.PARTS
sys.meta_path.insert(0, parts.PartsFinder)
from tremula.commands import main
"""
# Modules that import a part at their top: doors to it, and commands that are about nothing else.
DOORS = ("jax", "keras", "names.", "commands.garden.garden", "commands.garden.together",
         "commands.validate")  # fmt: skip


def project(folder: str) -> dict:
    return tomllib.loads((ROOT / folder / "pyproject.toml").read_text(encoding="utf-8"))


def without_parts(code: str) -> subprocess.CompletedProcess:
    command = [sys.executable, "-c", WITHOUT_PARTS + code]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)


def is_in(name: str, packages: list[str]) -> bool:
    return any(f"{name}.".startswith(f"{package}.") for package in packages)


def test_a_checkout_is_one_project():
    """`pip install '.[jax]'` from a clone needs no other project: it installs every package."""
    own = project(".")
    assert "exclude" not in own["tool"]["setuptools"]["packages"]["find"]
    for extra, lines in own["project"]["optional-dependencies"].items():
        assert not [line for line in lines if line.startswith("tremula-")], extra


def test_a_released_project_leaves_out_the_parts():
    """It excludes the packages of the table, and its extras require the parts that they are for."""
    released = tomllib.loads(divide.divided((ROOT / "pyproject.toml").read_text(encoding="utf-8")))
    excluded = released["tool"]["setuptools"]["packages"]["find"].pop("exclude")
    assert set(excluded) == {pattern for name in PARTS for pattern in (name, f"{name}.*")}
    extras = released["project"]["optional-dependencies"]
    checkout = project(".")["project"]["optional-dependencies"]
    assert extras["jax"] == [f"tremula-frontends=={VERSION}", *checkout["jax"]]
    assert extras["garden"] == [f"tremula-garden=={VERSION}"]
    for extra in checkout:
        assert extras.pop(extra) == [*divide.requirements_of(extra), *checkout[extra]]
    assert not extras


def test_a_project_in_another_form_is_not_divided():
    """A release is not built from a pyproject.toml whose sections the tool does not know."""
    with pytest.raises(ValueError, match="in another form"):
        divide.divided("[project]\nname = 'tremula'\n")


def test_the_core_imports_no_part_when_it_is_loaded():
    """Only doors to a part import it at their top; others do where they need it."""
    importers = []
    for path in sorted(SOURCE.rglob("*.py")):
        name = ".".join(path.relative_to(SOURCE).with_suffix("").parts)
        if is_in(f"tremula.{name}", list(PARTS)) or name.startswith(DOORS):
            continue
        for node in tree_of(path).body:
            modules = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            modules += [a.name for a in node.names] if isinstance(node, ast.Import) else []
            importers += [name for module in modules if is_in(module, list(PARTS))]
    assert not importers


def test_commands_say_which_extra_installs_a_part():
    """`garden`, `validate` and applications by name fail in two lines that name the extra."""
    lines = ("garden", "garden run heat_stencil --tiny", "validate")
    done = without_parts("".join(f"main({line.split()})\n" for line in lines))
    errors = done.stderr.replace("validate", "garden").splitlines()
    expected = [
        "error: tremula.garden is a part of tremula-garden, which is not installed.",
        "  try: pip install 'tremula[garden]'",
    ]
    assert errors == expected * len(lines)


def test_scripts_say_which_extra_installs_a_front_end(tmp_path):
    """An import of a missing front end is an error at the script's line, with the command once."""
    script = tmp_path / "script.py"
    script.write_text("import numpy\nimport popxl\n")
    done = without_parts(f"sys.exit(main(['run', {str(script)!r}]))")
    assert done.returncode == 1
    assert 'script.py", line 2' in done.stderr
    assert re.findall(r"pip install .*", done.stderr) == ["pip install 'tremula[popxl]'"]
    assert "tremula.frontends.popxl is a part of tremula-frontends" in done.stderr


def test_the_core_works_without_parts(tmp_path):
    """The demo's digits and programs in files are there, and JAX starts without the platform."""
    script = """
from tremula.demo.digits import demo_digits
from tremula.serving.sources import _kind
import tremula.frontends.plugin, pathlib, zipfile
path = pathlib.Path(sys.argv[1])
zipfile.ZipFile(path, "w").close()
tremula.frontends.plugin.initialize()
print(len(demo_digits()[1]), _kind(path), sorted(set(parts.PARTS) & set(sys.modules)))
"""
    command = [sys.executable, "-c", WITHOUT_PARTS + script, str(tmp_path / "model.poptorch")]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.stdout == "3200 poptorch []\n", done.stderr
