"""Tests that need a GPU, or Triton, in several processes that share it, within a time.

    python -m tools.gpu_tests --jobs 12 --seconds 480
    python -m tools.gpu_tests --jobs 2 tests/ir/host/graph_kernels/test_offline.py    # the sweep

Needs pytest and hypothesis, no plugin. Each process runs every N-th test, so that cases of one test
are spread. A run that is cut off counts what has ended, and lists what has not.
"""

import argparse
import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

_NEEDS = re.compile(r"cuda\.is_available|has_triton\(")
_RESULT = re.compile(r"^(tests/\S+::.+) (PASSED|FAILED|ERROR|SKIPPED|XFAIL|XPASS)\b", re.MULTILINE)
_OPTIONS = (
    *("-o", "addopts=", "--import-mode=importlib", "--tb=short"),
    *("--disable-plugin-autoload", "-p", "no:cacheprovider"),
)
_N_LISTED = 20
# What a shell starts in the background ignores SIGINT, and so would all processes below it.
_INTERRUPTIBLE = """
import signal, sys, pytest
signal.signal(signal.SIGINT, signal.default_int_handler)
sys.exit(pytest.main(sys.argv[1:]))
"""
_GRACE_S = 8.0  # for the report of an interrupted process


@dataclass(frozen=True)
class Shard:
    """A process, and its log."""

    process: "subprocess.Popen[bytes]"
    log: Path


def test_files(root: Path) -> list[str]:
    """Those that mention a GPU or Triton."""
    files = sorted((root / "tests").rglob("test_*.py"))
    needing = [file for file in files if _NEEDS.search(file.read_text(encoding="utf-8"))]
    return [str(file.relative_to(root)) for file in needing]


def collected(files: Sequence[str], marks: str) -> tuple[list[str], list[str]]:
    """The names of the tests in some files, and the files that cannot be imported."""
    command = [
        sys.executable,
        "-m",
        "pytest",
        *_OPTIONS,
        "-m",
        marks,
        "--collect-only",
        "--continue-on-collection-errors",
        "-q",
        *files,
    ]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    lines = done.stdout.splitlines()
    broken = [line.split()[1] for line in lines if line.startswith("ERROR ")]
    if done.returncode and not broken:
        sys.exit(f"the tests cannot be collected:\n{done.stdout}")
    if broken:
        print(done.stdout[done.stdout.find("= ERRORS =") :])
    return [line for line in lines if "::" in line and not line.startswith("ERROR ")], broken


def start(names: Sequence[str], number: int, folder: Path) -> Shard:
    """A process that runs some tests."""
    listed, log = folder / f"tests-{number}.txt", folder / f"log-{number}.txt"
    listed.write_text("\n".join(names) + "\n", encoding="utf-8")
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-c", _INTERRUPTIBLE, *_OPTIONS, "-v", "-m", "", f"@{listed}"],
            stdout=output,
            stderr=subprocess.STDOUT,
            env={**os.environ, "PYTHONUNBUFFERED": "1", "OMP_NUM_THREADS": "1"},
            start_new_session=True,
        )
    return Shard(process, log)


def run(shards: Sequence[Shard], seconds: float) -> None:
    """Until all have ended, or the time is up: those left are interrupted, and report failures."""
    deadline = time.monotonic() + seconds
    for number, grace_s in ((signal.SIGINT, _GRACE_S), (signal.SIGKILL, 0.0)):
        left = [shard.process for shard in shards if not has_ended(shard.process, deadline)]
        for process in left:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, number)
        deadline = time.monotonic() + grace_s
    for shard in shards:
        shard.process.wait()


def has_ended(process: "subprocess.Popen[bytes]", deadline: float) -> bool:
    with suppress(subprocess.TimeoutExpired):
        process.wait(max(0.0, deadline - time.monotonic()))
    return process.returncode is not None


def results_of(log: str) -> dict[str, str]:
    """What became of each test that has ended."""
    return dict(_RESULT.findall(log))


def report(names: Sequence[str], shards: Sequence[Shard], folder: Path) -> int:
    """Print counts, failures and what has not ended; returns how many. Writes all logs as one."""
    texts = [shard.log.read_text(encoding="utf-8", errors="replace") for shard in shards]
    (folder / "log.txt").write_text("\n".join(texts), encoding="utf-8")
    results = {name: result for text in texts for name, result in results_of(text).items()}
    counts = Counter(results.values())
    failed = [name for name, result in results.items() if result in ("FAILED", "ERROR")]
    missing = [name for name in names if name not in results]
    for text in texts:
        begin = text.find("= FAILURES =")
        if begin >= 0:
            print(text[begin:].partition("= warnings summary =")[0])
    print(", ".join(f"{n} {result.lower()}" for result, n in sorted(counts.items())))
    print(f"{len(missing)} of {len(names)} have not ended")
    for name in [*failed, *missing[:_N_LISTED]]:
        print(f"  {results.get(name, 'not ended')} {name}")
    return len(failed) + len(missing)


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tools.gpu_tests",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "files", nargs="*", help="files of tests (all that mention a GPU or Triton)"
    )
    parser.add_argument("--jobs", type=int, default=8, help="processes (8)")
    parser.add_argument("--seconds", type=float, default=3600, help="end after this time")
    parser.add_argument("--marks", default="", help='as pytest takes them: "not wide", say')
    parser.add_argument("--out", type=Path, default=Path("build/gpu-tests"), help="folder of logs")
    arguments = parser.parse_args()
    began = time.monotonic()
    names, broken = collected(arguments.files or test_files(Path.cwd()), arguments.marks)
    arguments.out.mkdir(parents=True, exist_ok=True)
    parts = [names[i :: arguments.jobs] for i in range(min(arguments.jobs, len(names)))]
    print(f"{len(names)} tests in {len(parts)} processes", flush=True)
    shards = [start(part, i, arguments.out) for i, part in enumerate(parts)]
    run(shards, arguments.seconds - (time.monotonic() - began))
    n_failed = report(names, shards, arguments.out)
    for file in broken:
        print(f"  not imported {file}")
    return 1 if n_failed or broken else 0


if __name__ == "__main__":
    sys.exit(main())
