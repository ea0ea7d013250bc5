"""`tremula run --passes` and `--dump`: passes of every thread, told even if the script fails."""

import os

import pytest

from tremula.base.passes import DUMP_VARIABLE
from tremula.commands import main

SCRIPT = """
import sys
from threading import Thread
from tremula.base.passes import run_passes

def compile(stage):
    run_passes(stage, [("double", lambda n: 2 * n), ("add one", lambda n: n + 1)], 20, str)

compile("here")
thread = Thread(target=compile, args=["there"])
thread.start()
thread.join()
sys.exit(int(sys.argv[1]))
"""


@pytest.fixture
def script(tmp_path):
    path = tmp_path / "script.py"
    path.write_text(SCRIPT)
    return str(path)


@pytest.mark.parametrize("exit_code", [0, 3])
def test_passes_are_printed_after_the_script(script, exit_code, capsys):
    """One row for each pass of each thread, and a total, also if the script ends with an error."""
    with pytest.raises(SystemExit, match=str(exit_code)):
        main(["run", "--passes", script, str(exit_code)])
    rows = [line.split()[:2] for line in capsys.readouterr().err.splitlines()]
    assert rows[0] == ["stage", "pass"]
    assert [row[0] for row in rows[1:-1]] == ["here", "here", "there", "there"]
    assert rows[-1] == ["all", "passes"]


def test_nothing_compiled_is_told(tmp_path, capsys):
    """A script without passes gets a line that says so."""
    path = tmp_path / "script.py"
    path.write_text("print('hello')\n")
    assert main(["run", "--passes", str(path)]) == 0
    assert "no passes ran" in capsys.readouterr().err


def test_dumps_hold_what_every_pass_left(script, tmp_path, monkeypatch):
    """--dump writes a text for each pass, and leaves the environment as it was."""
    monkeypatch.delenv(DUMP_VARIABLE, raising=False)
    folder = tmp_path / "dump"
    with pytest.raises(SystemExit):
        main(["run", "--dump", str(folder), script, "0"])
    assert sorted(path.name for path in folder.glob("*.txt")) == [
        "001-here-double.txt", "002-here-add-one.txt",
        "003-there-double.txt", "004-there-add-one.txt",
    ]  # fmt: skip
    assert (folder / "002-here-add-one.txt").read_text() == "41\n"
    assert DUMP_VARIABLE not in os.environ
