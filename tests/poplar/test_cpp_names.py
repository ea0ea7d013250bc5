"""The table of Poplar's C++ names, and the page made from it."""

from functools import reduce

import pytest

import tremula as tr
from tremula.poplar.cpp_names import cpp_names_markdown, sections

ROWS = [row for rows in sections().values() for row in rows]
# Attributes that only instances have.
OF_INSTANCES = {"Graph.target", "Graph.replication_factor", "Engine.options"}


@pytest.mark.parametrize("row", [r for r in ROWS if r.ours], ids=lambda r: r.theirs)
def test_every_name_exists(row):
    """What the table names can be found, starting from `tremula`."""
    if row.ours in OF_INSTANCES:
        graph = tr.Graph(tr.IPUModel(tiles_per_ipu=1).create_device())
        owner = graph if row.ours.startswith("Graph") else tr.Engine(graph, tr.Sequence())
        assert hasattr(owner, row.ours.partition(".")[2])
        return
    assert reduce(getattr, row.ours.split("."), tr) is not None


def test_what_is_missing_says_why():
    """A name without a counterpart has a reason, and no name is there twice."""
    assert all(row.difference for row in ROWS if not row.ours)
    names = [row.theirs for row in ROWS]
    assert len(names) == len(set(names)) > 150


def test_every_program_is_in_the_table():
    """All programs a user can build have their row."""
    from tremula.poplar import programs

    public = {
        name
        for name in tr.poplar.__all__
        if isinstance(getattr(programs, name, None), type)
        and issubclass(getattr(programs, name), programs.Program)
    }
    assert public <= {row.ours for row in ROWS}


def test_the_page_is_current(repository):
    """docs/poplar-cpp.md is what `make docs` would write."""
    assert (repository / "docs" / "poplar-cpp.md").read_text() == cpp_names_markdown()
