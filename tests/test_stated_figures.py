"""Figures of README and of the page of front ends equal the tables and lists they come from."""

import re
import tomllib
from dataclasses import dataclass

import pytest

from tests.sources import ROOT
from tremula.compiler.compile import PASSES
from tremula.garden.catalogue.catalogue import all_applications
from tremula.hardware import chip

FENCED = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
# Names with digits in them, and paths: no figures.
NAMES = re.compile(r"\b(GC2|GC200|C600|TPUv3|gem5|C\+\+|8-bit|GPT-\d|ResNet-\d+)\b|\]\([^)]*\)")
# Figures of others, which no table of ours holds.
CITED = ("11.5 % mean error against a TPUv3, by its authors",)


@dataclass(frozen=True)
class Stated:
    """Numbers that a page states, and the line of another page that they must equal."""

    statement: str  # a pattern of docs/choose.md with the numbers as groups
    page: str
    source: str  # a pattern of that page with the same groups

    def numbers_of(self, text: str, pattern: str) -> dict[str, str]:
        match = re.search(pattern, text)
        assert match, f"nothing matches {pattern!r}"
        return match.groupdict()


STATED = (
    Stated(r"\[(?P<n>\d+) ATen overloads\]", "aten", r"(?P<n>\d+) overloads in"),
    Stated(
        r"\[(?P<run>\d+) of (?P<n>\d+) layers\]\(pyg.md\)",
        "pyg",
        r"(?P<run>\d+) of (?P<n>\d+) layers train on the host, (?P=run) on tiles",
    ),
    Stated(r"\[(?P<n>\d+) operators\]", "onnx", r"(?P<n>\d+) operators in"),
    Stated(r"\[(?P<n>\d+) operations\]", "popxl-ops", r"(?P<n>\d+) operations\."),
    Stated(
        r"\[(?P<run>\d+) of (?P<n>\d+) layers\]\(keras-layers.md\)",
        "keras-layers",
        r"(?P<n>\d+) layers: (?P<run>\d+) run on this computer, (?P=run) on tiles",
    ),
    Stated(r"\[(?P<n>\d+) primitives\]", "jax-primitives", r"(?P<n>\d+) primitives\."),
    Stated(r"\[(?P<n>\d+) applications\]", "garden-applications", r"(?P<n>\d+) applications;"),
)
ACCURACY = re.compile(
    r"median errors from (\d+) % \(([\w -]+)\) to (\d+) %\s+\(([\w -]+)\), "
    r"(\d+) % over all (\d+) rows"
)
CORES = re.compile(r"IPU is (\d+) small cores")
PYTHON = re.compile(r"Python (3\.\d+) to (3\.\d+)")

FRONT_PAGES = ("README.md", "docs/choose.md")


def read(page: str) -> str:
    return (ROOT / page).read_text(encoding="utf-8")


def prose(page: str) -> str:
    """A page without its programs and printed texts."""
    return FENCED.sub("", read(page))


@pytest.mark.parametrize("stated", STATED, ids=lambda stated: stated.page)
def test_counts_are_those_of_their_pages(stated):
    """A count equals the last line of the page that is made from the registry."""
    expected = stated.numbers_of(read(f"docs/{stated.page}.md"), stated.source)
    pages = [page for page in FRONT_PAGES if re.search(stated.statement, prose(page))]
    assert pages
    for page in pages:
        assert stated.numbers_of(prose(page), stated.statement) == expected


def test_applications_are_counted_from_their_folders():
    """The garden's page counts the applications that the catalogue lists."""
    assert f"{len(all_applications())} applications;" in read("docs/garden-applications.md")


def accuracy_table() -> dict[str, tuple[int, float]]:
    """Family → rows and median error in percent, from the table of docs/accuracy.md."""
    rows = re.findall(
        r"^\| ([\w *-]+) \| (\d+) \| ([\d.]+)% \|", read("docs/accuracy.md"), re.MULTILINE
    )
    return {name.strip("* "): (int(n), float(median)) for name, n, median in rows}


def test_accuracy_is_that_of_the_table():
    """README's best and worst medians, with their families, are those of the accuracy page."""
    match = ACCURACY.search(prose("README.md"))
    assert match, "README states the errors of the cost model"
    low, best, high, worst, overall, n_rows = match.groups()
    table = accuracy_table()
    n_all, median = table.pop("all")
    assert (int(n_rows), int(overall)) == (n_all, round(median))
    medians = {name: error for name, (n, error) in table.items() if n > 1}
    assert (best, int(low)) == (min(medians, key=medians.__getitem__), round(min(medians.values())))
    assert (worst, int(high)) == (
        max(medians, key=medians.__getitem__),
        round(max(medians.values())),
    )


def test_the_chip_is_the_modelled_one():
    """README's number of cores is that of the chip model."""
    match = CORES.search(prose("README.md"))
    assert match
    assert int(match[1]) == chip("bow").n_tiles


def test_python_versions_are_those_of_the_package():
    """README's interpreters are those that pyproject.toml allows."""
    allowed = tomllib.loads(read("pyproject.toml"))["project"]["requires-python"]
    low, high = PYTHON.search(prose("README.md")).groups()
    assert allowed == f">={low},<3.{int(high.split('.')[1]) + 1}"


def test_readme_is_short():
    """A reader comes to the first command and the limits within a few screens."""
    assert len(read("README.md").splitlines()) <= 130


@pytest.mark.parametrize("page", FRONT_PAGES)
def test_front_pages_state_no_other_figure(page):
    """Each number in the prose is compared above, is part of a name, or is cited."""
    text = prose(page)
    for cited in CITED:
        assert cited in prose("README.md")
        text = text.replace(cited, "")
    for pattern in (ACCURACY, CORES, PYTHON, *(re.compile(s.statement) for s in STATED)):
        text = pattern.sub("", text)
    text = NAMES.sub("", text)
    assert re.findall(r".*\d.*", text) == []


def test_passes_are_listed_in_their_order():
    """The architecture page's picture and text list the passes of the compiler as they run."""
    names = [name for name, _ in PASSES]
    page = " ".join(read("docs/architecture.md").split())
    assert f"compile: {' · '.join(names)}" in page
    assert f"`compiler/compile.py`: {', '.join(names)}." in page
