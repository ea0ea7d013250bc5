"""The code cache: shared between processes, safe in races, optional."""

import os
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

from tremula.base.types import float32
from tremula.codelets import Input, Output, Vertex, codelet_of

pytestmark = pytest.mark.slow

PROGRAM = """
import sys, time
sys.path[:0] = [{source!r}, {folder!r}]
from cached_case import Doubler
from tremula.codelets import codelet_of
assert "numba" not in sys.modules
codelet = codelet_of(Doubler)
import numba
with numba.core.event.install_recorder("numba:run_pass") as recorder:
    address = codelet.kernel_address()
print(len(recorder.buffer), address != 0)
"""
CASE = """
from tremula.base.types import float32
from tremula.codelets import Input, Output, Vertex

class Doubler(Vertex):
    x: Input[float32]
    out: Output[float32]

    def compute(self):
        self.out = self.x * 2.0
"""


def start(tmp_path: Path) -> subprocess.Popen:
    source = str(Path(__file__).parents[3] / "src")
    (tmp_path / "cached_case.py").write_text(CASE)
    program = PROGRAM.format(source=source, folder=str(tmp_path))
    environment = os.environ | {"TREMULA_CACHE_DIR": str(tmp_path / "cache")}
    return subprocess.Popen(
        [sys.executable, "-c", program], env=environment, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip


def finish(process: subprocess.Popen) -> int:
    """How many passes Numba's compiler ran in the process."""
    out, errors = process.communicate(timeout=200)
    assert process.returncode == 0, errors
    n_events, is_found = out.split()
    assert is_found == "True"
    return int(n_events)


def test_a_second_process_loads_what_the_first_compiled(tmp_path):
    """Two processes may race for one kernel; a third compiles nothing."""
    racing = [start(tmp_path), start(tmp_path)]
    assert max(finish(process) for process in racing) > 0
    assert finish(start(tmp_path)) == 0
    assert not list((tmp_path / "cache").rglob("*.tmp"))


def test_a_damaged_file_is_replaced(tmp_path, monkeypatch):
    """A kernel file that does not hold its text is written again, not run."""
    from tremula.codelets.kernel.build import _written

    monkeypatch.setenv("TREMULA_CACHE_DIR", str(tmp_path))
    path = _written("key", "text = 1\n")
    path.write_text("damaged")
    assert _written("key", "text = 1\n").read_text() == "text = 1\n"


def test_an_unwritable_cache_warns_once_and_compiles(tmp_path, monkeypatch):
    """Without a folder to write, kernels compile in memory, with one warning."""

    class Memory(Vertex):
        x: Input[float32]
        out: Output[float32]

        def compute(self):
            self.out = self.x * 3.0

    blocked = tmp_path / "file"
    blocked.write_text("not a folder")
    monkeypatch.setenv("TREMULA_CACHE_DIR", str(blocked))
    codelet = codelet_of(Memory)
    with pytest.warns(UserWarning, match="cannot be cached .*TREMULA_CACHE_DIR"):
        assert codelet.kernel_address()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert codelet.counted_kernel_address()
    assert blocked.read_text() == "not a folder"


def test_importing_codelets_does_not_import_numba():
    """`import tremula.codelets` stays fast: Numba is loaded on the first compilation."""
    source = str(Path(__file__).parents[3] / "src")
    program = (
        f"import sys; sys.path.insert(0, {source!r}); import tremula.codelets; "
        "from tremula.codelets.python_codelet import PythonCodelet; print('numba' in sys.modules)"
    )
    result = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert result.stdout.strip() == "False"
