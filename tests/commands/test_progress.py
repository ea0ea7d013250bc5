"""Long work shows how far it has come, as suits a terminal and a log; `--quiet` silences it."""

import asyncio
import io
import os
import re
import time
from contextlib import nullcontext

import pytest

from tremula.base import progress_line
from tremula.base.errors import PoplarError
from tremula.base.progress_line import QUIET, ProgressLine
from tremula.commands import main
from tremula.commands.garden.load_test import _timed
from tremula.commands.progress import progress, quiet, with_progress
from tremula.ir.run.progress import ProgressBar


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture(autouse=True)
def at_once(monkeypatch):
    """Lines come within milliseconds, and the variable of `--quiet` is not set."""
    monkeypatch.delenv(QUIET, raising=False)
    for name in ("FIRST_S", "BETWEEN_S", "LOG_S"):
        monkeypatch.setattr(progress_line, name, 0.01)


def _shown(stream, share=0.25, detail="third"):
    line = ProgressLine("sweeping", stream).start()
    line(share, detail)
    deadline = time.monotonic() + 5
    while not stream.getvalue() and line.is_shown and time.monotonic() < deadline:
        time.sleep(0.005)
    line.stop()
    return stream.getvalue()


def test_a_terminal_has_one_line_that_is_cleared():
    """A bar with share, time and detail, rewritten in place; nothing is left of it."""
    shown = _shown(Terminal())
    assert shown.startswith(f"\rsweeping: {'█' * 5}{'░' * 15} 25 % (0:00) third")
    assert "\n" not in shown
    assert re.search(r"\r +\r$", shown)


def test_a_log_has_a_line_every_ten_seconds():
    """Whole lines without a bar, also while nothing new is reported; the time goes on."""
    assert _shown(io.StringIO()).splitlines()[0] == "sweeping: 25 % (0:00) third"
    assert _shown(io.StringIO(), share=None, detail="").splitlines()[0] == "sweeping: (0:00)"
    assert _shown(io.StringIO(), share=7.0).startswith("sweeping: 100 %")


def test_short_work_and_closed_streams_show_nothing(monkeypatch, capsys):
    """What ends before the first line is due leaves no trace; nor does a process without stderr."""
    monkeypatch.setattr(progress_line, "FIRST_S", 60)
    monkeypatch.setattr(progress_line, "LOG_S", 60)
    with progress("reading") as line:
        line(0.5)
    assert capsys.readouterr() == ("", "")
    monkeypatch.setattr("sys.stderr", None)
    with progress("reading") as line:
        line(0.5)


def test_quiet_silences_this_process_and_its_children(monkeypatch):
    """With `--quiet` nothing is shown, and the variable that children read is set meanwhile."""
    with quiet(True):
        assert os.environ[QUIET] == "1"
        assert _shown(Terminal()) == ""
        bar = Terminal()
        with ProgressBar("Graph compilation", True, bar):
            pass
        assert bar.getvalue() == ""
    assert QUIET not in os.environ
    assert _shown(Terminal())


@pytest.mark.parametrize("arguments", [["--quiet", "chips"], ["chips", "--quiet"]])
def test_every_command_takes_it(arguments, monkeypatch, capsys):
    """`--quiet` may stand before the command or behind it."""
    seen = []
    monkeypatch.setattr("tremula.commands.chips.run", lambda _: seen.append(os.environ.get(QUIET)))
    assert main(arguments) == 0
    assert seen == ["1"]
    assert QUIET not in os.environ


def test_the_line_goes_away_for_results(capsys):
    """Results that come while work goes on are printed above the bar, and items arrive in order."""
    stream = Terminal()
    line = ProgressLine("running", stream).start()
    while not stream.getvalue():
        time.sleep(0.005)
    line.print("a result")
    line.stop()
    assert capsys.readouterr().out == "a result\n"
    assert list(with_progress("running", iter("abc"), 3)) == ["a", "b", "c"]


def test_many_short_items_write_to_logs_too(monkeypatch, capsys):
    """Lines come at their intervals however short each item is, and show the time of all."""
    monkeypatch.setattr(progress_line, "LOG_S", 0.1)
    for _ in with_progress("looking", (time.sleep(0.02) for _ in range(20)), 20):
        pass
    lines = capsys.readouterr().err.splitlines()
    assert lines
    assert all(re.fullmatch(r"looking: \d+ % \(0:\d\d\)", line) for line in lines)


def test_compilations_write_to_logs_too(monkeypatch):
    """A long compilation of PopTorch writes lines to a log, as it draws a bar on a terminal."""
    monkeypatch.setattr("tremula.ir.run.progress.LOG_S", 0.0)
    log = io.StringIO()
    with ProgressBar("Graph compilation", True, log) as bar:
        bar.show(40)
    assert "Graph compilation: 40%\n" in log.getvalue()


# Arguments of a command, the function where it spends its time, and the title of its line.
SLOW_COMMANDS = {
    "serve": ("serve x.onnx --port 0", "garden.serve._program", "preparing x.onnx"),
    "report": ("report x", "report._view", "reading"),
    "check": ("check x --budget y", "check.load_budget", "checking"),
    "codelets": ("codelets x.cpp", "codelets._cpp_specs", "compiling"),
    "cache": ("cache check", "cache.cache_contents.damaged_files", "checking"),
    "run": ("run {file}", "onnx.run._outputs", "computing"),
}


@pytest.mark.parametrize("name", SLOW_COMMANDS)
def test_commands_show_their_long_work(name, monkeypatch, capsys, tmp_path):
    """While a command computes, a line says what it does; it ends before an error is printed."""
    arguments, function, title = SLOW_COMMANDS[name]

    def work(*_):
        time.sleep(0.1)
        raise PoplarError("enough")

    (tmp_path / "x.onnx").touch()
    monkeypatch.setattr(f"tremula.commands.{function}", work)
    monkeypatch.setattr("tremula.commands.report.open_report", lambda _: nullcontext())
    model = type("Model", (), {"outputs": ()})
    monkeypatch.setattr("tremula.commands.onnx.run.load_inputs", lambda _: (model, {}, []))
    assert main(arguments.format(file=tmp_path / "x.onnx").split()) == 1
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == f"{title}: (0:00)"
    assert lines[-1] == "error: enough"


def test_a_load_test_shows_the_share_of_its_seconds(monkeypatch):
    """The share rises with the clock while requests go on; results and errors come through."""
    monkeypatch.setattr("tremula.commands.garden.load_test._BETWEEN_S", 0.01)
    shares = []

    async def work(result):
        await asyncio.sleep(0.1)
        return result / 2

    assert asyncio.run(_timed(work(8), 0.1, shares.append)) == 4
    assert len(shares) > 2
    assert shares == sorted(shares)
    with pytest.raises(TypeError):
        asyncio.run(_timed(work("8"), 0.1, shares.append))
