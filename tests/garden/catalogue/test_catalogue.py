"""The catalogue: shipped applications, found by name, field and words."""

import pytest

from tremula.base.errors import InvalidOption
from tremula.garden.catalogue.catalogue import all_applications, chosen, find_application


def test_every_shipped_application_is_whole():
    """All manifests are right, and each folder has a main.py whose package says what it is."""
    result = all_applications()
    assert "mnist_poptorch" in [one.name for one in result]
    for one in result:
        assert (one.folder / "main.py").is_file(), one.name
        assert (one.folder / "__init__.py").read_text(encoding="utf-8").startswith('"""'), one.name


def test_names_may_have_dashes_and_unknown_ones_are_answered_with_the_nearest():
    """`mnist-poptorch` is `mnist_poptorch`; `mnist_popt` gets a hint."""
    assert find_application("mnist-poptorch").name == "mnist_poptorch"
    with pytest.raises(InvalidOption, match="did you mean 'mnist_poptorch"):
        find_application("mnist_poptorhc")


def test_filters_and_words_are_all_to_be_met():
    """Domain, framework, technique and every word narrow the list."""
    everything = all_applications()
    result = chosen(everything, domain="vision", framework="poptorch", words=["Handwritten"])
    assert "mnist_poptorch" in [one.name for one in result]
    assert not chosen(result, technique="all-to-all", words=["handwritten"])
    assert not chosen(everything, words=["handwritten", "no such word"])
