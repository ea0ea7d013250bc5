"""Every format that the fuzzer damages: its good file is read, and damage is a clear error."""

import pytest

from tools.fuzz.case import PASSED, examine
from tools.fuzz.files.check import MutatedFiles
from tools.fuzz.files.formats import FORMATS, good_file
from tools.fuzz.files.mutations import mutated

# What once raised something else than an error of ours.
ESCAPES = [
    ("records", ["set", 32, 0]), ("records", ["set", 20, 0]), ("graphs", ["cut", 900]),
    ("graphs", ["blank", 700, 64]), ("options", ["set", 60, 255]), ("gpt", ["set", 60, 255]),
    ("gpt", ["word", 5, '"x"']), ("budget", ["word", 1, "1" * 400]),
    ("chip", ["word", 40, "1" * 400]),
    ("poptorch", ["blank", 64, 512]), ("poptorch executable", ["blank", 64, 512]),
    ("poptorch executable", ["set", 40, 9]), ("state", ["blank", 4096, 4096]),
]  # fmt: skip


@pytest.fixture(scope="module")
def kind():
    return MutatedFiles()


@pytest.mark.slow
@pytest.mark.parametrize("name", FORMATS)
def test_good_files_are_read(name, tmp_path):
    """A file without damage is read without an error, so that mutations reach what is behind it."""
    path = tmp_path / f"good{FORMATS[name].suffix}"
    path.write_bytes(good_file(name))
    FORMATS[name].read(path)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "mutation"), ESCAPES)
def test_damage_is_an_error_of_ours(kind, name, mutation):
    """Damage raises one of the format's errors, or is harmless."""
    outcome = examine(kind, {"format": name, "mutations": [mutation]})
    assert outcome.status == PASSED, outcome.detail


@pytest.mark.parametrize(
    ("mutation", "expected"),
    [
        (["set", 1, 88], b"aXc 1\nx = 2\n"), (["cut", 2], b"ab"), (["drop", 3, 2], b"abc\nx = 2\n"),
        (["repeat", 0, 1], b"aabc 1\nx = 2\n"), (["insert", 1, "2121"], b"a!!bc 1\nx = 2\n"),
        (["blank", 0, 2], b"\0\0c 1\nx = 2\n"), (["move", 0, 4, 1], b"abc a\nx = 2\n"),
        (["line", 0, "drop"], b"x = 2\n"), (["line", 1, "swap"], b"x = 2\nabc 1\n"),
        (["word", 1, "inf"], b"abc inf\nx = 2\n"), (["word", 7, "[]"], b"abc 1\nx = []\n"),
    ],
)  # fmt: skip
def test_mutations(mutation, expected):
    """Each mutation changes what it says, and places count modulo the length."""
    assert mutated(b"abc 1\nx = 2\n", [mutation]) == expected
    assert mutated(b"", [mutation]) in (b"", b" ")
