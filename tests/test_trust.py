"""What can run code that a file contains: every use in the source, with the reason it is safe."""

import ast
import re
import subprocess
import sys

from tests.sources import ROOT, tree_of

# Calls by file. Bytes from a file or the network reach none of them without the user's word.
USES = {
    "base/processes.py": ({"ctypes.CDLL"}, "the C library of this process"),
    "codelets/cpp/build.py": ({"ctypes.CDLL"}, "libraries we compiled, checked by hash"),
    "codelets/interpret.py": ({"exec"}, "the user's codelet, given as Python"),
    "codelets/kernel/build.py": ({"exec"}, "text we generated, where the cache cannot be written"),
    "codelets/native/stored_code.py": ({"pickle.loads"}, "our cache folder, checked by hash"),
    "codelets/native/thread_pool.py": ({"ctypes.CDLL"}, "the C library of this process"),
    "codelets/vertex.py": ({"eval"}, "annotations of the user's class, given as Python"),
    "column_loops/native.py": ({"ctypes.CDLL"}, "libraries we compiled, checked by hash"),
    "commands/system/script_process.py": ({"exec"}, "the script that the user asks to run"),
    "frontends/poptorch/data/async_data.py": ({"pickle.loads"}, "from a process we started"),
    "frontends/poptorch/data/async_worker.py": ({"pickle.loads"}, "from our parent process"),
    "frontends/poptorch/executor/saving.py": ({"torch.load"}, "by poptorch.load, or with --trust"),
    "ir/host/compiled/functions.py": ({"exec"}, "our cache folder, checked by hash"),
    "ir/host/compiled/kernels.py": (
        {"exec", "ExtensionFileLoader"}, "our cache folder, checked by hash"
    ),
    "ir/host/compiled/requests.py": (
        {"pickle.loads"}, "from our parent process; its answers are JSON"
    ),
    "ir/host/compiled/worker.py": ({"ctypes.CDLL"}, "the GPU's driver, as the system finds it"),
    "poplibs/families.py": ({"exec"}, "text we generated"),
    "runtime/vertex_prints.py": ({"ctypes.CDLL"}, "the C library of this process"),
    "vision/analysis/scripts.py": (
        {"runpy.run_path", "runpy.run_module"}, "the script that the user asks to run"
    ),
}  # fmt: skip
_MODULES = {
    "pickle", "marshal", "cloudpickle", "dill", "shelve", "joblib", "runpy", "imp", "yaml",
}  # fmt: skip
_SUSPECT = re.compile(
    r"\b(?:eval|exec|CDLL|ExtensionFileLoader|torch\.load)\b|" + "|".join(sorted(_MODULES))
)
_NAMES = {"torch.load", "ctypes.CDLL", "torch.jit.load", "ctypes.cdll", "ExtensionFileLoader"}


def _calls(tree):
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            name = ast.unparse(node.func)
            module, _, function = name.partition(".")
            is_reader = module in _MODULES and not re.match(r"dump|Pickl", function)
            if name in {"eval", "exec"} or name in _NAMES or (is_reader and function):
                yield name, node


def test_every_use_is_listed():
    """A new use of `pickle`, `eval` and the like needs a row with a reason; old rows go."""
    package = ROOT / "src" / "tremula"
    uses = {}
    for path in package.rglob("*.py"):
        if not _SUSPECT.search(path.read_text(encoding="utf-8")):
            continue
        names = {name for name, _ in _calls(tree_of(path))}
        if names:
            uses[path.relative_to(package).as_posix()] = names
    assert uses == {file: names for file, (names, _) in USES.items()}


def test_arrays_are_read_without_pickle():
    """No `np.load` allows objects, which would be unpickled."""
    for path in (ROOT / "src").rglob("*.py"):
        assert "allow_pickle=True" not in path.read_text(encoding="utf-8"), path


def test_a_model_is_unpickled_with_consent_only():
    """Only `poptorch.load` unpickles a model; `tremula serve` does with `--trust`."""
    tree = tree_of(ROOT / "src/tremula/frontends/poptorch/executor/saving.py")
    unsafe = [node for name, node in _calls(tree) if "weights_only=False" in ast.unparse(node)]
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    owners = {f.name for f in functions for node in ast.walk(f) if node in unsafe}
    assert owners == {"load"}
    text = (ROOT / "src/tremula/serving/sources.py").read_text(encoding="utf-8")
    assert "--trust" in text


def test_pinned_versions_have_hashes():
    """Each lock lists every version of its constraints, with hashes."""
    done = subprocess.run(
        [sys.executable, "tools/lock.py", "--check"], cwd=ROOT, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
    for lock in ("constraints.lock", "constraints-cuda.lock"):
        entries = (ROOT / lock).read_text(encoding="utf-8").split("\n")
        pinned = [i for i, line in enumerate(entries) if "==" in line and line[0] != "#"]
        assert pinned
        assert all(entries[i + 1].startswith("    --hash=sha256:") for i in pinned)
