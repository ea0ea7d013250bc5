"""The compatibility figures: programs of the structure of public ones, written for this project.

Each program is a test that compares itself with a plain reference (tests/frontends). A figure is
the share of a framework's programs that run unmodified and are right.
"""

import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree as ET

from benchmarks.figures import Figure, Suite
from benchmarks.measure import ratio

ROOT = Path(__file__).parents[2]
SUITE = Suite("compat")

# Framework → the tests that are programs.
PROGRAMS = {
    "popxl": ["tests/frontends/popxl/test_programs.py"],
    "popxl-addons": ["tests/frontends/popxl_addons/test_programs.py"],
    "popart": [
        "tests/frontends/popart/test_programs.py",
        "tests/frontends/popart/test_programs_sessions.py",
        "tests/frontends/popart/test_programs_training.py",
    ],
    "tensorflow": ["tests/frontends/keras/test_programs.py"],
}
# Programs that a framework has at least; 1 where none is listed.
LEAST = {"popart": 12, "tensorflow": 12}


def outcomes(paths: list[str]) -> tuple[int, list[str]]:
    """How many programs there are, and the names of those that fail."""
    with tempfile.TemporaryDirectory() as folder:
        results = Path(folder, "results.xml")
        command = [sys.executable, "-m", "pytest", "-q", "-m", "", f"--junit-xml={results}", *paths]
        subprocess.run(command, cwd=ROOT, stdout=subprocess.DEVNULL, check=False)
        cases = list(ET.parse(results).iter("testcase"))
    failed = [c.get("name", "?") for c in cases if c.find("failure") is not None]
    failed += [c.get("name", "?") for c in cases if c.find("error") is not None]
    return len(cases), failed


def _add(framework: str, paths: list[str]) -> None:
    @SUITE.measurement(framework)
    def measure() -> Iterator[Figure]:
        n, failed = outcomes(paths)
        for name in failed:
            print(f"  fails: {name}", file=sys.stderr)
        yield Figure.of(f"{framework}-programs", n, "programs", f">= {LEAST.get(framework, 1)}")
        share = 100 * (n - len(failed)) / n if n else 0.0
        yield Figure.of(f"{framework}-programs-right", share, "%", "== 100")


for _framework, _paths in PROGRAMS.items():
    _add(_framework, _paths)


@SUITE.measurement("popxl-transformer")
def popxl_transformer() -> Iterator[Figure]:
    """A training step of four layers, PopXL against PopTorch, CPU seconds of steps in turn."""
    from benchmarks.compat.speed import Weights, poptorch_step, popxl_step

    weights = Weights()
    ours, theirs = popxl_step(weights), poptorch_step(weights)
    gaps = [abs(ours() - theirs()) for _ in range(3)]
    yield Figure.of("popxl-transformer-loss", max(gaps), "of three steps", "<= 1e-3")
    measured = ratio(ours, theirs, clock=time.process_time)
    yield Figure.of("popxl-transformer", measured.value, "CPU, × PopTorch", "<= 1.2")


@SUITE.measurement("popxl-sharded")
def popxl_sharded() -> Iterator[Figure]:
    """The second run of a program that shards a weight over two replicas."""
    from benchmarks.compat.speed import second_run_of_sharded_weights

    seconds, error = second_run_of_sharded_weights()
    yield Figure.of("popxl-sharded-second-run", seconds, "s", "<= 3")
    yield Figure.of("popxl-sharded-error", error, "absolute", "<= 1e-5")
