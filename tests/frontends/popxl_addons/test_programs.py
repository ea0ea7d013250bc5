"""Every program of the folder `programs` runs, and agrees with its reference."""

import importlib
from pathlib import Path

import pytest

PROGRAMS = sorted(
    path.stem
    for path in (Path(__file__).parent / "programs").glob("*.py")
    if path.stem not in ("__init__", "parts")
)


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_agree_with_their_references(name):
    """A miniature of a public application, with its imports and structure, gives right numbers."""
    importlib.import_module(f"tests.frontends.popxl_addons.programs.{name}").run()
