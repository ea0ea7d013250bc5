"""`make test-valgrind`: calls of native loops are recorded with their arrays."""

import pytest

from tests.scripts import run_code

# In a separate process, whose loops go on recording.
CODE = """
from pathlib import Path
from tools.native_calls import record

counts = record(Path("calls"), 1)
print(len(counts) > 3, Path("calls").stat().st_size > 50 * counts.total())
"""


@pytest.mark.slow
def test_calls_of_a_program_are_recorded(tmp_path):
    """A program of the fuzzer calls several loops, and each call is in the file."""
    code, printed = run_code(CODE, tmp_path)
    assert (code, printed.split()[-2:]) == (0, ["True", "True"]), printed
