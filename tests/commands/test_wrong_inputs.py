"""Whatever a user or a file does wrong ends in a message and an exit code, never in a traceback."""

import errno
import json
import signal
import socket
from unittest.mock import Mock

import pytest

from tremula.commands import COMMANDS, demo, main, tile_demo, view
from tremula.vision.page_data.fetch import PageData

READERS = (
    "report {}",
    "report {} memory --json",
    "compare {} report",
    "compare report {}",
    "check {} --budget limits.toml",
    "check report --budget {}",
    "view {} --export out.html",
    "export {} --format chrome -o out.json",
    "history {}",
    "whatif {} --sweep clock=1e9",
    "whatif report --chip {}",
    "chips {}.toml",
    "codelets {}.py",
    "run {}.py",
    "launch --nproc 2 {}.py",
    "validate --against {}",
    "fit {}",
    "fit --from {}.toml rows.csv",
)
FILES = ("none", "folder", "text", "binary", "empty", "cut.pop", "text/below", "short.csv")


@pytest.mark.parametrize("line", READERS)
def test_wrong_files(tremula, line):
    """A missing file, a folder, another kind of file, a cut one: exit code 1, and a reason."""
    for name in FILES:
        done = tremula(line.format(name))
        assert done.code == 1, (line, name, done)
        assert done.err.startswith("error: "), (line, name, done)
        assert "\n  try: " in done.err, (line, name, done)
        assert "Traceback" not in done.err + done.out


WRITERS = (
    "view report --export {}",
    "export report -o {}",
    "history . --html {}",
    "whatif report --sweep clock=1e9 --png {}",
    "whatif report --sweep clock=1e9 --html {}",
    "validate --sample 1 --json {}",
    "bench core --json {}",
    "run --report {}/below fine.py",
    "run --dump {}/below fine.py",
    "demo --report {}/below",
    "demo --tiles --report {}/below",
)


@pytest.mark.parametrize("line", WRITERS)
@pytest.mark.parametrize("place", ["text/below", "/proc/none/below"])
def test_places_that_cannot_be_written(tremula, line, place):
    """They are refused before any work begins."""
    done = tremula(line.format(place))
    assert done.code in (1, 2), done
    assert "error: " in done.err
    assert not done.out


def test_no_permission(tremula, monkeypatch):
    """A file that may not be written is refused, too."""
    monkeypatch.setattr("os.access", lambda *_: False)
    for line in ("view report --export out.html", "run --report out fine.py"):
        done = tremula(line)
        assert done.code == 2
        assert "you may not write" in done.err


NUMBERS = {
    "demo --epochs {}": ("0", "-1", "x", "1.5", ""),
    "demo --tiles --size {}": ("0", "-3", "big", "7"),
    "demo --tiles --steps {}": ("0", "-3", "1e3"),
    "report report --limit {}": ("-3", "x"),
    "report report memory --tile {}": ("-1", "x", "99", "9" * 30),
    "compare report report --limit {}": ("-3", "x"),
    "view report --port {}": ("-1", "65536", "x"),
    "launch --nproc {} fine.py": ("0", "-2", "1025", "x"),
    "validate --sample {}": ("0", "-5", "x"),
    "whatif report --sweep clock={}": ("0", "-1", "x", "nan", "inf", "", "9" * 30),
    "whatif report --sweep sram={}": ("0", "-1", "1000", "9" * 30),
    "whatif report --sweep tiles={}": ("0", "7", "1.5"),
}


@pytest.mark.parametrize("line", NUMBERS)
def test_wrong_numbers(tremula, line):
    """Zero, negative, too large, not a number: refused, with what was expected."""
    for number in NUMBERS[line]:
        done = tremula([word.format(number) for word in line.split()])
        assert done.code in (1, 2), (number, done)
        assert "error: " in done.err, (number, done)
        assert any(word in done.err for word in ("expected", "must be", "use 0 to", "needs")) or (
            "tiles" in line
        ), done.err


