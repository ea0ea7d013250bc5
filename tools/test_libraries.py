"""Runs tests of a front end with other versions of its library than the pinned ones.

    python tools/test_libraries.py torch==2.9.1 jax==0.9.2 --every 20

Each version is installed into build/libraries/NAME-VERSION, in front of the environment of
`make test`, and the tests that use the library run: each N-th of them. The table of
docs/versions.md gets a row per version.
"""

import argparse
import os
import subprocess
import sys
import time
from pathlib import Path

from test_matrix import QUICK
from version_tables import ROOT, SAMPLER, counts_of, write_table

FOLDER = ROOT / "build" / "libraries"
HEADER = "| library | version | tests | passed | failed | skipped | s |"
# The tests that use a library; those of NumPy are of everything.
TESTS = {
    "torch": ("tests/frontends/poptorch", "tests/ir"),
    "numpy": QUICK,
    "jax": ("tests/frontends/jax",),
    "keras": ("tests/frontends/keras",),
    "transformers": ("tests/frontends/optimum",),
    "torch_geometric": ("tests/frontends/geometric",),
    "onnx": ("tests/frontends/onnx", "tests/frontends/popart"),
}
# What has to be installed in the same version, or with it.
TOGETHER = {"jax": ("jaxlib",)}


def install(name: str, version: str) -> Path:
    """The folder of a version; without what it requires, which the environment has."""
    folder = FOLDER / f"{name}-{version}"
    if not folder.exists():
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", folder]
        wanted = [f"{part}=={version}" for part in (name, *TOGETHER.get(name, ()))]
        subprocess.run([*pip, *wanted], check=True)
    return folder


def loaded_version(name: str, environment: dict[str, str]) -> str:
    """What the tests will import, or why they cannot."""
    program = f"import {name}; print({name}.__version__)"
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        sys.exit(f"{name} does not load:\n{done.stderr}")
    return done.stdout.split()[-1]


def row(name: str, version: str, every: int) -> tuple[str, bool]:
    """Run the tests of a version; its row of the table, and whether something failed."""
    paths = [str(install(name, version)), str(FOLDER), str(ROOT / "src"), str(ROOT)]
    (FOLDER / "every_nth.py").write_text(SAMPLER.format(every=every), encoding="utf-8")
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(paths),
        "OMP_NUM_THREADS": "1",
        "KERAS_BACKEND": "torch",  # as Tremula chooses it
        "TREMULA_ANY_VERSION": "1",  # a version beyond the range is what one may want to try
    }
    loaded = loaded_version(name, environment)
    began = time.monotonic()
    command = [sys.executable, "-m", "pytest", "-q", "-rf", "-p", "no:cacheprovider"]
    command += ["-p", "every_nth", "-m", "not slow and not wide", *TESTS[name]]
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    print("\n".join(done.stdout.splitlines()[-30:]), flush=True)
    where = ", ".join(path.removeprefix("tests/") for path in TESTS[name])
    tests = "the quick tests" if TESTS[name] is QUICK else f"`{where}`"
    counts = counts_of(done.stdout)
    ended = " | ".join(map(str, counts))
    line = f"| {name} | {loaded} | {tests} | {ended} | {time.monotonic() - began:.0f} |"
    return line, not counts[0] or bool(counts[1])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("library", nargs="+", metavar="NAME==VERSION")
    parser.add_argument("--every", type=int, default=1, metavar="N", help="each N-th test only")
    args = parser.parse_args()
    chosen = [text.partition("==")[::2] for text in args.library]
    for name, version in chosen:
        if name not in TESTS or not version:
            parser.error(f"expected NAME==VERSION with one of {', '.join(TESTS)}, got {name!r}")
    FOLDER.mkdir(parents=True, exist_ok=True)
    outcomes = []
    for name, version in chosen:
        outcomes.append(row(name, version, args.every))
        write_table("libraries", HEADER, [line for line, _ in outcomes], 2)
    print("\n".join(line for line, _ in outcomes))
    return int(any(failed for _, failed in outcomes))


if __name__ == "__main__":
    sys.exit(main())
