"""Every program of this folder runs, and agrees with its reference."""

import importlib
from pathlib import Path

import pytest

PROGRAMS = sorted(
    path.stem
    for path in Path(__file__).parent.glob("*.py")
    if path.stem not in ("__init__", "parts", "test_programs")
)


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_agree_with_their_references(name):
    """A miniature of a public application, with its imports and structure, gives right numbers."""
    importlib.import_module(f"tests.frontends.popxl_addons.programs.{name}").run()
