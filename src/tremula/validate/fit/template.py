"""`tremula fit --template`: programs worth measuring, and a CSV file for their times."""

import csv
import inspect
import io
import re
from pathlib import Path

from tremula.base.errors import FileLoadError
from tremula.base.storage.atomic_file import write_text
from tremula.codelets.cost.slots import VERTEX_OVERHEAD_SLOTS
from tremula.hardware import Chip
from tremula.validate.fit.measurements import COLUMNS
from tremula.validate.workloads.fit_programs import (
    NAMES,
    PROGRAMS,
    Chase,
    TemplateRow,
    template_rows,
)

ROWS_FILE = "rows.csv"

_COMMON = '''\
"""Runs a program of this folder on Tremula and prints what it takes, as a row of rows.csv has it.

To measure a machine, write the program with its tools (the calls are those of Poplar's C++
interface), repeat it often enough for its clock, and put the time of one execution into rows.csv.
"""

import argparse

import numpy as np

import tremula as tr


def time_of(build, parameters, n_ipus, unit, chip):
    """One execution: the difference between six and five of them."""
    cycles = count(build, parameters, n_ipus, chip, 6) - count(build, parameters, n_ipus, chip, 5)
    return cycles if unit == "cycles" else cycles / chip.clock_hz * 1e6


def count(build, parameters, n_ipus, chip, n_times):
    device = tr.IPUModel(chip, n_ipus).create_device()
    graph, once = tr.Graph(device), tr.Sequence()
    build(graph, once, **parameters)
    program = tr.Sequence(tr.Repeat(n_times, once))
    graph.create_host_read("count", tr.cycle_count(graph, program, 0, tr.SyncType.EXTERNAL))
    engine = tr.Engine(graph, program)
    engine.load(device)
    if build.__name__ in ("stream_in", "stream_out"):
        n_bytes = parameters["tiles"] * parameters["n_bytes"]
        name = build.__name__.removeprefix("stream_")
        engine.connect_stream(name, np.zeros(n_bytes, np.uint8))
    engine.run()
    low, high = engine.read_tensor("count").tolist()
    return low + (high << 32)


def main(row, build, parameters, n_ipus, unit):
    parser = argparse.ArgumentParser(description=build.__doc__)
    parser.add_argument("--chip", default="bow", help="a chip, or the file of one")
    chip = chip_of(parser.parse_args().chip)
    print(f"{row},{time_of(build, parameters, n_ipus, unit, chip):.9g},{unit}")


def chip_of(name):
    return tr.load_chip(name) if name.endswith(".toml") else tr.IPUModel(name).chip
'''

_ALL = '''\
"""Runs every program of this folder on Tremula and writes the times into ROWS_FILE."""

import argparse
import csv
import runpy
from pathlib import Path

from common import chip_of, time_of

FOLDER = Path(__file__).parent
parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--chip", default="bow", help="a chip, or the file of one")
chip = chip_of(parser.parse_args().chip)
with (FOLDER / "ROWS_FILE").open(newline="") as file:
    table = csv.DictReader(file)
    columns, rows = table.fieldnames, list(table)
for row in rows:
    program = runpy.run_path(str(FOLDER / f"{row['id']}.py"))
    row["value"] = f"{time_of(*program['ROW'][1:], chip):.9g}"
    print(row["id"], row["value"], row["unit"], flush=True)
with (FOLDER / "ROWS_FILE").open("w", newline="") as file:
    writer = csv.DictWriter(file, columns)
    writer.writeheader()
    writer.writerows(rows)
'''


def write_template(path: Path, chip: Chip) -> Path:
    """Write the programs, and a CSV file of rows without values; returns the path of that file.

    `path` is a folder, or the CSV file in it. A file of rows that exists is an error.
    """
    file = path if path.suffix.lower() == ".csv" else path / ROWS_FILE
    if file.exists():
        raise FileLoadError(
            f"{str(file)!r} exists already.",
            hint="give another folder, or remove the file if its values are not needed",
        )
    rows = template_rows(chip)
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FileLoadError(
            f"cannot make the folder {str(file.parent)!r}: {error.strerror}.",
            hint="give a folder that can be written",
        ) from error
    write_text(file.parent / "common.py", _COMMON)
    write_text(file.parent / "measure_all.py", _ALL.replace("ROWS_FILE", file.name))
    for row in rows:
        write_text(file.parent / f"{row.id}.py", program_text(row))
    write_text(file, rows_text(rows, chip))
    return file


def rows_text(rows: list[TemplateRow], chip: Chip, values: tuple[float, ...] = ()) -> str:
    """The CSV file of rows, with values where there are any."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(COLUMNS)
    for number, row in enumerate(rows):
        parameters = ";".join(f"{name}={value}" for name, value in row.parameters.items())
        value = f"{values[number]:.9g}" if values else ""
        writer.writerow(
            [row.id, chip.name, row.n_ipus, row.program, parameters, "time", row.unit, value, ""]
        )
    return file.getvalue()


def program_text(row: TemplateRow) -> str:
    """A program as a file that runs."""
    build = PROGRAMS[row.program]
    parts = [inspect.getsource(build)]
    if build.__name__ == "chase":
        comment = "# of Tremula's model: start and end of a vertex"
        parts.insert(0, inspect.getsource(Chase))
        parts.insert(0, f"VERTEX_OVERHEAD_SLOTS = {VERTEX_OVERHEAD_SLOTS}  {comment}\n")
    used = [name for name in NAMES if re.search(rf"\b{name}\b", "".join(parts))]
    head = f'"""{row.id}: {build.__doc__} Shows {row.shows}."""\n'
    typing = "from typing import Any\n\n" if "Any" in "".join(parts) else ""
    imports = f"{typing}from common import main\n\nfrom tremula import {', '.join(used)}\n"
    arguments = f'"{row.id}", {row.program}, {dict(row.parameters)!r}, {row.n_ipus}, "{row.unit}"'
    end = f'ROW = ({arguments})\n\nif __name__ == "__main__":\n    main(*ROW)\n'
    text = "\n\n".join([f"{head}\n{imports}", *parts, end])
    return re.sub(r"  # noqa.*", "", text)
