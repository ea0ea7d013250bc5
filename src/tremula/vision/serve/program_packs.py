"""Packs that need a report's tile program: loading and costing one is Python, seconds of it.

For a large program they are made in a separate process, next to one that reads and deflates.
"""

import base64
import json
import subprocess
import sys
from pathlib import Path

from tremula.base.errors import RuntimeFailure
from tremula.vision.page_data.fetch import PageData
from tremula.vision.page_data.traffic import busiest_steps
from tremula.vision.report.reader import open_report

_MANY_STEPS = 1_000  # with fewer, starting a process takes longer
PROGRAM_NAMES = ("dataflow", "traffic")  # beside sweeps


def program_packs(data: PageData) -> dict[str, bytes]:
    """The packs of all reports, by name; one report after the other."""
    result: dict[str, bytes] = {}
    for number, reader in enumerate(data.readers):
        if reader.n_steps > _MANY_STEPS:
            packs = _from_another_process(reader.path)
            result |= {f"{number}/{name.partition('/')[2]}": pack for name, pack in packs.items()}
        else:
            result |= _made(data, number)
    return result


def _made(data: PageData, number: int) -> dict[str, bytes]:
    steps = [f"{number}/traffic/{step}" for step in busiest_steps(data.readers[number])]
    names = [*(f"{number}/{name}" for name in PROGRAM_NAMES), *steps, *data.sweep_names(number)]
    return {name: data.pack(name) for name in names}


def _from_another_process(path: Path) -> dict[str, bytes]:
    command = [sys.executable, "-m", __name__, str(path.resolve())]
    done = subprocess.run(command, capture_output=True, check=False)
    if done.returncode:
        last = done.stderr.decode(errors="replace").strip().splitlines()[-2:]
        raise RuntimeFailure(
            f"a process that costs the program of {str(path)!r} again ended with exit code "
            f"{done.returncode}: {' '.join(last)}",
            hint="is there enough memory? `tremula view` without --export needs less",
        )
    return {name: base64.b64decode(pack) for name, pack in json.loads(done.stdout).items()}


if __name__ == "__main__":
    with open_report(sys.argv[1]) as opened:
        packs = _made(PageData([opened]), 0)
    json.dump({name: base64.b64encode(pack).decode() for name, pack in packs.items()}, sys.stdout)
