"""When `make` installs an environment again."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.sources import ROOT

STAMP = ".venv/.core-installed"
EARLIER_STAMP = ".venv/.made"


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """A copy of what an environment depends on, with the stamp of one that is complete."""
    for name in ("Makefile", "pyproject.toml", "constraints.txt"):
        shutil.copyfile(ROOT / name, tmp_path / name)
    ignored = shutil.ignore_patterns("build", "*.egg-info", "__pycache__")
    shutil.copytree(ROOT / "names", tmp_path / "names", ignore=ignored)
    (tmp_path / STAMP).parent.mkdir()
    for stamp in (EARLIER_STAMP, STAMP):
        (tmp_path / stamp).touch()
    return tmp_path


def is_complete(folder: Path) -> bool:
    make = ["make", "--question", "PYTHON=python3", STAMP]
    return subprocess.run(make, cwd=folder, capture_output=True, check=False).returncode == 0


def later(path: Path) -> None:
    """Make a file or folder newer than the stamp."""
    os.utime(path, ns=(2**62, 2**62))


@pytest.mark.parametrize("folder", ["build", "tremula_names.egg-info", "tremula_names/__pycache__"])
def test_what_python_and_pip_write_is_no_change(installed, folder):
    """Folders that importing and installing leave in the sources."""
    assert is_complete(installed)
    (installed / "names" / folder).mkdir()
    later(installed / "names" / folder)
    assert is_complete(installed)


@pytest.mark.parametrize(
    "file", ["pyproject.toml", "constraints.txt", "names/tremula_names/__init__.py"]
)
def test_changed_sources_are_installed(installed, file):
    """Requirements, pinned versions, and what the packages hold."""
    later(installed / file)
    assert not is_complete(installed)
