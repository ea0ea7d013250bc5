"""What the page fetches: packs hold what they were given, sums are the engine's."""

import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from tests.vision.demo import EVIL
from tremula.base.errors import FileLoadError, MissingProfileData, RuntimeFailure
from tremula.vision.page_data.differences import MIDDLE, DifferenceBlocks, partners
from tremula.vision.page_data.fetch import PageData
from tremula.vision.page_data.heat_blocks import (
    COLUMNS_PER_BLOCK,
    MOST_SHOWN,
    HeatBlocks,
    heat_shape,
)
from tremula.vision.page_data.pack import pack_of, unpack_pack
from tremula.vision.report.reader import open_report
from tremula.vision.serve import program_packs
from tremula.vision.serve.export import export_page
from tremula.vision.serve.page_files import bundle, page_files


@pytest.fixture
def reader(small_report):
    with open_report(small_report) as opened:
        yield opened


@pytest.fixture
def data(reader):
    return PageData([reader])


@pytest.mark.slow
@given(
    arrays.arrays(np.int64, st.integers(0, 40), elements=st.integers(-(2**53), 2**53)),
    arrays.arrays(np.float64, st.integers(0, 9), elements=st.floats(allow_nan=False)),
    st.dictionaries(st.text(), st.text(), max_size=3),
)
def test_packs_keep_everything(whole, real, facts):
    """Columns of whole numbers and floats, and any facts, come back as they were."""
    result, columns = unpack_pack(pack_of(facts, {"whole": whole, "real": real}))
    assert result == facts
    assert columns["whole"].tolist() == whole.tolist()
    assert columns["real"].tolist() == real.tolist()


def test_totals_are_the_engines(data, reader):
    """Cycles of the tree, of the overview and of the trace, and bytes of tiles, all agree."""
    total = reader.info["total_cycles"]
    _, tree = unpack_pack(data.pack("0/tree"))
    for name in ("path_cycles", "busy_cycles"):  # the same on one chip
        assert tree[name][tree["parent"] == -1].max() == total
    _, overview = unpack_pack(data.pack("0/overview"))
    parts = sum(overview[name].sum() for name in ("sync", "exchange", "compute"))
    assert parts == total == overview["end"].max()
    _, trace = unpack_pack(data.pack("0/trace/0"))
    assert trace["duration"].sum() == total
    facts, tiles = unpack_pack(data.pack("0/tiles"))
    by_category = tiles["category_always_live"].reshape(len(facts["categories"]), -1)
    assert (by_category.sum(axis=0) == tiles["always_live"]).all()
    _, variables = unpack_pack(data.pack("0/variables"))
    assert variables["n_bytes"].sum() == reader.table("variables")["n_bytes"].sum()


