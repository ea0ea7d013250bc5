"""Tests in several processes: counted from their logs, also where a run is cut off."""

import time
from pathlib import Path

import pytest

from tests.variables import ROOT
from tools import gpu_tests

TESTS = """
import time
import pytest

@pytest.mark.parametrize("name", ["one", "two words", "a PASSED b"])
def test_fine(name): pass

def test_wrong(): assert 1 == 2

@pytest.mark.skip
def test_skipped(): pass

def test_long(): time.sleep(600)
"""


def test_a_run_that_is_cut_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    """Results of tests that have ended count, failures are shown, the others are listed."""
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_some.py").write_text(TESTS)
    (tmp_path / "pyproject.toml").write_text("[tool.pytest.ini_options]\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(ROOT / "src"))
    monkeypatch.setattr(gpu_tests, "_GRACE_S", 60.0)  # however busy this computer is
    (tmp_path / "tests" / "test_broken.py").write_text("import a_package_that_is_missing\n")
    files = ["tests/test_broken.py", "tests/test_some.py"]
    names, broken = gpu_tests.collected(files, "")
    assert len(names) == 6
    assert broken == ["tests/test_broken.py"], "the others run all the same"
    shards = [gpu_tests.start(names[i::2], i, tmp_path) for i in range(2)]
    deadline = time.monotonic() + 60
    while sum(len(gpu_tests.results_of(shard.log.read_text())) for shard in shards) < 5:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    gpu_tests.run(shards, 0)
    assert gpu_tests.report(names, shards, tmp_path) == 2
    lines = capsys.readouterr().out
    assert "1 failed, 3 passed, 1 skipped\n1 of 6 have not ended\n" in lines
    assert "  FAILED tests/test_some.py::test_wrong\n" in lines
    assert "  not ended tests/test_some.py::test_long\n" in lines
    assert "assert 1 == 2" in lines


def test_files_that_need_a_gpu():
    """Those that ask for a GPU or for Triton, and no others."""
    files = gpu_tests.test_files(ROOT)
    assert "tests/ir/host/graph_kernels/test_graph_kernels.py" in files
    assert "tests/ir/host/graph_kernels/test_offline.py" in files
    assert "tests/test_style.py" not in files
