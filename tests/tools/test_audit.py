"""`make audit` says apart whether there are findings, none, or no answer."""

import json
from subprocess import CompletedProcess

import pytest

from tools.audit import CLEAN, FOUND, UNKNOWN, outcome

FINE = {"name": "numpy", "version": "2.0", "vulns": []}
BAD = {"name": "jinja2", "version": "2.10", "vulns": [{"id": "PYSEC-2019-217"}]}
SKIPPED = {"name": "absl-py", "skip_reason": "absl-py was not found"}


@pytest.mark.parametrize(
    ("packages", "expected", "said"),
    [
        ([FINE], CLEAN, "1 packages looked up, 0 with known"),
        ([FINE, BAD], FOUND, "jinja2 2.10: PYSEC-2019-217"),
        ([FINE, SKIPPED], UNKNOWN, "NOT AUDITED: 1 of 2 packages could not be looked up"),
        ([BAD, SKIPPED], FOUND, "absl-py was not found"),
        ([], UNKNOWN, "NOT AUDITED"),
    ],
)
def test_what_an_answer_means(capsys, packages, expected, said):
    """A package that could not be looked up is not clean; findings are listed in any case."""
    answer = json.dumps({"dependencies": packages})
    assert outcome(CompletedProcess([], 0, answer, "")) == expected
    assert said in capsys.readouterr().out


def test_no_answer(capsys):
    """Without an answer nothing is claimed, and the reason is shown."""
    assert outcome(CompletedProcess([], 1, "", "ConnectionError: no route")) == UNKNOWN
    assert "ConnectionError: no route" in capsys.readouterr().out
