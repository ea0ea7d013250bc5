"""`tremula bench release`, which `make bench-release` runs in an environment that can build."""

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

from benchmarks.figures import Figure, Suite
from tremula.base.errors import PoplarError

SUITE = Suite("release")
ROOT = Path(__file__).resolve().parents[2]
N_STARTS = 5


@SUITE.measurement("start")
def start() -> Iterator[Figure]:
    """Processor time of the first things one types; the fastest of a few runs."""
    python = (sys.executable, "-c", "pass")
    nothing = min(_cpu_seconds(*python) for _ in range(N_STARTS))
    loading = min(_cpu_seconds(*python[:2], "import tremula") for _ in range(N_STARTS))
    help_page = min(_cpu_seconds(sys.executable, "-m", "tremula") for _ in range(N_STARTS))
    yield Figure.of("import-seconds", loading - nothing, "CPU s", "<= 0.25")
    yield Figure.of("help-seconds", help_page, "CPU s", "<= 0.3")


@SUITE.measurement("demo")
def demo() -> Iterator[Figure]:
    """The demonstration with an empty cache, as on a new machine."""
    with tempfile.TemporaryDirectory() as cache:
        command = (sys.executable, "-m", "tremula", "demo")
        seconds = _cpu_seconds(*command, TREMULA_CACHE_DIR=cache)
    yield Figure.of("cold-demo", seconds, "CPU s", "<= 20")


@SUITE.measurement("wheels")
def wheels() -> Iterator[Figure]:
    """All distributions built twice, and installed alongside other people's packages."""
    _require("build", "twine")
    with tempfile.TemporaryDirectory() as folder:
        built = _last_object(_run(sys.executable, "tools/dist.py", folder))
        sizes = {name: size for name, size in built["bytes"].items() if name.endswith(".whl")}
        for name, size in sizes.items():
            limit = 0.1 if name.startswith("tremula_names-") else 3
            yield Figure.of(f"size of {name.split('-')[0]}", size / 1e6, "MB", f"<= {limit}")
        yield Figure.of("builds-identical", float(built["identical"]), "", "== 1")
        tried = _run(sys.executable, "tools/try_names.py", folder, "--borrow", sys.executable)
        n_overwritten = _last_object(tried)["files overwritten"]
    yield Figure.of("files-overwritten", n_overwritten, "", "== 0")


@SUITE.measurement("repository")
def repository() -> Iterator[Figure]:
    """Checks of scientific Python's repo-review that apply and pass."""
    _require("repo_review")
    done = _run(sys.executable, "-m", "repo_review", "--format", "json", ".", may_fail=True)
    results = [check["result"] for check in json.loads(done)["checks"].values()]
    applied = [result for result in results if result is not None]
    yield Figure.of("repo-review", 100 * sum(applied) / len(applied), "%", "== 100")


@SUITE.measurement("site")
def site() -> Iterator[Figure]:
    """The documentation site, built from nothing."""
    _require("mkdocs")
    began = time.perf_counter()
    _run(sys.executable, "tools/site.py")
    yield Figure.of("site", time.perf_counter() - began, "s", "<= 180")


def _require(*modules: str) -> None:
    missing = [module for module in modules if find_spec(module) is None]
    if missing:
        raise PoplarError(
            f"figures of a release need {', '.join(missing)}.", hint="make bench-release"
        )


def _run(*command: str, may_fail: bool = False) -> str:
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode and not may_fail:
        raise PoplarError(f"{' '.join(command)} fails:\n{done.stdout}{done.stderr}")
    return done.stdout


def _last_object(output: str) -> dict:
    """The JSON object at the end of what a tool prints."""
    return json.loads(output[output.index("{") :])


def _cpu_seconds(*command: str, **variables: str) -> float:
    """Processor time of a process and its children."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    environment = {**os.environ, **variables}
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=environment)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
