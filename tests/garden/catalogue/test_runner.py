"""Running an application: its results are checked, what it lacks is told."""

import sys
import textwrap

import pytest

from tests.garden.catalogue.test_manifest import RIGHT
from tremula.base.errors import RuntimeFailure
from tremula.garden.application import Settings
from tremula.garden.catalogue import runner
from tremula.garden.catalogue.catalogue import find_application

GOOD = """
from tremula.garden.application import Findings
def run(settings):
    settings.show("warm")
    return Findings(results={"error": 1e-4}, modelled=None)
"""


@pytest.fixture
def make(tmp_path, monkeypatch):
    """A function that makes an application of a main.py and a manifest, outside the package."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    made = []

    def application(main, manifest=RIGHT):
        folder = tmp_path / f"app_{tmp_path.name.rstrip('0123456789')}_{len(made)}"
        folder.mkdir()
        (folder / "__init__.py").write_text("")
        (folder / "main.py").write_text(textwrap.dedent(main))
        (folder / "manifest.toml").write_text(manifest)
        made.append(folder.name)
        return find_application(str(folder))

    yield application
    for name in made:
        for module in [m for m in sys.modules if m.split(".")[0] == name]:
            del sys.modules[module]


def test_a_run_gives_its_findings(make):
    """`run` is called with the settings, and its findings come back."""
    lines = []
    findings = runner.run_application(make(GOOD), Settings(show=lines.append))
    assert findings.results == {"error": 1e-4}
    assert lines == ["warm"]


def test_what_is_missed_fails(make):
    """A result outside `[expected]` is an error with both numbers; the large form is not judged."""
    application = make(GOOD.replace("1e-4", "0.5"))
    with pytest.raises(RuntimeFailure, match=r"error: expected <= 1e-3, got 0\.5"):
        runner.run_application(application, Settings(show=lambda _: None))
    settings = Settings(tiny=False, show=lambda _: None)
    assert runner.run_application(application, settings).results["error"] == 0.5


@pytest.mark.parametrize("inside", [False, True])
def test_a_missing_package_says_what_to_install(make, inside):
    """The hint installs the extras of the manifest, and packages outside them by name."""
    main = "def run(s):\n    import no_such_thing" if inside else "import no_such_thing"
    application = make(main, RIGHT.replace("needs = []", 'needs = ["torch", "no-such-thing"]'))
    with pytest.raises(RuntimeFailure) as caught:
        runner.run_application(application, Settings())
    message = str(caught.value)
    assert "needs no_such_thing, which is not installed" in message
    assert "pip install 'tremula[torch]' no-such-thing" in message


def test_mistakes_in_an_application_are_told(make):
    """No `run`, a wrong value, a missing module of the application."""
    for main, words in (
        ("x = 1", "has no function `run`"),
        ("def run(s): return 3", "gave int, not Findings"),
        ("import tremula.no_such_room", "which does not exist"),
    ):
        with pytest.raises(RuntimeFailure, match=words):
            runner.run_application(make(main), Settings())
