"""The matrix unit of every tile by itself: one vertex multiplies [N, 16] by [16, 16] and the like.

As TessellateIPU's notebook measured it: operands are on the tiles, the chip's counter is read
before and after, and what reading it takes is subtracted. So it is the vertex, without sync.
"""

import re
from functools import partial

import numpy as np

from tremula.base.types import Type
from tremula.hardware import chip
from tremula.poplar.graph import Graph
from tremula.poplar.programs import Execute, Sequence
from tremula.poplar.vertices.bulk import Ragged
from tremula.poplibs.poplin.product.vertices import ITEM, conv_partial
from tremula.validate.rows import MeasuredRow
from tremula.validate.timing import time_program
from tremula.validate.workloads.layout import map_rows
from tremula.validate.workloads.matmul import element_type
from tremula.validate.workloads.table import ModelledValue, NoWorkload, workload

FAMILY = "on-tile matrix unit"
_SHAPE = re.compile(r"\[N,\s*(\d+)\]\s*x\s*\[(\d+),\s*(\d+)\]\s*(\w+)\s*->\s*(\w+)")


@workload(r"\[N,\d+\]\s*x\s*\[\d+,\d+\].*on every tile", FAMILY)
def on_every_tile(row: MeasuredRow, chip_name: str) -> ModelledValue:
    """Cycles of the vertices, or the rate of all tiles."""
    match = _SHAPE.search(row.workload)
    if match is None:
        raise NoWorkload("its workload does not say [N,k]x[k,m] and types", hint="")
    n_in, n_out = int(match[1]), int(match[3])
    types = element_type(match[4]), element_type(match[5])
    n_tiles = row.number("tiles", chip(chip_name).n_tiles)
    n = row.number("n")
    build = partial(_build, (n_tiles, n, n_in, n_out), types)
    timing = time_program(chip_name, 1, build)
    flops = 2.0 * n * n_in * n_out * n_tiles
    return ModelledValue(timing.compute, timing.clock_hz, n_flops=flops, steps=timing.steps)


def _build(
    sizes: tuple[int, int, int, int], types: tuple[Type, Type], graph: Graph, sequence: Sequence
) -> None:
    n_tiles, n, n_in, n_out = sizes
    element, partials = types
    left = graph.add_variable(element, [n_tiles, n * n_in], "left")
    right = graph.add_variable(element, [n_tiles, n_in * n_out], "right")
    out = graph.add_variable(partials, [n_tiles, n * n_out], "out")
    for tensor in (left, right, out):
        map_rows(graph, tensor)
    items, first_item = _work_of_workers(n, n_in, n_out, graph.target.chip.n_workers)
    fields = {
        "left": left, "right": right, "out": out,
        "items": _equal_rows(items, n_tiles), "first_item": _equal_rows(first_item, n_tiles),
        "out_stride": n_out, "left_stride": n_in, "left_step": 1, "right_stride": n_out,
        "n_cols": n_out, "n_groups": 1, "n_positions": n, "n_rows": 1,
        "n_in": n_in, "n_out": n_out, "n_taps": 1,
    }  # fmt: skip
    multiply = graph.add_compute_set("multiply")
    codelet = conv_partial("AMP", element, partials)
    graph.add_vertices(multiply, codelet, fields, tiles=np.arange(n_tiles))
    sequence.add(Execute(multiply))


def _work_of_workers(
    n: int, n_in: int, n_out: int, n_workers: int
) -> tuple[np.ndarray, np.ndarray]:
    """One item of consecutive rows for each worker."""
    cuts = np.arange(n_workers + 1) * n // n_workers
    begin, count = cuts[:-1], np.diff(cuts)
    columns = np.zeros((n_workers, ITEM), np.int32)
    columns[:, 0], columns[:, 1] = begin * n_out, begin * n_in
    columns[:, 3], columns[:, 4], columns[:, 5] = count, n_in, 1
    return columns.ravel(), np.arange(n_workers + 1, dtype=np.int32)


def _equal_rows(values: np.ndarray, n_rows: int) -> Ragged:
    return Ragged(np.tile(values, n_rows), np.arange(n_rows + 1) * len(values))
