"""Files whose parameters are in words."""

import pytest

from tremula.base.errors import FileLoadError
from tremula.validate import read_rows
from tremula.validate.free_text import read_words, sizes_in
from tremula.validate.workloads.table import chip_of

HEAD = "id,source,chip,workload,family,parameters,metric,unit,value\n"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("N=16; 1472 tiles; 1.85 GHz", {"n": "16", "tiles": "1472", "ghz": "1.85"}),
        ("1472 tiles x 6 workers x 7500 floats", {"tiles": "1472", "workers": "6"}),
        ("Bow Pod16; SDK 3.1; PopART", {"pod": "16", "sdk": "3.1", "popart": ""}),
        ("IPU-POD 64; 16.32", {"pod": "64", "precision": "16.32"}),
        ("micro-batch 20 per IPU; fp16", {"micro_batch": "20 per IPU", "dtype": "fp16"}),
        ("grid 342^3; float", {"grid": "342^3", "dtype": "float"}),
        ("half4 codelet (in the repo); real data", {"codelet": "half4", "data": "real"}),
        ("exchange 637, copies before 5741", {"exchange": "637", "copies_before": "5741"}),
        ("1,281,167 images; 12 to 24 calls", {"images": "1,281,167", "calls": "12 to 24"}),
        ("100 iterations with halo exchange", {"iterations": "100"}),
        ("", {}),
    ],
)
def test_pieces_of_a_text(text, expected):
    """Names may stand before or after their numbers; the rest are words without a value."""
    words = read_words(text)
    assert {name: words.get(name) for name in expected} == expected


def test_sizes():
    """Both ways of writing sizes, and none."""
    assert sizes_in("499x302") == (499, 302)
    assert sizes_in("342^3 points") == (342, 342, 342)
    assert sizes_in("large") == ()


def test_rows_in_words(tmp_path):
    """Chips, sizes and counts come from the words of a row, singular or plural."""
    path = tmp_path / "rows.csv"
    path.write_text(
        HEAD
        + 'a,s,C600 (ipu21),"blur (500x1000 per IPU), 100 iterations",stencil,4 IPU;8 tiles,t,s,2\n'
        + "b,s,Mk2 (chip not stated),BERT,whole model training,Pod64; batch 1e3,t,s,2\n"
        + 'c,s,Bow,"decoding, sharded over 8 chips",LLM decoding,,t,ms,2 to 3\n'
    )
    blur, bert, decoding = read_rows(path)
    assert (blur.n_ipus, bert.n_ipus, decoding.n_ipus) == (4, 64, 8)
    assert blur.sizes("per_ipu") == (500, 1000)
    assert (blur.number("iterations"), blur.number("tile"), bert.number("batch")) == (100, 8, 1000)
    assert [chip_of(row) for row in (blur, bert, decoding)] == ["c600", "gc200", "bow"]
    assert blur.stated_family == "stencil"
    assert decoding.value is None
    assert not blur.has("steps")
    with pytest.raises(FileLoadError, match="row 'a' has no parameter 'grid'"):
        blur.sizes("grid")
