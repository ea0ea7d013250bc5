"""Figures: thinned, rounded, with small pictures; wrong ones are refused."""

import base64

import numpy as np
import pytest

from tremula.base.errors import FileLoadError, TensorCreationError
from tremula.garden.application import Findings, Modelled
from tremula.garden.catalogue.catalogue import find_application
from tremula.garden.catalogue.figures import figures_of, read_figures, write_figures
from tremula.garden.catalogue.pictures import MOST_BYTES, checked_picture, small_png

MODELLED = Modelled(machine="4 × bow", cycles=5, bytes_on_fullest_tile=6, rate=7.5, unit="images/s")


def test_figures_come_back_as_they_were_written(tmp_path):
    """A file holds everything; no file gives None; a damaged one says how to make it again."""
    findings = Findings(
        results={"accuracy": 0.12345678},
        modelled=MODELLED,
        curves={"loss": np.arange(1000.0)},
        picture=np.eye(4),
    )
    figures = figures_of(find_application("mnist_poptorch"), findings)
    assert figures.results == {"accuracy": 0.123457}
    assert (figures.curves["loss"][0], figures.curves["loss"][-1]) == (0, 999)
    path = tmp_path / "figures.json"
    write_figures(figures, path)
    assert read_figures(path) == figures
    assert read_figures(tmp_path / "none.json") is None
    path.write_text("{}")
    with pytest.raises(FileLoadError, match=r"damaged: KeyError.*\n.*garden figures"):
        read_figures(path)


def test_numbers_that_are_none_are_refused():
    """A NaN among the results is an error."""
    findings = Findings(results={"loss": float("nan")}, modelled=None)
    with pytest.raises(FileLoadError, match="nan"):
        figures_of(find_application("mnist_poptorch"), findings)


@pytest.mark.parametrize("shape", [(1, 1), (5, 700), (600, 3), (1000, 1000), (31, 257)])
def test_pictures_are_small_whatever_they_show(shape):
    """Even noise becomes a PNG that is light enough, in grey levels and in colours."""
    random = np.random.default_rng(0)
    grey, coloured = random.random(shape), random.integers(0, 256, (*shape, 3), np.uint8)
    for picture in (grey, coloured):
        result = small_png(checked_picture(picture, "noise"))
        assert result.startswith(b"\x89PNG")
        assert len(result) <= MOST_BYTES
        assert base64.b64encode(result)


@pytest.mark.parametrize(
    "picture", [np.zeros(3), np.zeros((2, 2), int), np.full((2, 2), np.nan), np.zeros((0, 3))]
)
def test_what_is_no_picture_is_refused(picture):
    """Wrong ranks, types and values are named."""
    with pytest.raises(TensorCreationError, match="the picture of x must be finite float"):
        checked_picture(picture, "x")
