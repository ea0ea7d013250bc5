"""Plots: what is drawn lies inside the axes, and wrong values are named."""

import re
from xml.etree import ElementTree as ET

import numpy as np
import pytest

from tremula.garden.models.science.plots import PlotSeries, plot_svg

NAMESPACE = "{http://www.w3.org/2000/svg}"


def test_a_plot_is_well_formed_and_inside_its_frame():
    """Every point of every kind of series lies between the margins; names are escaped."""
    x = np.arange(1, 20)
    svg = plot_svg(
        [
            PlotSeries("a < b", x, x**2.0),
            PlotSeries("points", x, 3.0 * x, "points"),
            PlotSeries("band", x, 0.5 * x, "band", to=2.0 * x, colour=0),
        ],
        x_name="steps",
        y_name="error & more",
        log_y=True,
    )
    root = ET.fromstring(svg)
    texts = [element.text for element in root.iter(f"{NAMESPACE}text")]
    assert {"a < b", "points", "band", "steps", "error & more"} <= set(texts)
    drawn = " ".join(
        element.get("points", "")
        for kind in ("polyline", "polygon")
        for element in root.iter(f"{NAMESPACE}{kind}")
    )
    numbers = np.array(re.findall(r"([\d.]+),([\d.]+)", drawn), float)
    assert len(numbers) == 19 + 38
    assert ((numbers >= 10) & (numbers <= [640, 360])).all()
    assert len(list(root.iter(f"{NAMESPACE}circle"))) == 19


def test_ticks_are_round_numbers():
    """A linear axis has a few ticks at multiples of 1, 2 or 5."""
    svg = plot_svg([PlotSeries("y", [0, 1], [0, 730])], x_name="x", y_name="y")
    texts = re.findall(r">([\d.]+)</text>", svg)
    assert {"0.2", "0.4", "200", "400", "600"} <= set(texts)


@pytest.mark.parametrize(
    ("series", "log_y", "message"),
    [
        ([], False, "at least one series"),
        ([PlotSeries("y", [1, 2], [0, 1])], True, "'cost' must be positive"),
        ([PlotSeries("y", [1, 2], [np.nan, 1])], False, "'cost' must be finite"),
        ([PlotSeries("y", [1, 2], [1, 1], "band")], False, "band 'y' needs `to`"),
    ],
)
def test_wrong_values_are_named(series, log_y, message):
    """What cannot be drawn says why."""
    with pytest.raises(ValueError, match=message):
        plot_svg(series, x_name="x", y_name="cost", log_y=log_y)