def test_tile_contents_are_the_variables(data, reader):
    """Bytes of variables, added over tiles, are the variables' own; so are vertices."""
    result = np.zeros(len(reader.table("variables")["id"]), np.int64)
    n_vertices = 0
    for part in range(-(-reader.n_tiles // 16)):
        _, columns = unpack_pack(data.pack(f"0/tile-contents/{part}"))
        np.add.at(result, columns["variable"], columns["n_bytes"])
        n_vertices += columns["vertex_count"].sum()
    assert (result == reader.table("variables")["n_bytes"]).all()
    assert n_vertices == reader.info["n_vertices"]


def test_one_step_on_all_tiles(data, reader):
    """A step's tiles are the reader's, to the cycle."""
    for step in range(reader.n_steps):
        _, columns = unpack_pack(data.pack(f"0/step-tiles/{step}"))
        wanted = reader.step_cycles(step)
        assert (columns["compute"] == wanted.compute[0]).all()
        assert (columns["idle"] == wanted.idle[0]).all()


@pytest.mark.slow
@pytest.mark.parametrize("level", [0, 1, 3])
@pytest.mark.parametrize("tile_level", [0, 1])
def test_heat_blocks_are_means(long_report, level, tile_level):
    """A cell is the share of its tiles' cycles, as exactly as 64 shades allow."""
    with open_report(long_report) as reader:
        pool, group = 2**level, 4**tile_level
        facts, columns = unpack_pack(HeatBlocks(reader).block("phases", level, tile_level, 0, 0))
        n_columns, n_rows = facts["n_columns"], facts["n_rows"]
        last = min(reader.n_entries, COLUMNS_PER_BLOCK * pool)
        phases = reader.phases(0, last, last)
        exact = np.add.reduceat(phases.compute, np.arange(0, last, pool), axis=0)[:n_columns]
        means = exact.reshape(n_columns, -1, group).mean(axis=2)[:, :n_rows]
        total = columns["total"].reshape(n_columns, 1)
        cells = columns["compute"].reshape(n_columns, n_rows)
        assert np.abs(cells / MOST_SHOWN - means / total).max() <= 0.5 / MOST_SHOWN + 1e-9
        assert (columns["begin"][1:] == columns["end"][:-1]).all()


def test_live_blocks_are_maxima(data, reader):
    """A cell of the liveness map is the fullest of its tiles and steps."""
    facts, columns = unpack_pack(data.pack("0/heat/live/0/0/0/0"))
    cells = columns["compute"].reshape(facts["n_columns"], facts["n_rows"])
    wanted = reader.matrix("live").rows(0, facts["n_columns"])[:, : facts["n_rows"]]
    assert np.abs(cells / MOST_SHOWN - wanted / facts["largest"]).max() <= 0.5 / MOST_SHOWN + 1e-9


def test_blocks_outside_do_not_exist(reader):
    """Asking for a block outside says so."""
    shape = heat_shape(reader, "phases")
    with pytest.raises(MissingProfileData, match="no such block"):
        HeatBlocks(reader).block("phases", shape.n_levels, 0, 0, 0)


def exported_packs(path):
    html = path.read_text(encoding="utf-8")
    return html, json.loads(re.search(r'id="packs">(.*?)</script>', html, re.DOTALL)[1])


def test_the_export_holds_what_is_served(data, tmp_path):
    """Every pack of the served page is in the file, byte for byte, and nothing else is."""
    import base64

    path = tmp_path / "page.html"
    told = []
    n_packs, n_left_out = export_page(data, path, progress=told.append)
    html, packs = exported_packs(path)
    assert n_left_out == 0
    assert sorted(packs) == sorted([*data.names(), *data.sweep_names(0)])
    assert told == sorted(told)
    assert told[-1] == 1
    assert len(packs) == n_packs
    for name, content in packs.items():
        assert base64.b64decode(content) == data.pack(name)
    assert EVIL not in html
    assert "Content-Security-Policy" in html
    assert not re.search(r'(?:src|href)="(?!data:|\$\{\w+.toDataURL)', html)


@pytest.mark.slow
def test_large_programs_are_costed_in_another_process(data, monkeypatch):
    """What comes from the other process is what this one makes; its failure is told."""
    monkeypatch.setattr(program_packs, "_MANY_STEPS", 0)
    packs = program_packs.program_packs(data)
    traffic = {name for name in data.names() if name.startswith("0/traffic")}
    assert len(traffic) > 1
    assert set(packs) == {"0/dataflow", *traffic, *data.sweep_names(0)}
    assert all(pack == data.pack(name) for name, pack in packs.items())
    with pytest.raises(RuntimeFailure, match=r"ended with exit code 1: .*no-such-report"):
        program_packs._from_another_process(Path("no-such-report"))


def test_a_small_export_keeps_the_overview(data, tmp_path):
    """With little space the finest detail is left out first, and its amount is returned."""
    n_packs, n_left_out = export_page(data, tmp_path / "page.html", most_bytes=20_000)
    _, packs = exported_packs(tmp_path / "page.html")
    assert {"index", "0/summary", "0/tiles"} <= set(packs)
    assert n_packs + n_left_out == len([*data.names(), *data.sweep_names(0)])
    assert n_left_out > 0


def test_an_export_that_cannot_be_written(data, tmp_path):
    """A folder that does not exist is a clear error."""
    with pytest.raises(FileLoadError, match="cannot write"):
        export_page(data, tmp_path / "nowhere" / "page.html")


def test_modules_keep_to_the_forms_that_can_be_joined():
    """Every module comes into the bundle, imports and exports resolved, each exactly once."""
    sources = {name: content.decode() for name, content in page_files().items()}
    joined = bundle(sources, "main.js")
    modules = [name for name in sources if name.endswith(".js")]
    assert all(joined.count(f"// {name}\nconst ") == 1 for name in modules)
    assert not re.search(r"^(?:import|export) ", joined, re.MULTILINE)
    for name in modules:
        assert sources[name].startswith("// "), f"{name} does not say what it is"


def test_reports_of_one_name_are_told_apart(small_report, tmp_path):
    """Two reports in folders of the same name have the folders above them in their titles."""
    for name in ("before", "after"):
        (tmp_path / name / "training").mkdir(parents=True)
        shutil.copy(small_report / "profile.pop", tmp_path / name / "training")
    with (
        open_report(tmp_path / "before" / "training") as before,
        open_report(tmp_path / "after" / "training") as after,
    ):
        facts, _ = unpack_pack(PageData([before, after]).pack("index"))
        assert [r["title"] for r in facts["reports"]] == ["before/training", "after/training"]
        facts, _ = unpack_pack(PageData([before]).pack("index"))
        assert facts["reports"][0]["title"] == "training"


def test_differences_are_b_minus_a(small_report, larger_report):
    """A cell is the difference of steps of the same name, pooled; the middle is none at all."""
    with open_report(small_report) as mine, open_report(larger_report) as theirs:
        blocks = DifferenceBlocks(mine, theirs)
        paths, others = mine.table("steps")["path"], theirs.table("steps")["path"]
        places = partners(paths, others)
        assert [others[i] for i in places if i >= 0] == [
            path for path, place in zip(paths, places, strict=True) if place >= 0
        ]
        there = theirs.matrix("live").take(np.maximum(places, 0)) * (places >= 0)[:, None]
        change = there - mine.matrix("live").rows(0, mine.n_steps)
        largest = blocks.facts()["largest_live"]
        assert largest == abs(change).max() > 1
        _, columns = unpack_pack(blocks.block("live", 0, 0, 0, 0))
        shares = (columns["compute"].astype(int) - MIDDLE).reshape(change.shape) / MIDDLE
        assert (np.sign(shares) == np.sign(change)).all()
        assert abs(shares - change / largest).max() <= 1 / MIDDLE
        for level in (1, 2, 3):
            pooled = blocks._pooled("live", level, (0, -(-len(change) // 2**level)))
            for row, part in enumerate(np.split(change, range(2**level, len(change), 2**level))):
                assert (abs(pooled[row]) == abs(part).max(axis=0)).all()
        same = DifferenceBlocks(mine, mine)
        assert set(unpack_pack(same.block("phases", 0, 0, 0, 0))[1]["compute"]) == {MIDDLE}
