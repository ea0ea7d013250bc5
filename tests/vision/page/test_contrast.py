"""Text is readable in both themes: contrasts of the style sheet, as WCAG 2 measures them."""

import re
from itertools import product
from pathlib import Path

import pytest

import tremula.vision

PAGE = Path(tremula.vision.__file__).parent / "page"
AA = 4.5  # for text of any size
TEXTS = ("ink", "muted", "faint", "accent", "good", "bad", "warn")
GROUNDS = ("ground", "surface", "raised", "sunken", "accent-soft")
PHASES = ("compute", "exchange", "links", "host", "sync", "idle")


def themes() -> dict[str, dict[str, str]]:
    """Colours of each block of variables; what a dark one leaves out, it has from the light one."""
    sheet = (PAGE / "style.css").read_text()
    blocks = re.findall(r":root[^{,]*\{([^{}]*--ground[^{}]*)\}", sheet)
    result = [dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6})\b", block)) for block in blocks]
    return dict(zip(("light", "system dark", "chosen dark"), result, strict=True))


THEMES = themes()


def luminance(colour: str) -> float:
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [v / 12.92 if v <= 0.03928 else ((v + 0.055) / 1.055) ** 2.4 for v in parts]
    return sum(w * v for w, v in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def contrast(one: str, other: str) -> float:
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("theme", THEMES)
def test_texts_can_be_read_on_every_ground(theme):
    """Every colour of text has 4.5:1 on every ground that it may stand on."""
    colours = THEMES[theme]
    pairs = {(t, g): contrast(colours[t], colours[g]) for t, g in product(TEXTS, GROUNDS)}
    assert {pair: ratio for pair, ratio in pairs.items() if ratio < AA} == {}


@pytest.mark.parametrize("theme", THEMES)
def test_names_can_be_read_on_bars(theme):
    """Black or white, whichever is better, has 4.5:1 on every phase and every series."""
    series = re.findall(r'"(#[0-9a-f]{6})"', (PAGE / "colours.js").read_text())
    bars = [THEMES[theme][phase] for phase in PHASES] + series
    assert min(max(contrast("#000000", b), contrast("#ffffff", b)) for b in bars) >= AA


@pytest.mark.parametrize("theme", THEMES)
def test_phases_can_be_told_apart(theme):
    """No two phases have nearly the same colour, not even to an eye without red or green."""
    colours = [THEMES[theme][phase] for phase in PHASES]
    for i, one in enumerate(colours):
        for other in colours[:i]:
            assert distance(seen_without_green(one), seen_without_green(other)) > 40, (one, other)


def seen_without_green(colour: str) -> list[float]:
    """About what a deuteranope sees: Viénot's matrix on plain RGB."""
    r, g, b = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    return [0.625 * r + 0.375 * g, 0.7 * r + 0.3 * g, 0.3 * g + 0.7 * b]


def distance(one: list[float], other: list[float]) -> float:
    return sum((a - b) ** 2 for a, b in zip(one, other, strict=True)) ** 0.5


def test_both_dark_themes_are_one():
    """The system's dark theme and the chosen one have the same colours."""
    assert THEMES["system dark"] == THEMES["chosen dark"]
