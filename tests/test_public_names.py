"""Docs and examples import what users may import: public names, nothing from inside."""

import re
from pathlib import Path

import pytest

import tremula

ROOT = Path(__file__).resolve().parent.parent
IMPORT = re.compile(r"^(?:>>> )?(?:from|import) tremula\.(\w+)", re.MULTILINE)
# Rooms that users import from; the last two hold models, data and workloads of the examples.
PUBLIC = set("poplibs hardware explore errors jax keras onnx scaling serving garden bench".split())
# Shows how to add an operation to Tremula itself.
ABOUT_THE_INSIDE = {"adding-an-operation.md"}
PAGES = [
    *(p for p in sorted((ROOT / "docs").rglob("*.md")) if p.name not in ABOUT_THE_INSIDE),
    *sorted((ROOT / "examples").rglob("*.py")),
    ROOT / "README.md",
]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_pages_import_public_names(page):
    """Everything a page imports from Tremula is `tremula` itself or a public room of it."""
    assert set(IMPORT.findall(page.read_text(encoding="utf-8"))) <= PUBLIC


def test_every_public_name_is_there():
    """The table of the facade names things that exist."""
    for name in tremula.__all__:
        assert getattr(tremula, name) is not None, name
