"""Installs built wheels alongside other people's packages: nothing is overwritten, and both work.

    python tools/try_names.py dist                   # in a fresh environment; `make dist` does
    python tools/try_names.py dist --borrow PYTHON   # libraries from another environment: faster

The other packages are a made-up `poptorch` and the real `optimum`.
"""

import argparse
import hashlib
import json
import os
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SCRIPT = """
import multiprocessing
import optimum.version
import torch
from optimum.graphcore import IPUConfig
import poptorch
from poptorch.optim import SGD

def of_child(_):
    import poptorch
    return hasattr(poptorch, "trainingModel")

if __name__ == "__main__":
    data = torch.utils.data.TensorDataset(torch.arange(4.0))
    kinds = {"num_workers": 1, "multiprocessing_context": "spawn"}
    loader = torch.utils.data.DataLoader(data, batch_size=2, **kinds)
    assert sum(len(batch[0]) for batch in loader) == 4
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        print(hasattr(poptorch, "trainingModel"), *pool.map(of_child, [0]), optimum.__path__)
"""


def make_dummy(folder: Path) -> Path:
    """A wheel of another project that has the name `poptorch`."""
    wheel = folder / "dummy_poptorch-1.0-py3-none-any.whl"
    info = "dummy_poptorch-1.0.dist-info"
    files = {
        "poptorch/__init__.py": "WHO = 'another project'\n",
        f"{info}/METADATA": "Metadata-Version: 2.1\nName: dummy-poptorch\nVersion: 1.0\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    files[f"{info}/RECORD"] = "".join(f"{name},,\n" for name in (*files, f"{info}/RECORD"))
    with zipfile.ZipFile(wheel, "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    return wheel


class Environment:
    """A virtual environment, and what one does in it."""

    def __init__(self, folder: Path, borrowed: str | None):
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
        self.bin, self._cwd = folder / "bin", folder
        self.packages = Path(self.python("import sysconfig; print(sysconfig.get_path('purelib'))"))
        self._borrows = borrowed is not None
        if borrowed is not None:
            ask = [borrowed, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"]
            libraries = subprocess.run(ask, check=True, capture_output=True, text=True).stdout
            # Behind its own packages, and without the other environment's .pth files.
            (self.packages / "zz_borrowed.pth").write_text(libraries)

    def pip(self, *arguments: str) -> None:
        own = ["--disable-pip-version-check", arguments[0], "--quiet"]
        if arguments[0] == "install":
            own += ["--no-compile"]
            # What the other environment has is not taken for installed here.
            borrowed = ["--no-deps", "--force-reinstall"]
            pinned = ["--constraint", str(ROOT / "constraints.txt")]
            own += borrowed if self._borrows else pinned
        self.run([self.bin / "python", "-m", "pip", *own, *arguments[1:]])

    def python(self, code: str) -> str:
        return self.run([self.bin / "python", "-c", code])

    def run(self, command: list[object], *, fails: bool = False) -> str:
        """What a command prints; its errors, where it is expected to fail."""
        environment = {
            k: v for k, v in os.environ.items() if k not in {"PYTHONPATH", "TREMULA_NAMES"}
        }
        done = subprocess.run(
            list(map(str, command)), cwd=self._cwd, env=environment, capture_output=True,
            text=True, check=False,
        )  # fmt: skip
        if bool(done.returncode) != fails:
            sys.exit(f"{command}: exit code {done.returncode}\n{done.stdout}{done.stderr}")
        return (done.stderr if fails else done.stdout).strip()

    def files(self) -> dict[str, str]:
        """Hashes of all installed files and commands, without bytecode."""
        paths = [
            p for p in (*self.packages.rglob("*"), *self.bin.iterdir())
            if p.is_file() and p.suffix != ".pyc"
        ]  # fmt: skip
        return {str(p): hashlib.sha256(p.read_bytes()).hexdigest() for p in paths}


def changed(before: dict[str, str], after: dict[str, str]) -> list[str]:
    return [path for path, digest in before.items() if after.get(path) != digest]


def expect(what: str, *, got: str, wanted: str) -> None:
    if wanted not in got:
        sys.exit(f"{what}: expected {wanted!r}, got {got!r}")


def try_beside(environment: Environment, wheels: Path) -> int:
    """Tremula, then tremula-names, alongside other packages; how many files were overwritten."""
    script = wheels / "script.py"
    script.write_text(SCRIPT)
    before = environment.files()
    parts = [str(next(wheels.glob(f"tremula_{name}-*.whl"))) for name in ("frontends", "garden")]
    environment.pip("install", f"{next(wheels.glob('tremula-*.whl'))}[torch,optimum]", *parts)
    n_changed = len(changed(before, environment.files()))
    plain = "import poptorch, optimum.version; print(poptorch.WHO)"
    expect("plain Python beside tremula", got=environment.python(plain), wanted="another project")
    output = environment.run([environment.bin / "tremula", "run", script])
    expect("tremula run", got=output, wanted="True True ")
    environment.pip("install", str(next(wheels.glob("tremula_names-*.whl"))))
    n_changed += len(changed(before, environment.files()))
    message = environment.run([environment.bin / "python", "-c", "import poptorch"], fails=True)
    expect(
        "tremula-names beside poptorch", got=message, wanted="the distribution dummy-poptorch 1.0"
    )
    output = environment.run([environment.bin / "tremula", "run", script])
    expect("tremula run beside tremula-names", got=output, wanted="True True ")
    return n_changed


def try_parts(environment: Environment, wheels: Path) -> int:
    """Parts come and go without each other's files; how many files of others were changed."""
    tremula = str(next(wheels.glob("tremula-*.whl")))
    garden = environment.packages / "tremula" / "garden"
    before = environment.files()
    environment.pip("install", "--force-reinstall", "--no-deps", tremula)
    n_changed = len(changed(before, environment.files()))
    environment.pip("uninstall", "--yes", "tremula-garden")
    gone = changed(before, environment.files())
    if garden.exists():
        sys.exit(f"after uninstalling tremula-garden there is {garden}")
    outside = ("/tremula/garden/", "/tremula/validate/", "/tremula_garden-")
    n_changed += sum(not any(folder in path for folder in outside) for path in gone)
    message = environment.run([environment.bin / "tremula", "garden"], fails=True)
    expect("tremula garden without it", got=message, wanted="pip install 'tremula[garden]'")
    return n_changed


def try_alone(environment: Environment, wheels: Path) -> None:
    """With tremula-names, without the other poptorch: plain scripts, commands, the way back."""
    environment.pip("uninstall", "--yes", "dummy-poptorch")
    output = environment.run([environment.bin / "python", wheels / "script.py"])
    expect("plain Python with tremula-names", got=output, wanted="True True ")
    environment.run([environment.bin / "gc-info", "--help"])
    environment.run([environment.bin / "poprun", "--help"])
    environment.pip("uninstall", "--yes", "tremula-names", "tremula-frontends", "tremula")
    if (environment.packages / "tremula").exists():
        sys.exit("after uninstalling, files of tremula are left")
    message = environment.run([environment.bin / "python", "-c", "import poptorch"], fails=True)
    expect("after uninstalling", got=message, wanted="No module named 'poptorch'")


def main() -> int:
    parser = argparse.ArgumentParser(description="Try wheels beside other packages.")
    parser.add_argument("dist", type=Path)
    parser.add_argument("--borrow", metavar="PYTHON", help="libraries of this environment")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        for wheel in args.dist.glob("*.whl"):
            (folder / wheel.name).write_bytes(wheel.read_bytes())
        environment = Environment(folder / "environment", args.borrow)
        environment.pip("install", str(make_dummy(folder)), "optimum")
        n_changed = try_beside(environment, folder) + try_parts(environment, folder)
        try_alone(environment, folder)
    print(json.dumps({"files overwritten": n_changed}))
    return 1 if n_changed else 0


if __name__ == "__main__":
    sys.exit(main())
