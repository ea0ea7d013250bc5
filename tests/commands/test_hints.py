"""Commands that messages name exist: a hint can be typed as it is."""

import argparse
import ast
import re

import pytest

from tests.sources import ROOT, tree_of
from tremula.commands import COMMANDS, _command_parser, main

_NAMED = re.compile(r"`((?:tremula|vipu|vipu-admin|poprun|gc-\w+)\b[^`]*)`")
_DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def _messages(tree):
    """Texts of a file that are not docstrings."""
    documented = {id(node.body[0].value) for node in ast.walk(tree)
                  if isinstance(node, _DOCUMENTED) and node.body
                  and isinstance(node.body[0], ast.Expr)}  # fmt: skip
    for node in ast.walk(tree):
        is_text = isinstance(node, ast.Constant) and isinstance(node.value, str)
        if is_text and id(node) not in documented:
            yield node.value


def _parsers(parser, words):
    """The parser that reads the first words, as far as they are subcommands."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            known = set(action.choices)
            if not words or not re.fullmatch(r"[a-z-]+", words[0]):
                return
            assert words[0] in known, f"{words[0]!r} is none of {sorted(known)}"
            _parsers(action.choices[words[0]], words[1:])


def test_commands_in_messages_exist():
    """Each begins with `tremula`, which is always installed, and names subcommands that exist."""
    by_name = {command.name: command for command in COMMANDS}
    named = set()
    for folder in ("commands", "poplar", "system", "runtime", "serving"):
        for path in (ROOT / "src" / "tremula" / folder).rglob("*.py"):
            if path.name != "cpp_names.py":
                for text in _messages(tree_of(path)):
                    named |= set(_NAMED.findall(text))
    assert len(named) > 10
    for line in named:
        words = line.split()
        assert words[0] == "tremula", line
        if len(words) > 1 and re.fullmatch(r"[a-z-]+", words[1]):
            command = by_name[words[1]]
            module = __import__(command.module, fromlist=["add_arguments"])
            _parsers(_command_parser(command, module), words[2:])


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("vipu list partitons", "did you mean 'partitions'"),
        ("vipu lst partitions", "did you mean 'list'"),
        ("system inof", "did you mean 'info'"),
        ("garden runn", "did you mean `tremula garden run`"),
        ("garden run mnist_poptorch --tinny", "did you mean '--tiny'"),
        ("vipu-server --hots 1", "did you mean '--host'"),
    ],
)
def test_misspelt_words_are_answered_with_the_nearest(line, expected, capsys):
    """Subcommands, things, actions and options."""
    try:
        code = main(line.split())
    except SystemExit as end:
        code = end.code
    assert code in {1, 2}
    assert expected in capsys.readouterr().err


def test_invented_devices_are_said_to_be(capsys, monkeypatch):
    """Without a partition the tools show a modelled machine, and say so beside the result."""
    for name in ("IPUOF_CONFIG_PATH", "IPUOF_VIPU_API_HOST", "IPUOF_VIPU_API_PARTITION_ID"):
        monkeypatch.delenv(name, raising=False)
    for tool in ("info", "inventory", "monitor"):
        assert main(["system", tool, "--json"]) == 0
        printed = capsys.readouterr()
        assert "invented" in printed.err
        assert "invented" not in printed.out
