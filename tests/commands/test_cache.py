"""`tremula cache` shows, checks, prunes and clears what is stored, and nothing else."""

import json
import os
import time
from pathlib import Path

import pytest

from tremula.base.storage.cache_contents import KINDS
from tremula.base.storage.cache_dir import cache_dir
from tremula.base.storage.checked_file import write_checked
from tremula.commands import main

KEY = "0123456789abcdef" * 2
FILES = (f"native/a.f-{KEY}.nbc", f"loops/{KEY}.so", f"cpp/{KEY}-counted.so")
OTHERS = ("notes.txt", "native/notes.txt", "data/thesis.txt", "loops/library.so")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A cache folder with files of ours and of the user's, unused for 0, 40 and 80 days."""
    monkeypatch.setenv("TREMULA_CACHE_DIR", str(tmp_path))
    for i, name in enumerate(FILES):
        write_checked(tmp_path / name, b"x" * 1_000_000)
        used = time.time() - 40 * 24 * 3600 * i
        os.utime(tmp_path / name, (used, used))
    for name in OTHERS:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("mine")
    (tmp_path / "data" / "mnist-1.0.npz").write_bytes(b"not a zip file")
    return tmp_path


def _left(folder):
    return {name for name in (*FILES, *OTHERS, "data/mnist-1.0.npz") if (folder / name).exists()}


def test_it_shows_what_there_is(folder, capsys):
    """A line for each kind: files, bytes, when they were used; also as JSON."""
    assert main(["cache"]) == 0
    text = capsys.readouterr().out
    assert text.startswith(f"{folder} (from TREMULA_CACHE_DIR)")
    assert "used 40 days ago" in text
    assert "4 files" in text.splitlines()[-1]
    assert main(["cache", "show", "--json"]) == 0
    kinds = {kind["name"]: kind for kind in json.loads(capsys.readouterr().out)["kinds"]}
    assert kinds["loops"]["files"] == 1
    assert kinds.keys() == {kind.name for kind in KINDS}


def test_it_finds_damaged_files(folder, capsys):
    """`check` names them and fails; `--remove` removes them and nothing else."""
    (folder / FILES[1]).write_bytes(b"cut")
    assert main(["cache", "check"]) == 1
    assert str(folder / FILES[1]) in capsys.readouterr().out
    assert main(["cache", "check", "--remove"]) == 0
    assert _left(folder) == {*FILES, *OTHERS} - {FILES[1]}
    assert main(["cache", "check"]) == 0


def test_it_prunes_what_was_not_used(folder):
    """By age, and by size from the longest unused on."""
    assert main(["cache", "prune", "--days", "60"]) == 0
    assert FILES[2] not in _left(folder)
    assert main(["cache", "prune", "--size", "1.5MB"]) == 0
    assert _left(folder) == {FILES[0], *OTHERS, "data/mnist-1.0.npz"}


def test_it_clears_its_files_only(folder):
    """Without names all that is made again without the network; the user's files stay."""
    assert main(["cache", "clear", "loops"]) == 0
    assert _left(folder) == {FILES[0], FILES[2], *OTHERS, "data/mnist-1.0.npz"}
    assert main(["cache", "clear"]) == 0
    assert _left(folder) == {*OTHERS, "data/mnist-1.0.npz"}
    assert main(["cache", "clear", "data"]) == 0
    assert _left(folder) == {*OTHERS}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["prun"], "did you mean 'prune'"),
        (["clear", "lops"], "did you mean 'loops'"),
        (["clear", "--days", "3"], "belongs to `tremula cache prune`"),
        (["prune", "--size", "big"], "expected a size"),
    ],
)
def test_wrong_arguments(folder, capsys, arguments, message):
    """A misspelt word is answered with the nearest; an option of another action is an error."""
    try:
        code = main(["cache", *arguments])
    except SystemExit as end:
        code = end.code
    assert code != 0
    assert message in capsys.readouterr().err
    assert len(_left(folder)) == 8


def test_the_folder_follows_the_environment(monkeypatch, tmp_path):
    """TREMULA_CACHE_DIR before XDG_CACHE_HOME, which must be absolute, before ~/.cache."""
    monkeypatch.delenv("TREMULA_CACHE_DIR", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    assert cache_dir() == tmp_path / ".cache" / "tremula"
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    assert cache_dir() == tmp_path / ".cache" / "tremula"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache_dir() == tmp_path / "xdg" / "tremula"
    monkeypatch.setenv("TREMULA_CACHE_DIR", "~/own")
    assert cache_dir() == tmp_path / "own"
    monkeypatch.setenv("TREMULA_CACHE_DIR", "here")
    assert cache_dir() == Path.cwd() / "here"
