"""Pages of the site for the garden, and the reports that open from them."""

import re
import sys
import zlib
from pathlib import Path

import pytest

from tests.vision.browser import Browser, missing
from tremula.garden.catalogue.catalogue import all_applications
from tremula.vision.page_data.pack import unpack_pack

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "tools"))
import garden_pages  # noqa: E402 - found by the line above
import site_reports  # noqa: E402

REPORTS = sorted(site_reports.FOLDER.glob("*.packs"))


def test_every_application_has_a_page(tmp_path):
    """A page for each, with its figures, its command, its picture, and links into its report."""
    assert garden_pages.write_garden_pages(tmp_path) == len(all_applications())
    with_report = {path.stem for path in REPORTS}
    index = (tmp_path / "index.md").read_text()
    for one in all_applications():
        page = (tmp_path / f"{one.name}.md").read_text()
        assert f"({one.name}.md)" in index
        assert f"tremula garden run {one.name} --tiny" in page
        assert "## Figures" in page
        pictures = re.findall(r"!\[[^]]*\]\(([^)]+)\)", page)
        assert pictures
        for picture in pictures:
            assert (tmp_path / picture).stat().st_size > 100
        links = re.findall(rf"\.\./reports/{one.name}\.html#view=(\w+)", page)
        assert links == (
            ["execution", "summary", "execution", "memory"] if one.name in with_report else []
        )


@pytest.mark.parametrize("path", REPORTS, ids=lambda path: path.stem)
def test_reports_are_small_and_say_nothing_of_the_computer(path):
    """Each is at most 200 KB, its links name steps and tiles that exist, no folder is in it."""
    assert path.stat().st_size <= 200_000
    packs = site_reports.read_packs(path)
    for name, pack in packs.items():
        assert not re.search(rb"/(tmp|home|root|work)/", zlib.decompress(pack)), name
    links = dict(site_reports.deep_links(packs))
    step = int(re.search(r"step=(\d+)", links["the step that takes longest"])[1])
    assert step < len(unpack_pack(packs["0/steps"])[1]["total_cycles"])


@pytest.mark.skipif(bool(missing()), reason=missing())
def test_a_report_opens_from_the_folder_at_a_deep_link(tmp_path):
    """The static page shows the linked view and tile, without a server and without errors."""
    assert site_reports.write_site_reports(tmp_path) == [path.stem for path in REPORTS]
    name = REPORTS[0].stem
    link = dict(site_reports.deep_links(site_reports.read_packs(REPORTS[0])))["the fullest tile"]
    with Browser() as page:
        page.open(url=f"file://{tmp_path}/{name}.html#{link}", offline=True)
        page.show(hash=f"#{link}")
        tile = int(link.partition("tile=")[2])
        assert f"Addresses of tile {tile:,}" in page.text(selector=".stage")
        assert "Needs" in page.text(selector=".tile-note")
        assert page.problems() == []
