"""Fingerprints of our code change with any file in a folder, however deep."""

from tremula.base import code_fingerprint as module
from tremula.base.code_fingerprint import code_fingerprint


def test_a_change_deep_in_a_folder_changes_it(tmp_path, monkeypatch):
    """Its text, its name and its place count; other folders do not."""
    monkeypatch.setattr(module, "PACKAGE", tmp_path)
    fresh = code_fingerprint.__wrapped__
    deep = tmp_path / "a" / "b" / "c.py"
    deep.parent.mkdir(parents=True)
    deep.write_text("x = 1")
    first = fresh("a")
    (tmp_path / "other.py").write_text("y = 1")
    assert fresh("a") == first
    deep.write_text("x = 2")
    assert fresh("a") != first
    assert fresh("a/b/c.py") != fresh("other.py")
    renamed = fresh("a")
    deep.rename(deep.with_name("d.py"))
    assert fresh("a") != renamed


def test_our_own_folders_have_one():
    """Those that caches name exist."""
    assert code_fingerprint("base") != code_fingerprint("base", "codelets/native")
