"""Between chips and with the host: single words and large messages over links."""

import numpy as np

from tremula.base.types import FLOAT
from tremula.hardware import chip
from tremula.poplar.graph import Graph
from tremula.poplar.programs import Copy, Sequence
from tremula.validate.rows import MeasuredRow
from tremula.validate.timing import Timing, time_program
from tremula.validate.workloads.layout import map_rows, time_messages
from tremula.validate.workloads.table import ModelledValue, NoWorkload, workload

Ints = np.ndarray
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


def path_of(row: MeasuredRow) -> tuple[int, int]:
    """The two chips that a row names, or describes by their path."""
    if "src" in row.parameters:
        return row.number("src"), row.number("dst")
    text = row.text("path", "same board")
    for words, chips in _PATHS:
        if words in text:
            return chips
    raise NoWorkload(f"its path {text!r} is not known", hint="")


def _n_chips_for(here: int, there: int) -> int:
    return max(here, there) // 2 * 2 + 2


def chip_to_chip(
    row: MeasuredRow, chip_name: str, n_messages: int, n_words: int
) -> tuple[Timing, int]:
    """Tile i of one chip to tile i of another, and back at once if the row says so.

    More messages than a chip has tiles are those of both chips: half of them go back. Returns the
    number of messages, too.
    """
    here, there = path_of(row)
    n_tiles = chip(chip_name).n_tiles
    goes_back = is_both_ways(row) or n_messages > n_tiles
    n_each = n_messages if n_messages <= n_tiles else -(-n_messages // 2)
    tiles = np.arange(n_each) % n_tiles
    source, target = here * n_tiles + tiles, there * n_tiles + tiles
    if goes_back:
        source, target = np.concatenate((source, target)), np.concatenate((target, source))
    timing = time_messages(chip_name, _n_chips_for(here, there), source, target, n_words)
    return timing, len(source)


def is_both_ways(row: MeasuredRow) -> bool:
    """Whether a row's messages go in both directions; bandwidths do unless they say otherwise."""
    if "one direction" in row.workload:
        return False
    return "both directions" in row.workload or "bandwidth" in row.workload


@workload("min latency between IPUs", LINKS)
def word_between_chips(row: MeasuredRow, chip_name: str) -> ModelledValue:
    return ModelledValue.of(chip_to_chip(row, chip_name, 1, 1)[0])


@workload("point-to-point latency", LINKS, "several")
def words_between_chips(row: MeasuredRow, chip_name: str) -> ModelledValue:
    """One word from each of n tiles."""
    return ModelledValue.of(chip_to_chip(row, chip_name, row.number("transfers", 1), 1)[0])


@workload("IPU-to-IPU bandwidth", LINKS)
def bandwidth_between_chips(row: MeasuredRow, chip_name: str) -> ModelledValue:
    n_messages = row.number("transfers", chip(chip_name).n_tiles)
    n_bytes = row.number("bytes", N_LARGE_BYTES)
    timing, n_sent = chip_to_chip(row, chip_name, n_messages, n_bytes // FLOAT.n_bytes)
    return ModelledValue.of(timing, n_bytes=float(n_sent * n_bytes))


@workload("random system-wide (point-to-point|destinations)", LINKS, "several")
def random_system_wide(row: MeasuredRow, chip_name: str) -> ModelledValue:
    """Every tile sends one message to a random tile of the other half, and receives one.

    The rows for two chips equal those of all messages crossing, and at every size the ladder's
    middle carries as much as if all did: see docs/accuracy.md.
    """
    n = row.n_ipus * chip(chip_name).n_tiles
    n_bytes = row.number("bytes", N_LARGE_BYTES)
    half, random = n // 2, np.random.default_rng(0)
    target = np.concatenate((half + random.permutation(n - half), random.permutation(half)))
    timing = time_messages(chip_name, row.n_ipus, np.arange(n), target, n_bytes // 4)
    return ModelledValue.of(timing, n_bytes=float(n * n_bytes))


# -- one tile and all tiles of a chip, or of several -----------------------------------------------


def _one_and_many(row: MeasuredRow, chip_name: str) -> tuple[int, int, Ints]:
    """Chips of the machine, one tile, and many: those of another chip, or all of n chips."""
    n_tiles = chip(chip_name).n_tiles
    if "path" in row.parameters or "src" in row.parameters:
        here, there = path_of(row)
        one = here * n_tiles + n_tiles - 1
        return _n_chips_for(here, there), one, there * n_tiles + np.arange(n_tiles)
    return row.n_ipus, 0, np.arange(row.n_ipus * n_tiles)


@workload("broadcast (one word to|bandwidth)", LINKS, "several")
def broadcast_to_chips(row: MeasuredRow, chip_name: str) -> ModelledValue:
    """From one tile; bytes are counted where they arrive."""
    n_ipus, one, many = _one_and_many(row, chip_name)
    n_words = row.number("bytes", 4) // FLOAT.n_bytes

    def build(graph: Graph, sequence: Sequence) -> None:
        words = graph.add_variable(FLOAT, [1, n_words], "one", mapping=one)
        each = graph.add_variable(FLOAT, [len(many), n_words], "many")
        map_rows(graph, each, many)
        sequence.add(Copy(words.broadcast(len(many)), each))

    timing = time_program(chip_name, n_ipus, build)
    return ModelledValue.of(timing, n_bytes=float(4 * len(many) * n_words))


@workload("^(gather|scatter) (one word|bandwidth)", LINKS, "several")
def gather_or_scatter(row: MeasuredRow, chip_name: str) -> ModelledValue:
    """A different message from every tile to one, or from one to every tile."""
    n_ipus, one, many = _one_and_many(row, chip_name)
    n_words = row.number("bytes", 4) // FLOAT.n_bytes
    ones = np.full(len(many), one)
    ends = (many, ones) if row.workload.startswith("gather") else (ones, many)
    timing = time_messages(chip_name, n_ipus, *ends, n_words)
    return ModelledValue.of(timing, n_bytes=float(4 * len(many) * n_words))


@workload("host to IPU stream bandwidth|IPU to host stream bandwidth", HOST)
def stream(row: MeasuredRow, chip_name: str) -> ModelledValue:
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
    return ModelledValue.of(timing, n_bytes=float(4 * n_tiles * n_words))
