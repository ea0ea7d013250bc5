"""Runs the quick tests on the Pythons of Debian's releases: python tools/test_matrix.py [RELEASE …]

Each release is unpacked by debootstrap into build/matrix/RELEASE (arm64 and amd64 alike; needs root
and the program debootstrap) and stays for the next run. The tree of the last commit is tested in
a fresh virtual environment there, and the table of docs/versions.md gets a row per release.
`--every 10` runs each tenth test, in one process: minutes instead of a quarter of an hour.
"""

import argparse
import re
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from version_tables import ROOT, SAMPLER, counts_of, write_table

FOLDER = ROOT / "build" / "matrix"
MIRROR = "http://deb.debian.org/debian"
SCRIPTS = "/usr/share/debootstrap/scripts"
PACKAGES = "python3,python3-venv,python3-dev,g++,make,git,ca-certificates"
RELEASES = {"bookworm": "3.11", "trixie": "3.13", "forky": "3.14"}
# The folders that depend on the Python most, and one test file of each front end.
QUICK = (
    "tests/base", "tests/codelets", "tests/hardware", "tests/poplar", "tests/runtime",
    "tests/test_import.py", "tests/test_without_torch.py", "tests/frontends/poptorch/executor",
    "tests/frontends/popxl/test_autodiff.py", "tests/frontends/popart/test_transformer.py",
    "tests/frontends/jax/test_function.py", "tests/frontends/keras/test_equality.py",
)  # fmt: skip
# Of what PyTorch's wheel requires, that which a CPU needs: its CUDA libraries take gigabytes.
TORCH_NEEDS = ("filelock", "typing-extensions", "sympy", "networkx", "jinja2", "fsspec")
SKIPPED_EXTRAS = ("torch", "pyright", "pyscf", "schemathesis", "kubernetes", "ruff")
HEADER = "| Debian | Python | libraries | passed | failed | skipped | s |"


@dataclass(frozen=True)
class Outcome:
    """One row of the table: what ran in one release, and how it ended."""

    release: str
    python: str
    libraries: str
    passed: int
    failed: int
    skipped: int
    seconds: float

    @property
    def row(self) -> str:
        counts = f"{self.passed} | {self.failed} | {self.skipped} | {self.seconds:.0f}"
        return f"| {self.release} | {self.python} | {self.libraries} | {counts} |"


def run(*command: str) -> None:
    subprocess.run(command, check=True)


def inside(root: Path, script: str) -> str:
    """What a shell script prints inside the unpacked release; it may end with any status."""
    command = ["chroot", str(root), "bash", "-c", script]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    return done.stdout + done.stderr


def unpack(release: str) -> Path:
    """The folder of a Debian release, unpacked if it is not there yet."""
    root = FOLDER / release
    if not (root / "usr/bin/python3").exists():
        print(f"{release}: unpacking", flush=True)
        FOLDER.mkdir(parents=True, exist_ok=True)
        # An older debootstrap does not know a newer release by name; its steps are unstable's.
        script = f"{SCRIPTS}/{release if Path(SCRIPTS, release).exists() else 'sid'}"
        options = ("--variant=minbase", f"--include={PACKAGES}")
        run("debootstrap", *options, release, str(root), MIRROR, script)
    for file in ("etc/resolv.conf", "etc/ssl/certs/ca-certificates.crt"):
        if Path("/", file).exists():
            shutil.copy(f"/{file}", root / file)
    for kernel_folder in ("dev", "proc", "sys"):
        if not any((root / kernel_folder).iterdir()):
            run("mount", "--rbind", f"/{kernel_folder}", str(root / kernel_folder))
    return root


def copy_tree(root: Path) -> None:
    """The tree of the last commit as /srv/tremula of the release."""
    shutil.rmtree(root / "srv/tremula", ignore_errors=True)
    (root / "srv/tremula").mkdir(parents=True)
    archive = subprocess.run(
        ["git", "-C", str(ROOT), "archive", "HEAD"], check=True, stdout=subprocess.PIPE
    )
    subprocess.run(["tar", "x", "-C", str(root / "srv/tremula")], input=archive.stdout, check=True)


def requirements() -> list[str]:
    """What the tests need, less PyTorch, which is installed without its CUDA libraries."""
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    dev = re.search(r"^dev = \[(.*?)^\]", text, re.MULTILINE | re.DOTALL)
    assert dev, "pyproject.toml has no extra called dev"
    names = re.findall(r'"([^"]+)"', dev[1])
    return [name for name in names if re.split(r"[\[<>=]", name)[0] not in SKIPPED_EXTRAS]


def install(root: Path) -> None:
    """A virtual environment with the pinned versions; /srv/venv of the release."""
    pip = "/srv/venv/bin/python -m pip install --quiet --constraint constraints.txt"
    needs = " ".join(f"'{name}'" for name in (*requirements(), *TORCH_NEEDS))
    torch = re.search(r"^torch==\S+", (ROOT / "constraints.txt").read_text(), re.MULTILINE)
    assert torch, "constraints.txt pins no PyTorch"
    script = f"""
        set -e; cd /srv/tremula; test -d /srv/venv || python3 -m venv /srv/venv
        {pip} setuptools; {pip} --no-build-isolation --editable .
        {pip} --no-deps {torch[0]}; {pip} {needs}"""
    print(inside(root, script), flush=True)


def test(release: str, root: Path, every: int) -> Outcome:
    began = time.monotonic()
    (root / "srv/every_nth.py").write_text(SAMPLER.format(every=every), encoding="utf-8")
    processes = "auto" if every == 1 else "0"
    text = inside(
        root,
        "cd /srv/tremula; export OMP_NUM_THREADS=1 PYTHONPATH=/srv; "
        "/srv/venv/bin/python -m pytest -q -rf -p no:cacheprovider -p every_nth "
        f"--numprocesses {processes} -m 'not slow and not wide' {' '.join(QUICK)}",
    )
    print("\n".join(text.splitlines()[-30:]), flush=True)
    listed = inside(root, "/srv/venv/bin/python -m pip list --format freeze")
    installed = dict(re.findall(r"^(\w+)==(\S+)", listed, re.MULTILINE))
    libraries = ", ".join(
        f"{name} {installed.get(name, '–')}" for name in ("numpy", "numba", "torch", "jax", "keras")
    )
    return Outcome(
        release,
        inside(root, "python3 --version").split()[-1],
        libraries,
        *counts_of(text),
        time.monotonic() - began,
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("release", nargs="*", help=f"of {', '.join(RELEASES)}; all by default")
    parser.add_argument("--every", type=int, default=1, metavar="N", help="each N-th test only")
    args = parser.parse_args()
    releases = args.release or list(RELEASES)
    if unknown := set(releases) - set(RELEASES):
        parser.error(f"unknown release {min(unknown)!r}, expected one of {list(RELEASES)}")
    if shutil.which("debootstrap") is None:
        sys.exit("make test-matrix needs debootstrap: apt-get install debootstrap, and run as root")
    outcomes = []
    for release in releases:
        root = unpack(release)
        copy_tree(root)
        install(root)
        outcomes.append(test(release, root, args.every))
        write_table("matrix", HEADER, [outcome.row for outcome in outcomes], 1)
    print("\n".join(outcome.row for outcome in outcomes))
    return int(any(outcome.failed or not outcome.passed for outcome in outcomes))


if __name__ == "__main__":
    sys.exit(main())
