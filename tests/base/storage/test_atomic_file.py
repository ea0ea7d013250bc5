"""Files that appear whole or not at all."""

import os

import pytest

from tremula.base.storage.atomic_file import atomic_file, atomic_path


def test_a_file_appears_at_the_end(tmp_path):
    """It is there after the block, its folders are made, and it is readable like any new file."""
    path = tmp_path / "deep" / "down" / "file.txt"
    with atomic_file(path, "w", is_durable=True) as file:
        file.write("½")
        assert not path.exists()
    assert path.read_text(encoding="utf-8") == "½"
    (tmp_path / "plain").touch()
    assert path.stat().st_mode == (tmp_path / "plain").stat().st_mode


def write_and_fail(path):
    with atomic_file(path) as file:
        file.write(b"new")
        raise KeyboardInterrupt


def test_an_error_changes_nothing(tmp_path):
    """The old content stays, and no temporary file is left."""
    path = tmp_path / "file"
    path.write_bytes(b"old")
    with pytest.raises(KeyboardInterrupt):
        write_and_fail(path)
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["file"]


def test_the_later_of_two_writers_wins(tmp_path):
    """Writers use separate temporary files; the one that finishes last replaces the file."""
    path = tmp_path / "file"
    with atomic_path(path) as first:
        with atomic_path(path) as second:
            assert first != second
            second.write_bytes(b"second")
        assert path.read_bytes() == b"second"
        first.write_bytes(b"first")
    assert path.read_bytes() == b"first"
    assert os.listdir(tmp_path) == ["file"]
