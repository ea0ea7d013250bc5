"""The page of applications."""

from tremula.garden.catalogue.catalogue import all_applications
from tremula.garden.catalogue.table import applications_markdown


def test_the_page_names_every_application_once():
    """One row each, in the table of its domain."""
    page = applications_markdown()
    for one in all_applications():
        assert page.count(f"| **`{one.name}`**") == 1
