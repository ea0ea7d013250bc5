"""The page of operations is what the registry says now."""

from tremula.poplibs.registry import all_ops
from tremula.poplibs.registry_pages import ops_markdown


def test_page_is_up_to_date(repository):
    """docs/ops.md is what `make docs` would write."""
    written = (repository / "docs" / "ops.md").read_text(encoding="utf-8")
    assert written == ops_markdown(), "run `make docs`"


def test_page_names_every_operation():
    """Each registered operation has its row in the matrix and in the reference."""
    page = ops_markdown()
    assert not [name for name in all_ops() if page.count(f"| `{name}` |") != 2]
