"""A controller that is killed at any moment starts again as if it had been asked to stop."""

import subprocess
import sys

import pytest

# In a separate process, since it forks.
CODE = """
import sys
from pathlib import Path
from tests.system.kills import killed_often

print(list(killed_often(Path(sys.argv[1]), 20)) == [[]] * 20)
"""


@pytest.mark.slow
def test_kills_under_load_leave_a_consistent_state(tmp_path):
    """Twenty kills: what clients were told is there, what was removed is gone."""
    done = subprocess.run(
        [sys.executable, "-c", CODE, str(tmp_path)], capture_output=True, text=True, check=False
    )
    assert done.stdout == "True\n", done.stderr
