"""`python -m tools.gpu_table`: see the package."""

import argparse
import os
import shutil
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from benchmarks.gpu_programs import REHEARSAL
from tools import gpu_table
from tools.gpu_table.cases import chosen_cases, lines_of
from tools.gpu_table.record import MEASURED, Record, Row, merged, page, read_record
from tools.gpu_table.run import Limits, Run

_SHARE_OF_MEMORY = 0.9  # of the GPU, for all cases together
_CPU_GIB = 8.0  # in a rehearsal


def main() -> int:
    arguments = _parser().parse_args()
    if arguments.rehearse:
        os.environ[REHEARSAL] = "1"
    if arguments.modes is not None:
        os.environ["TREMULA_COMPILE_MODES"] = arguments.modes
    cases = chosen_cases(arguments.only)
    if arguments.list:
        print("\n".join(lines_of(cases)))
        return 0
    earlier = read_record(arguments.resume) if arguments.resume else None
    if earlier is not None:
        done = {row.name for row in earlier.rows if row.status == MEASURED}
        cases = [case for case in cases if case.name not in done]
    arguments.out.mkdir(parents=True, exist_ok=True)
    rows = [Row(case.section.title, case.name) for case in cases]
    command = " ".join(["python -m tools.gpu_table", *sys.argv[1:]])
    record = Record(_machine(arguments.rehearse), command, rows)
    n_jobs = arguments.jobs or max(1, len(os.sched_getaffinity(0)) // 2)
    limits = Limits(n_jobs, arguments.gib or _gib(arguments.rehearse), arguments.seconds)
    Run(cases, record, limits, arguments.out).run()
    if earlier is not None:
        record = merged(earlier, record)
        record.write(arguments.out)
    print("\n".join(page(record)))
    return 0 if all(row.status == MEASURED for row in record.rows) else 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tools.gpu_table",
        description=gpu_table.__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--list", action="store_true", help="print the cases, with their limits, and end")
    add("--only", action="append", default=[], metavar="NAME", help="a measurement, or NAME:CASE")
    add("--out", type=Path, default=Path("build/gpu-table"), help="folder of table.json, table.md")
    add("--seconds", type=float, default=3600, help="end after this time, with what is measured")
    add("--jobs", type=int, help="cases that run at a time (half of the cores)")
    add("--gib", type=float, help="of GPU memory that cases may take together (90 %% of it)")
    add("--modes", help="of torch.compile: default,reduce-overhead,max-autotune")
    add(
        "--resume", type=Path, metavar="FILE", help="a table.json: measure what it lacks, and merge"
    )
    add("--rehearse", action="store_true", help="run the code on a CPU with small models")
    return parser


def _machine(is_rehearsal: bool) -> str:
    """The GPU, the versions and the commit."""
    gpu = "a CPU, where the values mean nothing" if is_rehearsal else _nvidia("name")
    commit = _output(["git", "rev-parse", "--short", "HEAD"]) or "an unknown commit"
    versions = ", ".join(f"{name} {_version(name)}" for name in ("torch", "triton"))
    return f"Measured on {gpu or 'a GPU'}, {versions}, commit {commit}"


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


def _gib(is_rehearsal: bool) -> float:
    if is_rehearsal:
        return _CPU_GIB
    mib = _nvidia("memory.total")
    return _SHARE_OF_MEMORY * float(mib.split()[0]) / 1024 if mib else _CPU_GIB


def _nvidia(what: str) -> str:
    """What the driver says of the first GPU; empty without one."""
    if shutil.which("nvidia-smi") is None:
        return ""
    lines = _output(["nvidia-smi", f"--query-gpu={what}", "--format=csv,noheader"]).splitlines()
    return lines[0] if lines else ""


def _output(command: list[str]) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return ""
    return done.stdout.strip()


if __name__ == "__main__":
    sys.exit(main())
