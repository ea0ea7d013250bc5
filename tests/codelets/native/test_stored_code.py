"""Stored machine code: used again by other processes, and replaced where it is damaged."""

import numpy as np
import pytest

from tests.sources import ROOT
from tremula.base.storage.cache_contents import damaged_files
from tremula.codelets.native.stored_code import callback, jit
from tremula.column_loops import native


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("TREMULA_CACHE_DIR", str(tmp_path))
    return tmp_path / "native"


def _triple(x):
    return 3 * x


def _sum_into(column, total):
    """A loop that the C compiler gets."""
    total[0] = 0
    for i in range(len(column)):
        total[0] += column[i]


def _damaged(content):
    """The content, cut at several places, with bits that flipped, and something else."""
    yield from (content[:n] for n in (0, 1, len(content) // 2, len(content) - 1))
    for at in (0, len(content) // 2, len(content) - 50):
        yield content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :]
    yield b"not machine code"


def test_another_dispatcher_loads_what_the_first_compiled(folder):
    """What was compiled for the same types is loaded, not compiled."""
    first, second = jit()(_triple), jit()(_triple)
    assert first(5) == 15
    (file,) = folder.iterdir()
    written = file.stat().st_mtime_ns
    assert second(5) == 15
    assert sum(second.stats.cache_hits.values()) == 1
    assert file.stat().st_mtime_ns == written
    assert second(5.0) == 15.0  # other types are another file
    assert len(list(folder.iterdir())) == 2


def test_damaged_machine_code_is_replaced(folder):
    """However a file is damaged, the function works, and the file is whole afterwards."""
    assert callback("int64(int64)")(_triple).ctypes(5) == 15
    (file,) = folder.iterdir()
    whole = file.read_bytes()
    for content in _damaged(whole):
        file.write_bytes(content)
        assert [damaged.path for damaged in damaged_files()] == [file]
        assert callback("int64(int64)")(_triple).ctypes(5) == 15
        assert not list(damaged_files())


def test_a_damaged_library_is_replaced(folder):
    """Libraries that a C compiler made: a cut one would end the process that loads it."""
    column, total = np.arange(10), np.zeros(1, np.int64)
    kinds = [native.kind_of(column), native.kind_of(total)]
    if native.compiled(_sum_into, kinds) is None:
        pytest.skip("needs a C compiler")
    (file,) = (folder.parent / "loops").iterdir()
    file.unlink()  # it is loaded: a new file, not this one, is damaged
    file.write_bytes(b"\x7fELF cut short")
    run = native.compiled(_sum_into, kinds)
    run(column, total)
    assert total[0] == 45
    assert not list(damaged_files())


def test_a_folder_that_cannot_be_written(tmp_path, monkeypatch):
    """Code is compiled for this process only, with a warning."""
    blocked = tmp_path / "file"
    blocked.write_text("")
    monkeypatch.setenv("TREMULA_CACHE_DIR", str(blocked))
    with pytest.warns(UserWarning, match="TREMULA_CACHE_DIR"):
        assert jit()(_triple)(1) == 3


def test_all_stored_code_goes_through_this_store():
    """No file has Numba store code itself: it would not heal, and be outside the cache folder."""
    texts = {path: path.read_text(encoding="utf-8") for path in (ROOT / "src").rglob("*.py")}
    assert not [path for path, text in texts.items() if "cache=True" in text and "numba" in text]
