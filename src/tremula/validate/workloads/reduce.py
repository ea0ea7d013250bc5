"""Reductions: sums of floats on one tile, over a chip, and over several chips."""

from tremula.base.types import FLOAT
from tremula.hardware import chip
from tremula.poplar.graph import Graph
from tremula.poplar.programs import Sequence
from tremula.validate.rows import MeasuredRow
from tremula.validate.timing import Timing, time_program
from tremula.validate.workloads.layout import map_rows
from tremula.validate.workloads.table import ModelledValue, workload

FAMILY = "reduce"


def _time_sum(chip_name: str, n_ipus: int, n_tiles: int, n_per_tile: int) -> Timing:
    """The sum of n_per_tile floats on each of n tiles, to the first tile."""
    from tremula.poplibs import popops

    def build(graph: Graph, sequence: Sequence) -> None:
        operands = graph.add_variable(FLOAT, [n_tiles, n_per_tile], "operands")
        map_rows(graph, operands)
        out = graph.add_variable(FLOAT, [], "sum", mapping=0)
        popops.reduce_with_output(graph, operands, out, [0, 1], "ADD", sequence)

    return time_program(chip_name, n_ipus, build)


@workload("reduce sum fp32 on a single tile", FAMILY)
def on_one_tile(row: MeasuredRow, chip_name: str) -> ModelledValue:
    return ModelledValue.of(_time_sum(chip_name, 1, 1, row.number("operands")))


@workload("reduce sum fp32", FAMILY)
def over_tiles(row: MeasuredRow, chip_name: str) -> ModelledValue:
    n_tiles = row.number("tiles", row.n_ipus * chip(chip_name).n_tiles)
    n_per_tile = row.number("operands_per_tile")
    timing = _time_sum(chip_name, row.n_ipus, n_tiles, n_per_tile)
    return ModelledValue.of(timing, n_bytes=float(FLOAT.n_bytes * n_tiles * n_per_tile))
