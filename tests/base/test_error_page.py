"""The page of errors is up to date, and every error explains itself."""

from pathlib import Path

from tremula.base.error_page import error_classes, errors_markdown


def test_page_is_up_to_date(repository: Path) -> None:
    """docs/errors.md is what `make docs` writes."""
    assert (repository / "docs" / "errors.md").read_text() == errors_markdown()


def test_every_error_has_a_docstring() -> None:
    """An error without a docstring would have an empty row."""
    assert [c.__name__ for c in error_classes() if not c.__doc__] == []
