"""Area of chips: parts that add up to the die, and follow tiles, memory and links."""

import pytest

from tremula.hardware import CHIPS, chip, chip_from_toml, chip_to_toml, die_area
from tremula.hardware.die_area import AREA_CONSTANTS, logic_transistors_per_mm2


@pytest.mark.parametrize("name", CHIPS)
def test_parts_add_up_to_the_die(name):
    """Memory is a third of it, and what is left has as many transistors as logic can have."""
    of, area = chip(name), die_area(chip(name))
    assert area.total == pytest.approx(of.die_area_mm2, rel=1e-3)
    assert 0.25 < area.memory / area.total < 0.5
    assert 5e6 < logic_transistors_per_mm2(of) < 9e7
    for key in AREA_CONSTANTS:
        assert of.facts[key].source


def test_area_follows_tiles_memory_and_links():
    """Half of the tiles take half of their area; more memory and links take more."""
    bow = chip("bow")
    whole, half = die_area(bow), die_area(bow.replace(n_tiles=bow.n_tiles // 2))
    assert half.logic == pytest.approx(whole.logic / 2)
    assert half.memory == pytest.approx(whole.memory / 2)
    assert half.io == whole.io
    more = die_area(bow.replace(n_bytes_per_tile=2 * bow.n_bytes_per_tile))
    assert more.total - whole.total == pytest.approx(whole.memory)
    assert die_area(bow.replace(n_ipu_links=20)).links == 2 * whole.links


def test_files_without_area_are_read():
    """Chips that were written before they had an area get that of their architecture."""
    lines = chip_to_toml(chip("gc200")).splitlines()
    old = "\n".join(line for line in lines if line.split(" ")[0] not in AREA_CONSTANTS)
    read = chip_from_toml(old)
    assert read == chip("gc200")
    assert read.facts["tile_logic_mm2"].provenance == "guessed"
