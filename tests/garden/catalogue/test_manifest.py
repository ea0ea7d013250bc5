"""Manifests: read into applications; each wrong field is named by file and field."""

import pytest

from tremula.base.errors import FileLoadError
from tremula.garden.catalogue.expected import Expectation, misses
from tremula.garden.catalogue.manifest import read_manifest

RIGHT = """
title = "Heat in a plate"
summary = "A stencil."
domain = "physics"
framework = "poplar"
techniques = ["halo exchange"]
data = "generated"
licence = "MIT"
needs = []
tiny_seconds = 3
[[published]]
claim = "ten times as fast"
source = "slide 3"
[expected]
error = "<= 1e-3"
"""


@pytest.fixture
def folder(tmp_path):
    folder = tmp_path / "heat"
    folder.mkdir()
    return folder


def read(folder, text):
    (folder / "manifest.toml").write_text(text, encoding="utf-8")
    return read_manifest(folder)


def test_a_manifest_becomes_an_application(folder):
    """All fields arrive with their types; the name is the folder's."""
    result = read(folder, RIGHT)
    assert (result.name, result.domain, result.techniques) == (
        "heat",
        "physics",
        ("halo exchange",),
    )
    assert result.tiny_seconds == 3
    assert result.published[0].source == "slide 3"
    assert result.expected["error"].holds(1e-3)


@pytest.mark.parametrize(
    ("old", "new", "field", "hint"),
    [
        ('domain = "physics"', 'domain = "fysics"', "domain", "physics"),
        ('framework = "poplar"', 'framework = "popler"', "framework", "poplar"),
        ('["halo exchange"]', '["halo exchang"]', "techniques", "halo exchange"),
        ('["halo exchange"]', '"halo exchange"', "techniques", "list of texts"),
        ("needs = []", "needs = [3]", "needs", "list of texts"),
        ("tiny_seconds = 3", "tiny_seconds = 0", "tiny_seconds", "above 0"),
        ("tiny_seconds = 3", "tiny_seconds = true", "tiny_seconds", "above 0"),
        ('licence = "MIT"', "licence = 3", "licence", "must be a text"),
        ('licence = "MIT"', 'license = "MIT"', "license", "licence"),
        ('licence = "MIT"', "", "licence", "missing"),
        ('source = "slide 3"', "", "published[0].source", "missing"),
        ('error = "<= 1e-3"', 'error = "small"', "expected.error", "0.3 .. 0.4"),
        ('error = "<= 1e-3"', 'error = "0.4 .. 0.3"', "expected.error", "not a limit"),
        ('error = "<= 1e-3"', "", "expected", "table of limits"),
    ],
)
def test_a_wrong_field_is_named(folder, old, new, field, hint):
    """The error names the file and the field, and says what is right."""
    assert old in RIGHT
    with pytest.raises(FileLoadError) as caught:
        read(folder, RIGHT.replace(old, new))
    message = str(caught.value)
    assert str(folder / "manifest.toml") in message
    assert repr(field) in message
    assert hint in message


def test_what_is_no_manifest_is_told(folder):
    """A folder without one, and a file that is not TOML, are errors that name the path."""
    with pytest.raises(
        FileLoadError, match=r"heat is not an application: it has no manifest\.toml"
    ):
        read_manifest(folder)
    with pytest.raises(FileLoadError, match=r"manifest\.toml is not TOML: .*line 2"):
        read(folder, "title = 'Heat'\ndomain\n")


@pytest.mark.parametrize(
    ("text", "inside", "outside"),
    [
        (">= 0.95", 0.95, 0.949),
        ("<= 1e-3", -5, 0.0011),
        ("== 3", 3, 3.5),
        ("0.3 .. 0.4", 0.4, 0.41),
        ("-1.5..-0.5", -1, 0),
    ],
)
def test_limits(text, inside, outside):
    """A limit holds at its ends, not beyond, and never for NaN."""
    limits = Expectation.parse(text)
    assert limits is not None
    assert limits.holds(inside)
    assert not limits.holds(outside)
    assert not limits.holds(float("nan"))


def test_misses_say_what_was_expected_and_what_came():
    """A result that is too small and one that is missing each get a line."""
    expected = {name: Expectation.parse(">= 1") for name in ("a", "b", "c")}
    assert misses(expected, {"a": 1.0, "b": 0.5}) == [
        "b: expected >= 1, got 0.5",
        "c: expected >= 1, but the results hold only: a, b",
    ]
