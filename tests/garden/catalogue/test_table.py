"""The page of applications is what `make docs` writes."""

from tests.sources import ROOT
from tremula.garden.catalogue.catalogue import all_applications
from tremula.garden.catalogue.table import applications_markdown


def test_the_page_is_current():
    """docs/garden-applications.md lists all applications with their figures (`make docs`)."""
    page = (ROOT / "docs" / "garden-applications.md").read_text(encoding="utf-8")
    assert page == applications_markdown()


def test_the_page_names_every_application_once():
    """One row each, in the table of its domain."""
    page = applications_markdown()
    for one in all_applications():
        assert page.count(f"| **`{one.name}`**") == 1
