"""Published rows of single operations, and a fit to all sources but one.

All single-operation rows of a GC2 come from one paper, so its families take the place of sources.
"""

import csv

import numpy as np

from tremula.base.errors import PoplarError
from tremula.hardware import chip
from tremula.validate.fit.measurements import RATES, TIMES, Measurement
from tremula.validate.fit.prediction import TimePredictor
from tremula.validate.fit.solve import Fitter, folds_of
from tremula.validate.rows import LINK_ROWS, PUBLISHED, MeasuredRow, every_nth, read_rows
from tremula.validate.workloads.table import find_workload

FAMILIES = (
    "memory and exchange", "links between chips", "reduce",
    "dense mat-mul", "gather", "scatter-add",
)  # fmt: skip
N_PER_FAMILY = 8
MOST_PRODUCTS, MOST_ELEMENTS = 2**30, 2**17  # larger programs take longer than they tell


def held_out_ratio(name: str) -> float:
    """The median error of rows by fits without their source, over that of shipped constants."""
    rows, base = rows_of_chip(name), chip(name)
    predictor = TimePredictor(rows, base)
    measured = np.array([row.time for row in rows])
    shipped = np.abs(predictor.times(base) / measured - 1)
    held_out = shipped.copy()
    for fold in folds_of(rows):
        rest = [i for i in range(len(rows)) if i not in set(fold)]
        fitted = Fitter(predictor.part(rest), base).result("fitted").chip
        held_out[fold] = np.abs(predictor.times(fitted, fold) / measured[fold] - 1)
    return float(np.median(held_out) / np.median(shipped))


def rows_of_chip(name: str) -> list[Measurement]:
    """Rows of small programs, at most eight of a family, evenly spread."""
    by_family: dict[str, list[Measurement]] = {}
    for path in (PUBLISHED, LINK_ROWS):
        with path.open(encoding="utf-8", newline="") as file:
            sources = [record["source"] for record in csv.DictReader(file)]
        for source, row in zip(sources, read_rows(path), strict=True):
            one = _usable(row, source, name)
            if one is not None:
                by_family.setdefault(one.workload.family, []).append(one)
    return [one for rows in by_family.values() for one in every_nth(rows, N_PER_FAMILY)]  # pyright: ignore[reportArgumentType, reportReturnType]


def _usable(row: MeasuredRow, source: str, name: str) -> Measurement | None:
    try:
        workload = find_workload(row)
    except PoplarError:
        return None
    if row.chip.lower() != name or workload.family not in FAMILIES:
        return None
    if row.unit not in TIMES + RATES or not _is_small(row):
        return None
    return Measurement(row, workload, workload.family if name == "gc2" else source[:40], 0.0)


def _is_small(row: MeasuredRow) -> bool:
    if "m" in row.parameters:
        if "n" not in row.parameters:  # the best of several widths
            return False
        return row.number("m") * row.number("k") * row.number("n") <= MOST_PRODUCTS
    sizes = [row.number(name, 1) for name in ("num_inputs", "num_outputs")]
    return max(sizes) * row.number("num_features", 1) <= MOST_ELEMENTS
