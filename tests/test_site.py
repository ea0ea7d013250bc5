"""The documentation holds together: links lead somewhere, pages are shown and current."""

import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tools"))
import api_pages  # noqa: E402 - found by the line above

PAGES = sorted(
    [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").rglob("*.md")]
)
LINK = re.compile(r"\]\((?!https?:)([^)#\s]*)(?:#([^)\s]*))?\)")


def anchors_of(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub and the site make them."""
    titles = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    kept = [re.sub(r"[^\w\- ]", "", title.lower()) for title in titles]
    return {title.strip().replace(" ", "-") for title in kept}


def test_links_lead_somewhere():
    """Every link of every page names a file that exists, and a heading in it."""
    dead = []
    for page in PAGES:
        for target, anchor in LINK.findall(page.read_text(encoding="utf-8")):
            path = page.parent / target if target else page
            if not path.exists() or (anchor and anchor not in anchors_of(path)):
                dead.append(f"{page.relative_to(ROOT)}: {target}#{anchor}")
    assert not dead, "\n".join(dead)


def test_the_site_shows_every_page():
    """Each page of docs stands in the site's navigation, API pages behind their index."""
    navigation = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    pages = [p.relative_to(ROOT) for p in (ROOT / "docs").glob("*.md")]
    assert [str(p) for p in pages if str(p) not in navigation] == []


# The guide of each front end; docs/choose.md leads to them.
GUIDES = (
    "poptorch", "pyg-porting", "optimum", "from-onnxruntime", "from-popart", "popxl", "keras", "jax"
)  # fmt: skip
GUIDE_FORM = ["Start", "What is supported", "Differences", "Performance", "Reports"]


@pytest.mark.parametrize("guide", GUIDES)
def test_guides_have_one_form(guide):
    """Every guide has the sections of the form, in their order; others may stand between them."""
    page = (ROOT / "docs" / f"{guide}.md").read_text(encoding="utf-8")
    titles = re.findall(r"^## (.*)$", page, re.MULTILINE)
    assert [title for title in titles if title in GUIDE_FORM] == GUIDE_FORM
    assert f"]({guide}.md)" in (ROOT / "docs" / "choose.md").read_text(encoding="utf-8")


def test_every_public_name_has_a_docstring():
    """Whatever a public package exports, and every public method, says what it is."""
    silent = [name for package in api_pages.PACKAGES for name in api_pages.undocumented(package)]
    assert not silent, "\n".join(silent)


@pytest.mark.parametrize("package", api_pages.PACKAGES, ids=lambda package: package.module)
def test_api_pages_are_current(package):
    """docs/api holds what signatures and docstrings say today; `make docs` renews it."""
    written = (api_pages.FOLDER / package.page).read_text(encoding="utf-8")
    assert written == api_pages.page_of(package)
