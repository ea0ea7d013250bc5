"""The `tremula` command finds its subcommands and prints errors for people."""

import subprocess
import sys
from importlib import import_module

import pytest

from tremula.base.version import VERSION
from tremula.commands import COMMANDS, _command_parser, _parsed, main


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.name)
def test_every_command_has_its_module(command):
    """Each row of the table names a module with add_arguments and run."""
    module = import_module(command.module)
    assert callable(module.add_arguments)
    assert callable(module.run)


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.name)
def test_examples_are_accepted(command):
    """What `tremula` shows for each command can be typed: its arguments are understood."""
    module = import_module(command.module)
    _parsed(_command_parser(command, module), command.example.split())


def test_without_arguments_it_lists_the_commands(capsys):
    """`tremula` alone prints its help, which names every command."""
    assert main([]) == 0
    text = capsys.readouterr().out
    assert all(command.help in text for command in COMMANDS)


def test_an_unknown_command_suggests_the_nearest(capsys):
    """A misspelt command is answered with the nearest one and exit code 2."""
    assert main(["versoin"]) == 2
    assert capsys.readouterr().err == (
        "error: no command 'versoin'\n  try: did you mean 'version'?\n"
    )


def test_version(capsys):
    """`tremula version` names Tremula, Python, NumPy and Numba."""
    assert main(["version"]) == 0
    words = capsys.readouterr().out.split()
    assert {"tremula", "python", "numpy", "numba"} <= set(words)


def test_version_as_an_option(capsys):
    """`tremula --version` is one line."""
    with pytest.raises(SystemExit, match="0"):
        main(["--version"])
    assert capsys.readouterr().out == f"tremula {VERSION}\n"


def test_run_runs_a_script_as_main(tmp_path, capsys):
    """`tremula run` gives a script its name, its arguments and its folder, and takes them back."""
    (tmp_path / "neighbour.py").write_text("WORD = 'found'\n")
    script = tmp_path / "script.py"
    script.write_text(
        "import sys\nimport neighbour\n"
        "if __name__ == '__main__':\n    print(sys.argv[1:], neighbour.WORD)\n"
    )
    argv, path = sys.argv, list(sys.path)
    try:
        assert main(["run", str(script), "--size", "3"]) == 0
    finally:
        sys.modules.pop("neighbour", None)
    assert capsys.readouterr().out == "['--size', '3'] found\n"
    assert sys.argv is argv
    assert sys.path == path


def test_run_runs_a_module_as_main(tmp_path, capsys, monkeypatch):
    """`tremula run -m package.module` finds it from the working folder; a wrong name is said."""
    (tmp_path / "some_package").mkdir()
    (tmp_path / "some_package" / "__init__.py").touch()
    (tmp_path / "some_package" / "inner.py").write_text(
        "import sys\nif __name__ == '__main__':\n    print(__spec__.name, sys.argv[1:])\n"
    )
    monkeypatch.chdir(tmp_path)
    try:
        assert main(["run", "-m", "some_package.inner", "--size", "3"]) == 0
        assert capsys.readouterr().out == "some_package.inner ['--size', '3']\n"
        assert main(["run", "-m", "some_package.outer"]) == 1
        assert "there is no module 'some_package.outer'" in capsys.readouterr().err
    finally:
        sys.modules.pop("some_package", None)


def test_an_error_is_printed_without_a_traceback(capsys):
    """A PoplarError becomes `error: …` with its advice on stderr, and exit code 1."""
    assert main(["run", "no-such-script.py"]) == 1
    assert capsys.readouterr().err == (
        "error: there is no file 'no-such-script.py'.\n"
        "  try: give the path of a Python or ONNX file\n"
    )


@pytest.mark.parametrize("arguments", [["--traceback", "run"], ["run", "--traceback"]])
def test_a_traceback_on_demand(arguments, capsys):
    """--traceback, before or after the command, shows where the error was raised."""
    assert main([*arguments, "no-such-script.py"]) == 1
    text = capsys.readouterr().err
    assert text.startswith("Traceback")
    assert "there is no file 'no-such-script.py'" in text


def test_python_dash_m():
    """`python -m tremula.commands` is the command, and its exit code arrives."""
    done = subprocess.run(
        [sys.executable, "-m", "tremula.commands", "nothing"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert "no command 'nothing'" in done.stderr
