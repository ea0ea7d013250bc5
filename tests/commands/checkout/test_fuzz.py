"""`tremula fuzz`: the fuzzer of the checkout, and what to do where there is none."""

import pytest

from tremula.base.errors import InvalidOption
from tremula.commands import main
from tremula.commands.checkout import fuzz


def test_a_wheel_says_what_is_missing(tmp_path):
    """Without the folder the error names it and says what to do."""
    with pytest.raises(InvalidOption, match="`tools` of a checkout") as raised:
        fuzz.load_fuzzer(tmp_path)
    assert "pip install --editable" in str(raised.value)


def test_a_case_is_shown(capsys):
    """`tremula fuzz show KIND SEED` prints the case and what became of it."""
    assert main(["fuzz", "show", "tiles", "1"]) == 0
    text = capsys.readouterr().out
    assert '"variables"' in text
    assert text.rstrip().endswith("passed")