NAMES = {
    "versoin": "did you mean 'version'?",
    "demo --chip bwo": "there is no chip 'bwo'; did you mean 'bow'?",
    "demo --tiles --chip gc3": "did you mean 'gc2'",
    "chips bwo": "no chip or system 'bwo'.\n  try: did you mean 'bow'",
    "report report sumary": "there is no view 'sumary'; did you mean 'summary'",
    "bench vison": "there is no bench suite 'vison'.\n  try: did you mean 'vision'?",
    "bench vision --only fuz": "has no measurement 'fuz'.\n  try: did you mean 'fuzz'?",
    "validate --family gathr": "did you mean 'gather'?",
    "whatif report --sweep clok=1": "did you mean 'clock'",
    "whatif report --sweep clock": "cannot read the sweep 'clock'",
    "whatif report": "nothing to vary",
    "whatif report --chip strange.toml": "clock_hz of 'strange' is -1.0 Hz, expected more",
    "check report --budget words.toml": "must be a number, got 'many'",
    "check report --budget wrong.toml": "is not TOML",
    "codelets empty.cpp": "does not compile",
    "codelets fine.py": "no codelet found in fine.py",
    "report": "the following arguments are required: report",
    "compare report": "the following arguments are required: after",
    "report report --bogus": "unrecognized arguments: --bogus",
    "--bogus": "unrecognized arguments: --bogus",
}


@pytest.mark.slow
@pytest.mark.parametrize("line", NAMES)
def test_wrong_names(tremula, line):
    """An unknown name is answered with the nearest; a missing one is named."""
    done = tremula(line)
    assert done.code in (1, 2)
    assert NAMES[line] in done.err


def test_a_wrong_chip_does_not_train_first(tremula, monkeypatch):
    """`demo --chip bogus` fails before any data is loaded."""
    monkeypatch.setattr(demo, "_data", lambda _: pytest.fail("data was loaded"))
    assert "there is no chip 'bogus'" in tremula("demo --chip bogus").err


def test_plates_of_impossible_sizes(tremula):
    """The tile demo says how large its grid can be, before it builds anything."""
    for size in (7, 91, 10**5, 10**30):
        done = tremula(f"demo --tiles --size {size}")
        assert (done.code, done.out) == (1, "")
        assert done.err == (
            f"error: --size {size:,} does not suit the 32 x 46 tiles of a Bow: each needs 2 x 2 "
            f"points, and all points need memory twice.\n  try: --size 92 to 10833\n"
        )


def test_a_port_in_use(tremula):
    """`view --port` says that another program has the port."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        done = tremula(f"view report --no-browser --port {port}")
    assert done.code == 1
    assert f"cannot listen on port {port}: Address already in use." in done.err
    assert "try: give another --port" in done.err


def test_a_full_disk(tremula):
    """A file that does not fit on the disk is told as the system tells it."""
    for line in (
        "view report --export /dev/full",
        "whatif report --sweep clock=1e9 --png /dev/full",
    ):
        done = tremula(line)
        assert done.code == 1
        assert "No space left on device" in done.err


def test_a_disk_that_fails_while_a_report_is_written(tremula, monkeypatch):
    """Errors of the system name the file, and nothing of ours."""
    error = OSError(errno.EIO, "Input/output error", "/somewhere/file")
    monkeypatch.setattr(PageData, "names", Mock(side_effect=error))
    done = tremula("view report --export out.html")
    assert (done.code, done.err) == (1, "error: '/somewhere/file': Input/output error.\n")


def test_too_little_memory(tremula, monkeypatch):
    """When the host's memory is full, that is what is said."""
    monkeypatch.setattr(tile_demo, "run", Mock(side_effect=MemoryError))
    done = tremula("demo --tiles")
    assert (done.code, done.err.splitlines()[0]) == (1, "error: this computer's memory is full.")


def test_our_own_bugs_keep_their_traceback(files, monkeypatch):
    """What is neither a user's nor a file's fault is not hidden."""
    monkeypatch.chdir(files)
    monkeypatch.setattr(view.PageData, "of_files", Mock(side_effect=IndexError("a bug")))
    with pytest.raises(IndexError, match="a bug"):
        main(["view", "report"])


