"""Everything public in codelets and errors says what it is."""

import inspect

import pytest

from tremula import codelets
from tremula.base import errors

PUBLIC = [getattr(codelets, name) for name in codelets.__all__] + [
    value
    for name, value in vars(errors).items()
    if not name.startswith("_") and getattr(value, "__module__", "") == errors.__name__
]


@pytest.mark.parametrize("value", PUBLIC, ids=lambda value: value.__name__)
def test_it_has_a_docstring(value):
    """A class's own, not one it inherits, and a whole sentence."""
    text = value.__dict__.get("__doc__") if inspect.isclass(value) else value.__doc__
    assert text, value
    assert text.strip()[-1] in ".…", text
