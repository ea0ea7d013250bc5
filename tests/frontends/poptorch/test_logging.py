"""PopTorch's log: levels, the form of a line, repeated messages."""

import logging
import re
import subprocess
import sys

import pytest

import poptorch
from poptorch import _logging
from tremula.frontends.poptorch.logging import LEVELS, RepeatFilter, set_max_repeats

LOGGER = logging.getLogger("poptorch::python")


def test_levels_by_name():
    """Every public level, and the inner ones, can be set by name."""
    for name in ("TRACE", "DEBUG", "INFO", "WARN", "ERR", "OFF", "TRACE_ALL", "DEBUG_IR"):
        poptorch.setLogLevel(name)
        assert LOGGER.level == LEVELS[name]
    order = [LEVELS[name] for name in ("TRACE", "DEBUG", "INFO", "WARN", "ERR", "OFF")]
    assert order == sorted(order)


@pytest.mark.parametrize(
    ("number", "name"),
    [(0, "TRACE"), (1, "DEBUG"), (2, "INFO"), (3, "WARN"), (4, "ERR"), (6, "OFF")],
)
def test_levels_by_number(number, name):
    """The numbers of old scripts mean the same levels."""
    poptorch.setLogLevel(number)
    assert LOGGER.level == LEVELS[name]


def test_wrong_levels():
    """Unknown levels are rejected with the list of known ones."""
    with pytest.raises(ValueError, match="Invalid log level integer"):
        poptorch.setLogLevel(5)
    text = "Unknown log level: wibble. Valid values are DEBUG, ERR, INFO, OFF, TRACE and WARN"
    with pytest.raises(ValueError, match=re.escape(text)):
        poptorch.setLogLevel("wibble")


@pytest.mark.parametrize("level", [0, "FOO"])
def test_wrong_levels_of_the_compiler(level):
    """The compiler's log takes names only."""
    with pytest.raises(ValueError, match="Level must be one of"):
        _logging.setPopartLogLevel(level)
    _logging.setPopartLogLevel("WARN")


def test_form_of_a_line(capsys):
    """A line has the time, the logger, the level in small letters and the message, on stderr."""
    poptorch.setLogLevel("INFO")
    LOGGER.warning("one %d", 2)
    LOGGER.debug("not shown")
    shown = capsys.readouterr().err
    assert re.fullmatch(
        r"\[\d\d:\d\d:\d\d\.\d{3}\] \[poptorch::python\] \[warning\] one 2\n", shown
    )


def test_repeated_messages(capsys):
    """A repeated message is shown a few times; the last one says so."""
    set_max_repeats(2)
    for _ in range(5):
        LOGGER.error("again")
    LOGGER.error("other")
    lines = [line.split("] ")[-1] for line in capsys.readouterr().err.splitlines()]
    assert lines == ["again", "again (not shown again)", "other"]


def test_the_filter_counts_levels_apart():
    """A warning and an error of the same text are two messages."""
    counted = RepeatFilter(1)
    records = [
        logging.LogRecord("n", level, "f", 1, "text", (), None) for level in (30, 40, 30, 40)
    ]
    assert [counted.filter(record) for record in records] == [True, True, False, False]


def test_level_from_the_environment():
    """POPTORCH_LOG_LEVEL sets the level of a fresh process, WARN is the default."""
    code = "import logging, poptorch; poptorch.setLogLevel; "
    code += "print(logging.getLogger('poptorch::python').level)"
    for environ, level in (({"POPTORCH_LOG_LEVEL": "ERR"}, 40), ({}, 30)):
        done = subprocess.run(
            [sys.executable, "-c", code],
            env={"PYTHONPATH": ":".join(sys.path), **environ},
            capture_output=True,
            text=True,
            check=True,
        )
        assert int(done.stdout) == level