@pytest.mark.parametrize("columns", ["1", "20"])
def test_narrow_terminals(tremula, monkeypatch, columns):
    """Help, usage and tables appear at any width."""
    monkeypatch.setenv("COLUMNS", columns)
    for command in COMMANDS:
        assert tremula(f"{command.name} --help").code == 0
        assert tremula(f"{command.name} --bogus").code == 2
    assert tremula("report report summary").code == 0


# -- a user's own script ---------------------------------------------------------------------------


def test_only_the_users_frames(tremula):
    """An error in a script shows the script's lines: not ours, not Python's that ran it."""
    done = tremula("run raises.py")
    assert done.code == 1
    assert done.err.splitlines()[0] == "Traceback (most recent call last):"
    assert done.err.splitlines()[-1] == "ZeroDivisionError: division by zero"
    assert done.err.count("  File ") == 2
    assert "tremula" not in done.err
    assert "runpy" not in done.err


def test_frames_below_the_users_last(tremula, files):
    """What a library does inside is left out and said to be; --traceback shows it all."""
    (files / "inside.py").write_text(
        "import json\n\n\ndef load():\n    return json.loads('[1')\n\n\ntry:\n    load()\n"
        "except ValueError as error:\n    raise RuntimeError('no list') from error\n"
    )
    done = tremula("run inside.py")
    assert done.code == 1
    assert "decoder.py" not in done.err
    assert "in load" in done.err
    assert "direct cause" in done.err
    assert done.err.splitlines()[-2:] == [
        "RuntimeError: no list",
        "(frames of libraries are left out; --traceback shows them)",
    ]
    whole = tremula("run --traceback inside.py").err
    assert "decoder.py" in whole
    assert "runpy" in whole


def test_our_errors_name_the_users_line(tremula, files):
    """An error of Tremula's that knows no line gets the script's."""
    (files / "refused.py").write_text("import tremula as tr\n\ntr.chip('bwo')\n")
    done = tremula("run refused.py")
    assert done.code == 1
    assert "  at refused.py:3\n" in done.err.replace(f"{files}/", "")
    assert "Traceback" not in done.err


def test_a_script_that_is_no_python(tremula):
    """A syntax error is shown at its line, without the frames that found it."""
    for line in ("run syntax.py", "whatif syntax.py", "codelets syntax.py"):
        done = tremula(line)
        assert done.code == 1, line
        assert "syntax.py" in done.err
        assert done.err.splitlines()[-1] == "SyntaxError: invalid syntax"
        assert "runpy" not in done.err


def test_an_interrupt_in_a_destructor_is_not_lost(tremula, files):
    """Python ignores a Ctrl-C that arrives in one; the command ends all the same."""
    (files / "ignores.py").write_text(
        "import time\n\n\nclass Thing:\n    def __del__(self):\n        raise KeyboardInterrupt\n"
        "\n\nThing()\ntime.sleep(60)\n"
    )
    # What a job in the background inherits is to ignore Ctrl-C.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        done = tremula("run ignores.py")
    finally:
        signal.signal(signal.SIGINT, before)
    assert (done.code, done.err) == (130, "\ninterrupted\n")


def test_exit_codes_of_scripts(tremula, files):
    """A script's own exit code arrives."""
    (files / "leaves.py").write_text("import sys\nsys.exit(7)\n")
    assert tremula("run leaves.py").code == 7


# -- reports of the tile demo ----------------------------------------------------------------------


def test_the_tile_demo_writes_a_report(tremula, tmp_path):
    """`demo --tiles --report DIR` leaves one there, of as many steps as were asked for."""
    done = tremula(f"demo --tiles --chip gc2 --size 76 --steps 3 --report {tmp_path / 'out'}")
    assert done.code == 0
    assert f"The report is in {tmp_path / 'out' / 'profile.pop'}" in done.out
    shown = tremula(f"report {tmp_path / 'out'} steps --json").out
    assert [row["executed"] for row in json.loads(shown)] == [1, 1, 1]
