"""Between chips and with the host: single words and large messages over links."""

import numpy as np

from tremula.base.types import FLOAT
from tremula.hardware import chip
from tremula.poplar.graph import Graph
from tremula.poplar.programs import Copy, Sequence
from tremula.validate.rows import Row
from tremula.validate.timing import Timing, time_program
from tremula.validate.workloads.layout import copy_to_tiles, map_rows
from tremula.validate.workloads.table import Modelled, NoWorkload, workload

LINKS, HOST = "links between chips", "host"
N_LARGE_BYTES = 40_960  # of each tile's message, where a row says only that it is large

# Paths of a ladder of boards with two chips each, as (source chip, target chip).
_PATHS = (
    ("same board", (0, 1)),
    ("indirect", (0, 3)),
    ("direct", (0, 2)),
    ("across boards", (0, 2)),
    ("off-board", (0, 2)),
    ("off-chip", (0, 1)),
)


def path_of(row: Row) -> tuple[int, int]:
    """The two chips that a row names, or describes by their path."""
    if "src" in row.parameters:
        return row.number("src"), row.number("dst")
    text = row.text("path", "same board")
    for words, chips in _PATHS:
        if words in text:
            return chips
    raise NoWorkload(f"its path {text!r} is not known", hint="")


def chip_to_chip(row: Row, chip_name: str, n_messages: int, n_words: int) -> Timing:
    """Tile i of one chip to tile i of another; twice, back and forth, if the row says so."""
    here, there = path_of(row)
    n_tiles = chip(chip_name).n_tiles

    def build(graph: Graph, sequence: Sequence) -> None:
        ours, theirs = (graph.add_variable(FLOAT, [n_messages, n_words], n) for n in "ab")
        tiles = np.arange(n_messages)
        map_rows(graph, ours, here * n_tiles + tiles)
        map_rows(graph, theirs, there * n_tiles + tiles)
        sequence.add(Copy(ours, theirs))

    return time_program(chip_name, max(here, there) // 2 * 2 + 2, build)


@workload("min latency between IPUs", LINKS)
def word_between_chips(row: Row, chip_name: str) -> Modelled:
    return Modelled.of(chip_to_chip(row, chip_name, 1, 1))


@workload("point-to-point latency", LINKS, "several")
def words_between_chips(row: Row, chip_name: str) -> Modelled:
    """One word from each of n tiles."""
    return Modelled.of(chip_to_chip(row, chip_name, row.number("transfers", 1), 1))


@workload("IPU-to-IPU bandwidth", LINKS)
def bandwidth_between_chips(row: Row, chip_name: str) -> Modelled:
    n_messages = row.number("transfers", chip(chip_name).n_tiles)
    n_bytes = row.number("bytes", N_LARGE_BYTES)
    both_ways = "one direction" not in row.workload
    here, there = path_of(row)
    n_tiles, n_words = chip(chip_name).n_tiles, n_bytes // FLOAT.n_bytes
    ways = [(here, there), (there, here)] if both_ways else [(here, there)]

    def build(graph: Graph, sequence: Sequence) -> None:
        n_rows = len(ways) * n_messages
        ours, theirs = (graph.add_variable(FLOAT, [n_rows, n_words], n) for n in "ab")
        tiles = np.arange(n_messages)
        map_rows(graph, ours, np.concatenate([a * n_tiles + tiles for a, _ in ways]))
        map_rows(graph, theirs, np.concatenate([b * n_tiles + tiles for _, b in ways]))
        sequence.add(Copy(ours, theirs))

    timing = time_program(chip_name, max(here, there) // 2 * 2 + 2, build)
    return Modelled.of(timing, n_bytes=float(len(ways) * n_messages * n_bytes))


@workload("random system-wide (point-to-point|destinations)", LINKS, "several")
def random_system_wide(row: Row, chip_name: str) -> Modelled:
    """Every tile sends one message to a random tile of the machine, every tile receives one."""
    n = row.n_ipus * chip(chip_name).n_tiles
    n_bytes = row.number("bytes", N_LARGE_BYTES)

    def build(graph: Graph, sequence: Sequence) -> None:
        ours, theirs = (graph.add_variable(FLOAT, [n, n_bytes // 4], name) for name in "ab")
        map_rows(graph, ours)
        map_rows(graph, theirs, np.random.default_rng(0).permutation(n))
        sequence.add(Copy(ours, theirs))

    return Modelled.of(time_program(chip_name, row.n_ipus, build), n_bytes=float(n * n_bytes))


@workload("broadcast (one word to all tiles of n IPUs|bandwidth)", LINKS, "several")
def broadcast_to_chips(row: Row, chip_name: str) -> Modelled:
    """From the last tile of the last chip; bytes are counted where they arrive."""
    n_tiles, n_words = row.n_ipus * chip(chip_name).n_tiles, row.number("bytes") // FLOAT.n_bytes

    def build(graph: Graph, sequence: Sequence) -> None:
        copy_to_tiles(graph, sequence, n_tiles - 1, n_tiles - 1, n_words)

    timing = time_program(chip_name, row.n_ipus, build)
    return Modelled.of(timing, n_bytes=float(4 * n_tiles * n_words))


@workload("host to IPU stream bandwidth|IPU to host stream bandwidth", HOST)
def stream(row: Row, chip_name: str) -> Modelled:
    n_tiles = row.n_ipus * chip(chip_name).n_tiles
    n_words = row.number("bytes_per_tile") // FLOAT.n_bytes

    def build(graph: Graph, sequence: Sequence) -> None:
        data = graph.add_variable(FLOAT, [n_tiles, n_words], "data")
        map_rows(graph, data)
        if row.workload.startswith("host"):
            fifo = graph.add_host_to_device_fifo("stream", FLOAT, data.n_elems)
            sequence.add(Copy(fifo, data))
        else:
            fifo = graph.add_device_to_host_fifo("stream", FLOAT, data.n_elems)
            sequence.add(Copy(data, fifo))

    timing = time_program(chip_name, row.n_ipus, build)
    return Modelled.of(timing, n_bytes=float(4 * n_tiles * n_words))
