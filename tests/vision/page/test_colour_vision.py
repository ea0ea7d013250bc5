"""Phases and series can be told apart without one kind of cone, and in grey."""

import re

import numpy as np
import pytest

from tests.vision.page.colour_vision import ciede2000, closest, lab, linear
from tests.vision.page.test_contrast import PAGE, PHASES, THEMES

# CIEDE2000: 2 is just noticed side by side; these are noticed in thin bars, far from each other.
PHASES_DIFFER, PHASES_STEP = 14.0, 9.0  # the second: in lightness
SERIES_DIFFER, SERIES_STEP = 7.5, 4.0  # thirteen of them


def test_differences_are_those_of_the_standard():
    """CIEDE2000 of published pairs (Sharma, Wu and Dalal 2005); white is L* = 100."""
    pairs = [
        ((50, 2.6772, -79.7751), (50, 0, -82.7485), 2.0425),
        ((50, -1.3802, -84.2814), (50, 0, -82.7485), 1.0000),
        ((50, 2.5, 0), (73, 25, -18), 27.1492),
        ((60.2574, -34.0099, 36.2677), (60.4626, -34.1751, 39.4387), 1.2644),
        ((2.0776, 0.0795, -1.1350), (0.9033, -0.0636, -0.5514), 0.9082),
    ]
    one, other, wanted = (np.array(column, float) for column in zip(*pairs, strict=True))
    assert ciede2000(one, other) == pytest.approx(wanted, abs=1e-4)
    assert lab(linear(["#ffffff"]))[0] == pytest.approx([100, 0, 0], abs=0.01)


@pytest.mark.parametrize("theme", THEMES)
def test_phases_differ_to_every_eye(theme):
    """All pairs of phases: to three kinds of dichromats, in two simulations, and in grey."""
    result = closest([THEMES[theme][phase] for phase in PHASES])
    grey = result.pop("grey")
    assert grey >= PHASES_STEP
    assert {eye: d for eye, d in result.items() if d < PHASES_DIFFER} == {}


def test_series_differ_to_every_eye():
    """All pairs of the colours of series, too; neighbours in the list differ most in lightness."""
    listed = (PAGE / "colours.js").read_text().split("SERIES = [")[1].split("]")[0]
    series = re.findall(r'"(#[0-9a-f]{6})"', listed)
    assert len(series) == len(set(series)) >= 13
    result = closest(series)
    assert result.pop("grey") >= SERIES_STEP
    assert min(result.values()) >= SERIES_DIFFER
    lightness = lab(linear(series))[:, 0]
    assert np.abs(np.diff(lightness)).min() >= 2 * SERIES_STEP


def test_phases_have_textures():
    """Every phase but those at the ends of the scale has a texture, in legends as on canvases."""
    kinds = dict(
        re.findall(r"(\w+): \"(\w+)\"", (PAGE / "textures.js").read_text().split("KINDS")[0])
    )
    patterned = {tone for tone, kind in kinds.items() if kind != "plain"}
    assert patterned == {"exchange", "links", "host", "sync"}
    assert len({kinds[tone] for tone in patterned}) == len(patterned)
    sheet = (PAGE / "style.css").read_text()
    assert patterned == set(re.findall(r"\[data-textures\] \.tone-(\w+)", sheet))


def test_less_and_more_differ_in_grey():
    """Lightness grows from less to more, and the ends differ to every eye."""
    code = (PAGE / "colours.js").read_text()
    ends = re.findall(r"\b(?:LESS|EQUAL|MORE) = \[(\d+), (\d+), (\d+)\]", code)
    colours = ["#" + "".join(f"{int(v):02x}" for v in end) for end in ends]
    assert len(colours) == 3
    assert np.diff(lab(linear(colours))[:, 0]).min() >= 2 * PHASES_STEP
    assert min(closest(colours).values()) >= PHASES_DIFFER
