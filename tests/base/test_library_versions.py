"""Versions of other libraries: one table for code, pip and page, and errors outside of it."""

import tomllib
from pathlib import Path

import pytest

from tremula.base import library_versions
from tremula.base.errors import PoplarError
from tremula.base.library_versions import ANY_VERSION, LIBRARIES, leading_numbers, unsupported
from tremula.base.requirements import EXTRAS, require, require_for_command
from tremula.base.version import FIRST_PYTHON, LAST_PYTHON, require_python

ROOT = Path(__file__).resolve().parent.parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def _with_version(monkeypatch, module, version):
    real = library_versions.installed_version
    monkeypatch.setattr(
        library_versions, "installed_version", lambda m: version if m == module else real(m)
    )


def test_pip_and_the_page_have_the_ranges_of_the_table():
    """Requirements of pyproject.toml are those of the table, and so are the rows of the page."""
    extras = PROJECT["optional-dependencies"]
    lists = [PROJECT["dependencies"], *(extras[name] for name in EXTRAS), extras["dev"]]
    for requirement in {line for lines in lists for line in lines}:
        name = requirement.partition(">")[0]
        if name in LIBRARIES and not requirement.startswith("torch=="):
            assert requirement == LIBRARIES[name].requirement
    page = (ROOT / "docs" / "versions.md").read_text(encoding="utf-8")
    assert library_versions.versions_markdown() in page


@pytest.mark.parametrize("module", LIBRARIES)
def test_versions_outside_their_range_are_errors(module, monkeypatch):
    """One below the floor and one at the ceiling are rejected; the floor itself is not."""
    monkeypatch.delenv(ANY_VERSION, raising=False)
    known = LIBRARIES[module]
    *major, minor = known.floor
    older = (*major[:-1], major[-1] - 1, 999) if minor == 0 else (*major, minor - 1, 999)
    cases = [(known.floor, True), (older, False), (known.ceiling or (9999,), known.ceiling is None)]
    for numbers, is_supported in cases:
        version = ".".join(map(str, numbers)) + ".1+cpu"
        _with_version(monkeypatch, module, version)
        assert (unsupported(module) == "") == is_supported, version


def test_the_error_says_what_is_there_what_works_and_what_to_do(monkeypatch):
    """A front end fails where it is imported, a command with its name; the variable lets it try."""
    monkeypatch.delenv(ANY_VERSION, raising=False)
    _with_version(monkeypatch, "jax", "0.12.0")
    expected = "JAX 0.12.0 is installed, but Tremula works with 0.9 and newer, before 0.12"
    with pytest.raises(ImportError) as caught:
        require("tremula.jax", "jax")
    advice = "pip install 'jax>=0.9,<0.12', or set TREMULA_ANY_VERSION=1 to try it"
    assert str(caught.value) == f"tremula.jax: {expected}: {advice}"
    with pytest.raises(PoplarError, match=r"`tremula x`: JAX 0.12.0 is installed"):
        require_for_command("tremula x", "jax")
    require("PopTorch", "torch")  # what it does not use may have any version
    monkeypatch.setenv(ANY_VERSION, "1")
    require("tremula.jax", "jax")


def test_versions_that_cannot_be_read_are_tried(monkeypatch):
    """A library without metadata, or with a version that is not a number, is not rejected."""
    for version in ("", "unknown"):
        _with_version(monkeypatch, "torch", version)
        assert unsupported("torch") == ""
    assert leading_numbers("2.14.0a0+git12") == (2, 14, 0)
    assert unsupported("a_module_without_a_row") == ""


@pytest.mark.parametrize("running", [(3, 10, 4), (3, 15, 0)])
def test_other_pythons_are_errors(running, monkeypatch):
    """The message has the range and the running Python; the range is pip's; one may try it."""
    (_, first), (_, last) = FIRST_PYTHON, LAST_PYTHON
    assert PROJECT["requires-python"] == f">=3.{first},<3.{last + 1}"
    require_python()
    monkeypatch.setattr("sys.version_info", (*running, "final", 0))
    monkeypatch.delenv(ANY_VERSION, raising=False)
    name = ".".join(map(str, running))
    with pytest.raises(ImportError, match=rf"Python 3.11 to 3.14, and this is {name}\.\n  try: "):
        require_python()
    monkeypatch.setenv(ANY_VERSION, "1")
    require_python()
