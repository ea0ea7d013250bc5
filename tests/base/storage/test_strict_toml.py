"""TOML from outside."""

import tomllib

import pytest

from tremula import load_chip, load_system
from tremula.base.errors import PoplarError
from tremula.base.storage import strict_toml
from tremula.explore.space import load_space
from tremula.vision.analysis.budget import load_budget

TEXTS = ["n_tiles = " + "1" * 5000, "n_tiles = " + "[" * 3000, "n_tiles = [", "= 1"]
LARGE = ["1" * 400, "0x" + "f" * 5000, "-" + "1" * 400, "1e999", "nan"]


@pytest.mark.parametrize("text", TEXTS)
def test_one_kind_of_error(text):
    """Long numbers and deep nesting are the errors that other mistakes are."""
    with pytest.raises(tomllib.TOMLDecodeError):
        strict_toml.loads(text)


@pytest.mark.parametrize("load", [load_chip, load_system, load_space, load_budget])
@pytest.mark.parametrize("text", TEXTS)
def test_files_that_are_not_toml(load, text, tmp_path):
    """Whatever a file holds, reading it is an error that names the file."""
    path = tmp_path / "broken.toml"
    path.write_text(text)
    with pytest.raises(PoplarError, match="broken"):
        load(path)


@pytest.mark.parametrize("number", LARGE)
@pytest.mark.parametrize("key", ["n_tiles", "clock_hz"])
def test_numbers_of_chips_out_of_range(key, number, tmp_path):
    """A number that no arithmetic takes is an error that names the constant."""
    path = tmp_path / "chip.toml"
    path.write_text(f'base = "bow"\n{key} = {number}\n')
    with pytest.raises(PoplarError, match=key):
        load_chip(path)
