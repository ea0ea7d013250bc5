"""Chips: the known figures, provenance, changes, files and their errors."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tremula.base.errors import FileLoadError, InvalidMachineModel
from tremula.base.types import FLOAT, HALF, INT, QUARTER
from tremula.hardware import (
    CHIPS,
    Chip,
    Fact,
    chip,
    chip_from_toml,
    chip_to_toml,
    load_chip,
    save_chip,
    tile_positions,
)
from tremula.hardware.constant_records import quantities
from tremula.hardware.floor_plan import n_rows

BOW = chip("bow")


@pytest.mark.parametrize(
    ("name", "arch", "n_tiles", "n_bytes", "region0", "region1", "clock_hz"),
    [
        ("gc2", "ipu1", 1216, 262144, 128 * 1024, 128 * 1024, 1.6e9),
        ("gc200", "ipu2", 1472, 638976, 208 * 1024, 416 * 1024, 1.325e9),
        ("bow", "ipu2", 1472, 638976, 208 * 1024, 416 * 1024, 1.85e9),
        ("c600", "ipu21", 1472, 638976, 208 * 1024, 416 * 1024, 1.5e9),
    ],
)
def test_known_figures(name, arch, n_tiles, n_bytes, region0, region1, clock_hz):
    """Each chip has its published tiles, memory and clock."""
    c = chip(name)
    assert (c.arch, c.n_tiles, c.n_bytes_per_tile) == (arch, n_tiles, n_bytes)
    assert (c.n_bytes_region0, c.n_bytes_region1, c.clock_hz) == (region0, region1, clock_hz)
    assert (c.n_workers, c.exchange_bytes_per_cycle, c.data_path_bytes) == (6, 4.0, 8)
    assert c.n_bytes_memory_element == 16384


@pytest.mark.parametrize(
    ("name", "half", "mixed", "single"),
    [("gc2", 124.5, 124.5, 31.1), ("gc200", 249.7, 124.8, 62.4), ("bow", 348.6, 174.3, 87.1)],
)
def test_peaks_match_the_datasheets(name, half, mixed, single):
    """Flops per cycle, tiles and clock together give the published peaks in TFLOP/s."""
    c = chip(name)
    peaks = [c.peak_flops(*types) / 1e12 for types in ((HALF, HALF), (HALF, FLOAT), (FLOAT, FLOAT))]
    assert peaks == pytest.approx([half, mixed, single], abs=0.06)


@pytest.mark.parametrize("c", CHIPS.values(), ids=CHIPS)
def test_matrix_unit_agrees_with_itself(c):
    """A unit takes 8 bytes of each weight row per cycle: units times inputs are the flops."""
    per_cycle = {HALF: 4, QUARTER: 8}
    for inputs, partials in ((HALF, HALF), (HALF, FLOAT), (QUARTER, HALF)):
        n_macs = c.n_conv_units(inputs, partials) * per_cycle[inputs]
        assert c.flops_per_cycle(inputs, partials) == 2 * n_macs
    assert c.weights_per_conv_unit(HALF) == 16
    assert (c.vector_width(FLOAT), c.vector_width(HALF), c.vector_width(QUARTER)) == (2, 4, 8)


@pytest.mark.parametrize("c", CHIPS.values(), ids=CHIPS)
def test_every_constant_has_provenance(c):
    """Each constant has a fact with its value, unit and a public source."""
    assert list(c.facts) == list(quantities(Chip))
    assert {f.name for f in dataclasses.fields(Chip)} == {*c.facts, "name", "provenance"}
    for key, fact in c.facts.items():
        assert fact.value == getattr(c, key)
        assert fact.provenance in ("stated", "derived", "guessed")
        assert len(fact.source) > 3
        assert ".md" not in fact.source


def test_a_chip_without_provenance_is_impossible():
    """No way of making a chip leaves a constant without its fact."""
    values = {key: getattr(BOW, key) for key in BOW.facts}
    with pytest.raises(InvalidMachineModel, match="has 77 constants but 0 facts"):
        Chip(name="bare", provenance=(), **values)
    with pytest.raises(InvalidMachineModel, match="its source says 1472"):
        dataclasses.replace(BOW, n_tiles=4)
    with pytest.raises(
        InvalidMachineModel, match=r"the value 4 has no source.\n  try: say in a few"
    ):
        Fact(4, "stated", " ")
    with pytest.raises(
        InvalidMachineModel, match=r"unknown provenance 'state' of a fact.\n  try: did you mean 's"
    ):
        Fact(4, "state", "a source")


def test_lookup():
    """Names and architectures are found in any case; a chip stands for itself."""
    assert chip("BOW") is chip(" bow ") is CHIPS["bow"]
    assert [chip(arch).name for arch in ("ipu1", "ipu2", "ipu21")] == ["GC2", "GC200", "C600"]
    assert chip(BOW) is BOW
    with pytest.raises(InvalidMachineModel) as error:
        chip("gc20")
    assert (
        str(error.value) == "unknown chip 'gc20'.\n  try: did you mean 'gc200' or 'gc2' or 'c600'?"
    )


def test_replace_marks_what_is_yours():
    """A changed constant says what it was changed from; the others keep their source."""
    small = BOW.replace(n_tiles=4)
    assert (small.name, small.n_tiles) == ("Bow*", 4)
    assert small.facts["n_tiles"] == Fact(4, "yours", "changed from Bow", "tiles")
    assert small.facts["n_workers"] == BOW.facts["n_workers"]
    assert small.replace(clock_hz=2_000_000_000).facts["clock_hz"].source == "changed from Bow"
    assert BOW.replace() == BOW
    assert hash(BOW.replace(n_tiles=1472)) == hash(BOW)
    assert (small != BOW, repr(small)) == (True, "Chip('Bow*')")


@settings(max_examples=60, deadline=None)
@given(n_elements=st.integers(1, 500), name=st.sampled_from(sorted(CHIPS)))
def test_regions_follow_the_memory(n_elements, name):
    """Memory of any number of elements is split into whole elements, interleaved in pairs."""
    base = chip(name)
    c = base.replace(n_bytes_per_tile=16384 * n_elements, n_bytes_reserved_per_tile=0)
    assert c.n_bytes_region0 + c.n_bytes_region1 == c.n_bytes_per_tile
    assert c.n_bytes_region1 % (2 * 16384) == 0
    ideal = c.n_bytes_per_tile * base.n_bytes_region1 / base.n_bytes_per_tile
    assert abs(c.n_bytes_region1 - ideal) <= 2 * 16384
    assert c.facts["n_bytes_region0"].provenance == "derived"
    assert c.interleaved_memory_element_index * 16384 == c.n_bytes_region0
    assert c.n_memory_elements == n_elements


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"n_tile": 3}, "Chip 'Bow' has no constant 'n_tile'.\n  try: did you mean 'n_tiles'"),
        ({"n_tiles": 0}, "n_tiles of 'Bow*' is 0 tiles, expected more than zero."),
        ({"n_tiles": -1}, "n_tiles of 'Bow*' is -1 tiles, expected more than zero."),
        ({"n_tiles": 2.5}, "n_tiles of 'Bow*' must be a whole number, got 2.5 of type float."),
        ({"n_tiles": True}, "must be a whole number, got True of type bool."),
        ({"clock_hz": "fast"}, "clock_hz of 'Bow*' must be a number, got 'fast' of type str."),
        ({"clock_hz": float("nan")}, "clock_hz of 'Bow*' is nan Hz, expected more than zero."),
        ({"clock_hz": float("inf")}, "clock_hz of 'Bow*' is inf Hz, expected more than zero."),
        ({"arch": 2}, "arch of 'Bow*' must be a text, got 2 of type int."),
        ({"arch": "ipu3"}, "arch of 'Bow*' is 'ipu3', expected one of 'ipu1', 'ipu2', 'ipu21'."),
        ({"ipu_link_efficiency": 2}, "is 2.0 , expected more than zero and at most 1."),
        ({"n_bytes_region0": 16384}, "are 16384 + 425984 = 442368 B, expected n_bytes_per_tile"),
        ({"n_bytes_per_tile": 1000}, "is 1000, expected a multiple of its memory element, 16384."),
        ({"n_bytes_per_tile": 0}, "is 0, expected a multiple of its memory element, 16384."),
        ({"n_bytes_per_tile": "big"}, "must be a whole number, got 'big' of type str."),
        ({"n_bytes_memory_element": 10000}, "n_bytes_region0 of 'Bow*' is 212992 B, expected a"),
        (
            {"n_tiles_per_numbering_step": 3},
            "is 3, expected a divisor of n_tiles_per_supertile = 4.",
        ),
        ({"n_bytes_reserved_per_tile": 638976}, "reserves 638976 B of 638976 B per tile: nothing"),
    ],
)
def test_impossible_changes(changes, text):
    """Each impossible change is refused with the constant, what was expected and what was got."""
    with pytest.raises(InvalidMachineModel) as error:
        BOW.replace(**changes)
    assert text in str(error.value)
    assert "\n  try: " in str(error.value)


def test_unknown_arithmetic():
    """A pair of types the matrix unit does not know is an error that lists those it does."""
    with pytest.raises(InvalidMachineModel) as error:
        BOW.flops_per_cycle(INT, INT)
    assert str(error.value) == (
        "'Bow' has no flops_per_cycle for int → int.\n  try: its matrix unit knows half → half, "
        "half → float, float → float, quarter → half"
    )


@pytest.mark.parametrize("c", CHIPS.values(), ids=CHIPS)
def test_files_keep_everything(c, tmp_path):
    """Saving and loading a chip keeps every value and every source."""
    save_chip(c, tmp_path / "chip.toml")
    back = load_chip(tmp_path / "chip.toml")
    assert (back, back.facts) == (c, c.facts)


@settings(max_examples=40, deadline=None)
@given(
    name=st.text(min_size=1),
    source=st.text(min_size=1).filter(str.strip),
    rate=st.floats(1e-9, 9e9),
)
def test_texts_keep_everything(name, source, rate):
    """Names and sources of any characters, and any float, survive a TOML file."""
    c = BOW.replace(name=name, host_link_gbytes_per_s=Fact(rate, "yours", source))
    try:
        text = chip_to_toml(c)
        text.encode()
    except UnicodeEncodeError:
        return  # a lone surrogate is no text
    assert chip_from_toml(text).facts == c.facts
    assert chip_from_toml(text).name == name


@pytest.mark.parametrize(
    ("text", "error_type", "expected"),
    [
        (
            "base = 'bow'\nn_tilez = 3",
            InvalidMachineModel,
            "my.toml: unknown key 'n_tilez'.\n  try: d",
        ),
        (
            "base = 'bwo'",
            InvalidMachineModel,
            "my.toml: unknown chip 'bwo'.\n  try: did you mean 'bow'",
        ),
        ("base = 3", InvalidMachineModel, "my.toml: base must be a text, got 3."),
        ("base = 'bow'\nname = 1", InvalidMachineModel, "my.toml: name must be a text, got 1."),
        ("base = 'bow'\nn_tiles = '4'", InvalidMachineModel, "must be a whole number, got '4' of"),
        ("base = 'bow'\nn_tiles = [4]", InvalidMachineModel, "must be a whole number, got [4] of"),
        ("base = 'bow'\nn_tiles = {source = 'x'}", InvalidMachineModel, "n_tiles has no value."),
        ("base = 'bow'\nn_tiles = {val = 4}", InvalidMachineModel, "unknown key 'val' of n_tiles."),
        ("base = 'bow'\nn_tiles = {value = 4, source = 3}", InvalidMachineModel, "has no source"),
        (
            "n_tiles = 4",
            InvalidMachineModel,
            "my.toml: Chip 'my' lacks 'arch', 'n_workers', 'clock",
        ),
        ("n_tiles = ", FileLoadError, "my.toml is no TOML: Invalid value"),
        ("\xff", FileLoadError, "cannot read the chip file"),
        (None, FileLoadError, "cannot read the chip file"),
    ],
)
def test_bad_files(text, error_type, expected, tmp_path):
    """Each bad file is refused with its name, the key at fault and what to write."""
    path = tmp_path / "my.toml"
    if text is not None:
        path.write_text(text, encoding="latin-1")
    with pytest.raises(error_type) as error:
        load_chip(path)
    assert expected in str(error.value)
    assert "\n  try: " in str(error.value)


def test_a_file_changes_its_base(tmp_path):
    """A file with a base changes what it names, is named after itself, and keeps sources given."""
    path = tmp_path / "tiny.toml"
    path.write_text(
        "base = 'GC2'\nn_tiles = 8\nn_bytes_per_tile = {value = 65536, source = 'small'}"
    )
    tiny = load_chip(path)
    assert (tiny.name, tiny.n_tiles, tiny.n_bytes_region1) == ("tiny", 8, 32768)
    assert tiny.facts["n_tiles"].source == "changed from GC2"
    assert tiny.facts["n_bytes_per_tile"] == Fact(65536, "yours", "small", "B")


@settings(max_examples=60, deadline=None)
@given(
    n_tiles=st.integers(1, 4000),
    n_columns=st.integers(1, 20),
    n_strips=st.integers(1, 3),
    n_step=st.integers(1, 4),
)
def test_tiles_lie_apart_on_the_chip(n_tiles, n_columns, n_strips, n_step):
    """Every tile has its own place, within the chip, whatever its shape."""
    c = BOW.replace(
        n_tiles=n_tiles,
        n_columns=n_columns,
        n_tiles_per_supertile=n_strips * n_step,
        n_tiles_per_numbering_step=n_step,
    )
    x, y = tile_positions(c)
    assert x.shape == y.shape == (n_tiles,)
    assert len(np.unique(np.stack([x, y]).round(9), axis=1).T) == n_tiles
    side = np.sqrt(c.die_area_mm2)
    assert min(x.min(), y.min()) > 0
    assert max(x.max(), y.max()) < side


def test_floor_plans():
    """GC2 has 19 rows and snakes by column; the others have 23 and number pairs within a row."""
    assert [n_rows(c) for c in CHIPS.values()] == [19, 23, 23, 23]
    x, y = tile_positions(chip("gc2"))
    assert np.hypot(x[75] - x[76], y[75] - y[76]) < 6  # the snake turns at the column's end
    x, y = tile_positions(BOW)
    assert x[0] == x[1] == x[45]
    assert y[45] == pytest.approx(y[47])


def test_files_with_the_former_key_are_read():
    """A constant of an old file says `standing`, and means its provenance."""
    old = chip_to_toml(chip("bow")).replace(" provenance = ", " standing = ")
    assert chip_from_toml(old).facts == chip("bow").facts
