"""Every application keeps to the same form: one `run`, lines through `show`, a tiny form."""

import ast
import re

import pytest

from tremula.garden.catalogue.catalogue import all_applications
from tremula.garden.catalogue.techniques import TECHNIQUES

APPLICATIONS = all_applications()


@pytest.fixture(params=APPLICATIONS, ids=lambda one: one.name)
def application(request):
    return request.param


def sources(application):
    return {p.name: p.read_text(encoding="utf-8") for p in application.folder.rglob("*.py")}


def test_run_takes_settings_and_gives_findings(application):
    """main.py has `run(settings: Settings) -> Findings`."""
    tree = ast.parse(sources(application)["main.py"])
    runs = [n for n in tree.body if isinstance(n, ast.FunctionDef) and n.name == "run"]
    assert [ast.unparse(run.args) for run in runs] == ["settings: Settings"]
    assert [ast.unparse(run.returns) for run in runs if run.returns] == ["Findings"]


def test_it_tells_what_it_does_through_show(application):
    """Nothing prints by itself, so that a page, a test or a notebook can listen."""
    texts = sources(application)
    assert any("settings.show(" in text for text in texts.values())
    assert not [
        name for name, text in texts.items() if re.search(r"^\s*print\(", text, re.MULTILINE)
    ]


def test_the_tiny_form_is_at_most_a_minute(application):
    """Its manifest states at most 60 CPU seconds."""
    assert application.tiny_seconds <= 60


def test_every_technique_is_taught():
    """Each technique of the catalogue is shown by an application."""
    taught = {technique for one in APPLICATIONS for technique in one.techniques}
    assert set(TECHNIQUES) == taught
