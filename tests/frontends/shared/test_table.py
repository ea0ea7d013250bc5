"""Tables of operators: entries, folders that fill them, families, Markdown."""

import sys

import pytest

from tremula.frontends.shared.table import Table, by_family, markdown_table, summary

MODULE = """
from operators_of_a_test import TABLE

def compute():
    '''What it computes.

    More.'''

TABLE.enter("{name}", compute)
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A package whose modules enter operators, one of them in a sub-folder."""
    package = tmp_path / "operators_of_a_test"
    (package / "inner").mkdir(parents=True)
    text = "from tremula.frontends.shared.table import Table\nTABLE = Table(__name__)\n"
    (package / "__init__.py").write_text(text)
    (package / "inner" / "__init__.py").write_text("")
    (package / "one.py").write_text(MODULE.format(name="one"))
    (package / "inner" / "two.py").write_text(MODULE.format(name="two"))
    monkeypatch.syspath_prepend(tmp_path)
    yield package
    for name in [n for n in sys.modules if n.partition(".")[0] == package.name]:
        del sys.modules[name]


def test_a_table_imports_its_folder(folder):
    """Every module of the folder enters its operators; its name is the family."""
    from operators_of_a_test import TABLE

    rows = TABLE.rows()
    assert set(rows) == {"one", "two"}
    assert {name: TABLE.family_of(f) for name, f in rows.items()} == {
        "one": "one",
        "two": "inner.two",
    }
    assert summary(rows["one"]) == "What it computes."
    assert TABLE.rows() is rows


def test_a_key_has_one_entry():
    """A second entry is an error, so that the order of imports decides nothing."""
    table = Table("tremula.frontends.jax.rules")
    table.enter("add", 1)
    with pytest.raises(ValueError, match="add has two entries in the table of tremula"):
        table.enter("add", 2)


def test_pages():
    """Families are in order; empty cells stay cells."""
    families = by_family(["tan", "add", "abs"], lambda name: name[0])
    assert families == {"a": ["add", "abs"], "t": ["tan"]}
    text = markdown_table(("name", ""), [("`add`", ""), ("`tan`", "tangent")])
    assert text == "| name | |\n|---|---|\n| `add` | |\n| `tan` | tangent |\n"
