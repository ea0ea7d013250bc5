"""The exchange of one chip: single words and large messages, to one tile, to many, to all."""

import numpy as np

from tremula.base.types import FLOAT
from tremula.hardware import chip, exchange_latency_cycles
from tremula.poplar.graph import Graph
from tremula.poplar.programs import Copy, Sequence
from tremula.validate.rows import MeasuredRow
from tremula.validate.timing import time_program
from tremula.validate.workloads.layout import copy_to_tiles, map_rows, time_messages
from tremula.validate.workloads.table import ModelledValue, workload

FAMILY = "memory and exchange"
N_LARGE_BYTES = 64 * 1024  # of a message that is said to be large
Ints = np.ndarray


@workload("tile-to-tile exchange latency within a column", FAMILY)
def column_latency(row: MeasuredRow, chip_name: str) -> ModelledValue:
    """Neighbours at the near or far end of the first column; the exchange without its sync."""
    here = chip(chip_name)
    n_in_column = here.n_tiles // here.n_columns
    first = 0 if row.metric.endswith("min") else n_in_column - 2
    timing = time_messages(chip_name, 1, np.array([first]), np.array([first + 1]), 1)
    return ModelledValue(timing.exchange, timing.clock_hz)


@workload("tile-to-tile exchange latency worst pair", FAMILY)
def farthest_latency(row: MeasuredRow, chip_name: str) -> ModelledValue:  # noqa: ARG001
    """The farthest pair of the chip: ends of columns on opposite sides and corners."""
    here = chip(chip_name)
    n_in_column = here.n_tiles // here.n_columns
    corners = np.arange(here.n_columns)[:, None] * n_in_column + [0, n_in_column - 1]
    source, target = (c.ravel() for c in np.meshgrid(corners.ravel(), corners.ravel()))
    pairs = zip(source[source != target], target[source != target], strict=True)
    slowest = max(pairs, key=lambda pair: _way(chip_name, *pair))
    timing = time_messages(chip_name, 1, np.array([slowest[0]]), np.array([slowest[1]]), 1)
    return ModelledValue(timing.exchange, timing.clock_hz)


def _way(chip_name: str, source: int, target: int) -> int:
    here = chip(chip_name)
    return int(exchange_latency_cycles(here, np.array([source]), np.array([target]))[0])


@workload("point-to-point latency|concurrent random point-to-point transfers", FAMILY, "one")
def words_between_tiles(row: MeasuredRow, chip_name: str) -> ModelledValue:
    """One word each; a single one goes a quarter of the chip, many go to random tiles."""
    n_tiles = chip(chip_name).n_tiles
    n = row.number("transfers", 1)
    source, target = (np.array([0]), np.array([n_tiles // 4])) if n == 1 else _pairs(n, n_tiles)
    n_words = -(-row.number("bytes", 4) // FLOAT.n_bytes)
    return ModelledValue.of(time_messages(chip_name, 1, source, target, n_words))


@workload("concurrent tile-to-tile copies on chip", FAMILY)
def large_messages(row: MeasuredRow, chip_name: str) -> ModelledValue:
    source, target = _pairs(row.number("transfers"), chip(chip_name).n_tiles)
    n_bytes = row.number("bytes", N_LARGE_BYTES)
    timing = time_messages(chip_name, 1, source, target, n_bytes // FLOAT.n_bytes)
    return ModelledValue.of(timing, n_bytes=float(len(source) * n_bytes))


@workload("broadcast (one word from one tile|bandwidth|to whole IPU)", FAMILY, "one")
def broadcast(row: MeasuredRow, chip_name: str) -> ModelledValue:
    """From the last tile to the first n tiles; bytes are counted where they arrive."""
    here = chip(chip_name)
    n, n_bytes = row.number("dest_tiles"), row.number("bytes")

    def build(graph: Graph, sequence: Sequence) -> None:
        source = here.n_tiles - 1
        copy_to_tiles(graph, sequence, source, min(n, source), n_bytes // FLOAT.n_bytes)

    timing = time_program(chip_name, 1, build)
    wide = here.exchange_bytes_per_cycle * here.n_tiles_per_exchange_bus
    return ModelledValue.of(
        timing, n_bytes=float(n * n_bytes), peak_bytes_per_s=n * wide * here.clock_hz
    )


@workload("^gather (one word|bandwidth)", FAMILY, "one")
def gather(row: MeasuredRow, chip_name: str) -> ModelledValue:
    n, n_words = row.number("source_tiles"), row.number("bytes", 4) // FLOAT.n_bytes

    def build(graph: Graph, sequence: Sequence) -> None:
        words = graph.add_variable(FLOAT, [n, n_words], "words")
        first = 0 if n == graph.target.n_tiles else 1
        map_rows(graph, words, np.arange(n) + first)
        sequence.add(Copy(words, graph.add_variable(FLOAT, [n, n_words], "all", mapping=0)))

    timing = time_program(chip_name, 1, build)
    return ModelledValue.of(timing, n_bytes=float(4 * n * n_words))


@workload("^scatter (one word|bandwidth)", FAMILY, "one")
def scatter(row: MeasuredRow, chip_name: str) -> ModelledValue:
    """Different data from the last tile to each of the first n."""
    n, n_words = row.number("dest_tiles"), row.number("bytes", 4) // FLOAT.n_bytes

    def build(graph: Graph, sequence: Sequence) -> None:
        last = graph.target.n_tiles - 1
        words = graph.add_variable(FLOAT, [n, n_words], "words", mapping=last)
        each = graph.add_variable(FLOAT, [n, n_words], "each")
        map_rows(graph, each)
        sequence.add(Copy(words, each))

    timing = time_program(chip_name, 1, build)
    return ModelledValue.of(timing, n_bytes=float(4 * n * n_words))


@workload("all-to-all", FAMILY, "one")
def all_to_all(row: MeasuredRow, chip_name: str) -> ModelledValue:
    n, n_words = row.number("tiles"), row.number("bytes", 4) // FLOAT.n_bytes

    def build(graph: Graph, sequence: Sequence) -> None:
        ours, theirs = (graph.add_variable(FLOAT, [n, n, n_words], name) for name in "ab")
        map_rows(graph, ours)
        map_rows(graph, theirs)
        sequence.add(Copy(ours.dim_shuffle([1, 0, 2]), theirs))

    timing = time_program(chip_name, 1, build)
    return ModelledValue.of(timing, n_bytes=float(4 * n * n * n_words))


def _pairs(n: int, n_tiles: int) -> tuple[Ints, Ints]:
    """Random senders, n of them, and as many receivers, each tile at most once in either."""
    random = np.random.default_rng(0)
    if 2 * n <= n_tiles:
        chosen = random.permutation(n_tiles)[: 2 * n]
        return chosen[:n], chosen[n:]
    order = random.permutation(n_tiles)
    return order[:n], np.roll(order, 1)[:n]
