"""Optional packages: every extra is known, and a missing package names the extra to install."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tremula.base import requirements
from tremula.base.errors import PoplarError
from tremula.base.requirements import EXTRAS, missing_packages, require, require_for_command

ROOT = Path(__file__).resolve().parent.parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
# An import hook under which the package onnx cannot be found, as where it is not installed.
HIDE_ONNX = """
import sys
class Hide:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == "onnx":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Hide())
import importlib.util
real = importlib.util.find_spec
importlib.util.find_spec = lambda name, *rest: None if name == "onnx" else real(name, *rest)
"""


def run_without_onnx(code: str) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, "-c", HIDE_ONNX + code], capture_output=True, text=True, check=False
    )


def test_the_table_has_every_extra():
    """The table names the extras of the project, and only packages that they install."""
    extras = PROJECT["optional-dependencies"]
    assert set(EXTRAS) == set(extras) - {"dev", "release"}
    for extra, modules in EXTRAS.items():
        distributions = {re.split(r"[<>=\[]", line)[0] for line in extras[extra]}
        assert {name.replace("_", "-") for name in modules} <= {
            name.replace("_", "-") for name in distributions
        }, extra


def test_nothing_is_raised_where_everything_is_installed():
    """With the packages of an extra installed, none is missing."""
    assert missing_packages("torch") == []
    require("PopTorch", "torch")


def test_missing_packages_are_named(monkeypatch):
    """The error names the feature, the packages that are missing, and the command."""
    monkeypatch.setattr(requirements, "find_spec", lambda name: None if name != "torch" else name)
    with pytest.raises(ImportError) as caught:
        require("optimum.graphcore", "optimum")
    assert str(caught.value) == (
        "optimum.graphcore needs transformers and accelerate, which are not installed: "
        "pip install 'tremula[optimum]'"
    )


def test_commands_name_missing_packages(monkeypatch):
    """A command without its packages fails with a hint; with them it goes on."""
    require_for_command("tremula vipu-server", "torch")
    monkeypatch.setattr(requirements, "find_spec", lambda _name: None)
    with pytest.raises(PoplarError, match="`tremula serve` needs httptools") as caught:
        require_for_command("tremula serve", "serve")
    assert caught.value.hint == "pip install 'tremula[serve]'"


@pytest.mark.parametrize(
    ("code", "feature", "extra"),
    [
        ("import popart; popart.Builder", "PopART", "onnx"),
        ("import popxl", "PopXL", "popxl"),
    ],
)
def test_what_needs_onnx_says_so(code, feature, extra):
    """Without onnx, what builds or reads models names the extra to install."""
    done = run_without_onnx(code)
    last = done.stderr.strip().splitlines()[-1]
    assert last == (
        f"ImportError: {feature} needs onnx, which is not installed: pip install 'tremula[{extra}]'"
    )


def test_the_vocabulary_of_popart_needs_no_onnx():
    """Enumerations, options, locations, devices and errors of PopART do; its sessions say so."""
    code = """
import popart
options = popart.SessionOptions()
options.virtualGraphMode = popart.VirtualGraphMode.Manual
options.weightTensorLocationSettings = popart.TensorLocationSettings(popart.TensorStorage.OffChip)
print(options.changed().keys(), popart.DeviceManager().createCpuDevice().type)
print(popart.popart_exception("wrong"), popart.Patterns().isPatternEnabled("SplitOp"))
print([name for name in sys.modules if name == "onnx"])
try:
    popart.TrainingSession
except ImportError as error:
    print(error)
"""
    done = run_without_onnx(code)
    assert done.stdout == (
        "dict_keys(['virtualGraphMode', 'weightTensorLocationSettings']) DeviceType.Cpu\n"
        "wrong True\n[]\n"
        "PopART needs onnx, which is not installed: pip install 'tremula[onnx]'\n"
    ), done.stderr
