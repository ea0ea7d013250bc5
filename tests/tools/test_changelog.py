"""Fragments of changes become a section of the changelog."""

import pytest

from tools.changelog import fragments, section_of


def test_fragments_become_a_section(tmp_path):
    """Items are grouped by section and sorted by name; further lines are indented, if not blank."""
    (tmp_path / "README.md").write_text("How to write one.")
    (tmp_path / "b.fixed.md").write_text("Second.\n")
    (tmp_path / "a.fixed.md").write_text("First,\n\nin all.\n")
    (tmp_path / "c.added.md").write_text("New.")
    expected = "## 1.2.3\n\n### Added\n- New.\n\n### Fixed\n- First,\n\n  in all.\n- Second.\n"
    assert section_of("1.2.3", fragments(tmp_path)) == expected


def test_a_fragment_of_no_section_is_an_error(tmp_path):
    """Its name, and the form that is expected."""
    (tmp_path / "a.fixd.md").write_text("First.")
    with pytest.raises(SystemExit, match=r"a\.fixd\.md: expected WORDS\.SECTION\.md"):
        fragments(tmp_path)


def test_all_fragments_of_the_repository_have_a_section():
    """`make changelog` works at any commit."""
    fragments()
