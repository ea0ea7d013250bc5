"""Small programs worth measuring: each shows one or two constants of a chip, and little else.

A program is a function that appends to a sequence. `PROGRAMS` lists them by the name that a row of
measurements has as its workload; `TEMPLATE` are the 25 rows of `tremula fit --template`. What the
template writes is the source of these functions, so they use Tremula's public names only.
"""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tremula.base.types import UNSIGNED_CHAR, UNSIGNED_INT, uint32
from tremula.codelets import Input, Output, Vector, Vertex
from tremula.codelets.cost.slots import VERTEX_OVERHEAD_SLOTS
from tremula.hardware import Chip
from tremula.poplar.graph import Graph
from tremula.poplar.programs import Copy, Execute, Sequence, Sync, SyncType
from tremula.validate.rows import MeasuredRow
from tremula.validate.timing import time_program
from tremula.validate.workloads.table import ModelledValue, workload

FAMILY = "fit programs"
# Names of `tremula` that the programs use.
NAMES = (
    "Copy", "Execute", "Graph", "Input", "Output", "Sequence", "Sync", "SyncType", "Vector",
    "Vertex", "UNSIGNED_CHAR", "UNSIGNED_INT", "uint32",
)  # fmt: skip
Build = Callable[..., None]


class Chase(Vertex):
    """Follow a chain through memory: each load needs the one before."""

    chain: Input[Vector[uint32]]
    last: Output[uint32]

    def compute(self: Any) -> None:
        at = uint32(0)
        for _ in range(len(self.chain)):
            at = self.chain[at]
        self.last = at

    @staticmethod
    def cycles(v: Any, chip: object) -> Any:  # noqa: ANN401, ARG004
        # A load is ready for the worker's next slot; the loop is a hardware repeat.
        return VERTEX_OVERHEAD_SLOTS + v.sizes["chain"]

    provenance = "published"


def sync(graph: Graph, sequence: Sequence) -> None:  # noqa: ARG001 - every program has these two arguments
    """All tiles of a chip wait for each other."""
    sequence.add(Sync(SyncType.INTERNAL))


def sync_chips(graph: Graph, sequence: Sequence) -> None:  # noqa: ARG001
    """All chips wait for each other."""
    sequence.add(Sync(SyncType.EXTERNAL))


def send(graph: Graph, sequence: Sequence, source: int, target: int, n_bytes: int) -> None:
    """One message from a tile to another."""
    ours = graph.add_variable(UNSIGNED_CHAR, [n_bytes], "ours", mapping=source)
    theirs = graph.add_variable(UNSIGNED_CHAR, [n_bytes], "theirs", mapping=target)
    sequence.add(Copy(ours, theirs))


def send_all(graph: Graph, sequence: Sequence, n_bytes: int) -> None:
    """Every tile of the first chip sends to the tile halfway round."""
    n_tiles = graph.target.tiles_per_ipu
    ours, theirs = (
        graph.add_variable(UNSIGNED_CHAR, [n_tiles, n_bytes], name) for name in ("ours", "theirs")
    )
    for tile in range(n_tiles):
        graph.set_tile_mapping(ours[tile], tile)
        graph.set_tile_mapping(theirs[tile], (tile + n_tiles // 2) % n_tiles)
    sequence.add(Copy(ours, theirs))


def collect(graph: Graph, sequence: Sequence, tiles: int, n_bytes: int) -> None:
    """One message from each of the first tiles after tile 0 to tile 0."""
    parts = graph.add_variable(UNSIGNED_CHAR, [tiles, n_bytes], "parts")
    for tile in range(tiles):
        graph.set_tile_mapping(parts[tile], tile + 1)
    whole = graph.add_variable(UNSIGNED_CHAR, [tiles, n_bytes], "whole", mapping=0)
    sequence.add(Copy(parts, whole))


def copy_on_tile(graph: Graph, sequence: Sequence, n_bytes: int) -> None:
    """A copy within tile 0."""
    ours, theirs = (
        graph.add_variable(UNSIGNED_CHAR, [n_bytes], name, mapping=0) for name in ("ours", "theirs")
    )
    sequence.add(Copy(ours, theirs))


def chase(graph: Graph, sequence: Sequence, loads: int) -> None:
    """A chain of loads by one worker of tile 0."""
    chain = graph.add_variable(UNSIGNED_INT, [loads], "chain", mapping=0)
    graph.set_initial_value(chain, 0)
    last = graph.add_variable(UNSIGNED_INT, [], "last", mapping=0)
    compute_set = graph.add_compute_set("chase")
    graph.add_vertex(compute_set, Chase, {"chain": chain, "last": last}, tile=0)
    sequence.add(Execute(compute_set))


def send_chip(
    graph: Graph,
    sequence: Sequence,
    source_chip: int,
    target_chip: int,
    tiles: int,
    n_bytes: int,
) -> None:
    """The first tiles of a chip each send a message to their counterparts of another chip."""
    per_chip = graph.target.tiles_per_ipu
    ours, theirs = (
        graph.add_variable(UNSIGNED_CHAR, [tiles, n_bytes], name) for name in ("ours", "theirs")
    )
    for tile in range(tiles):
        graph.set_tile_mapping(ours[tile], source_chip * per_chip + tile)
        graph.set_tile_mapping(theirs[tile], target_chip * per_chip + tile)
    sequence.add(Copy(ours, theirs))


def stream_in(graph: Graph, sequence: Sequence, tiles: int, n_bytes: int) -> None:
    """A stream from the host to the first tiles, n_bytes to each."""
    data = graph.add_variable(UNSIGNED_CHAR, [tiles, n_bytes], "data")
    for tile in range(tiles):
        graph.set_tile_mapping(data[tile], tile)
    fifo = graph.add_host_to_device_fifo("in", UNSIGNED_CHAR, tiles * n_bytes)
    sequence.add(Copy(fifo, data))


def stream_out(graph: Graph, sequence: Sequence, tiles: int, n_bytes: int) -> None:
    """A stream from the first tiles to the host, n_bytes from each."""
    data = graph.add_variable(UNSIGNED_CHAR, [tiles, n_bytes], "data")
    for tile in range(tiles):
        graph.set_tile_mapping(data[tile], tile)
    fifo = graph.add_device_to_host_fifo("out", UNSIGNED_CHAR, tiles * n_bytes)
    sequence.add(Copy(data, fifo))


_BUILDS = (
    sync, sync_chips, send, send_all, collect, copy_on_tile, chase, send_chip,
    stream_in, stream_out,
)  # fmt: skip
PROGRAMS: dict[str, Build] = {build.__name__: build for build in _BUILDS}
PARAMETERS = {name: tuple(inspect.signature(b).parameters)[2:] for name, b in PROGRAMS.items()}


@dataclass(frozen=True, slots=True)
class TemplateRow:
    """A program with its parameters, where to run it, and how its time is best stated."""

    id: str
    program: str
    parameters: Mapping[str, int]
    unit: str = "cycles"
    n_ipus: int = 1
    shows: str = ""


def template_rows(chip: Chip) -> list[TemplateRow]:
    """The 25 rows, with tile numbers for the floor plan of a chip."""
    n_in_column = chip.n_tiles // chip.n_columns
    n_tiles, half = chip.n_tiles, chip.n_columns // 2
    strip = n_in_column // (chip.n_tiles_per_supertile // chip.n_tiles_per_numbering_step)
    far = (half - 1) * n_in_column
    return [
        TemplateRow("sync", "sync", {}, shows="the sync of a chip"),
        TemplateRow("sync-us", "sync", {}, "us", shows="the sync of a chip, and its clock"),
        TemplateRow("sync-chips", "sync_chips", {}, n_ipus=2, shows="the sync of several chips"),
        _send("word-near", 0, 1, 4, "sync and the least latency of the exchange"),
        _send("word-rows", strip - 2, strip - 1, 4, "latency along a column"),
        _send("word-columns", 0, far, 4, "latency along the exchange"),
        _send("word-across", 0, n_tiles - n_in_column, 4, "latency across the exchange"),
        _send("message-4k", 0, 1, 4096, "rate of the exchange, with its start"),
        _send("message-64k", 0, 1, 65536, "rate of the exchange"),
        TemplateRow("all-send", "send_all", {"n_bytes": 16384}, shows="rate, longest latency"),
        TemplateRow("collect-64", "collect", {"tiles": 64, "n_bytes": 4}, shows="many fragments"),
        TemplateRow("collect-512", "collect", {"tiles": 512, "n_bytes": 4}, shows="more fragments"),
        _copy("copy-word", 4, "a copy of one word"),
        _copy("copy-128", 128, "a copy by one worker"),
        _copy("copy-512", 512, "the start of a copy by all workers"),
        _copy("copy-64k", 65536, "the rate of copies"),
        TemplateRow("chase-16", "chase", {"loads": 16}, shows="the start of a compute set"),
        TemplateRow("chase-1k", "chase", {"loads": 1024}, shows="a load every worker slot"),
        TemplateRow("chase-40k", "chase", {"loads": 40_000}, "us", shows="the clock"),
        _send_chip("chip-word", 1, 4, "us", "sync of chips, latency of a link"),
        _send_chip("chip-far", 1, 4, "us", "latency of links along a row of machines", 16),
        _send_chip("chip-words", n_tiles, 4, "us", "messages in flight"),
        _send_chip("chip-bulk", n_tiles, 32768, "us", "rate of links"),
        _stream("host-word", "stream_in", 1, 4, "latency of the host"),
        _stream("host-in", "stream_in", n_tiles, 16384, "rate of the host's link"),
    ]


def _send(name: str, source: int, target: int, n_bytes: int, shows: str) -> TemplateRow:
    parameters = {"source": source, "target": target, "n_bytes": n_bytes}
    return TemplateRow(name, "send", parameters, shows=shows)


def _copy(name: str, n_bytes: int, shows: str) -> TemplateRow:
    return TemplateRow(name, "copy_on_tile", {"n_bytes": n_bytes}, shows=shows)


def _send_chip(
    name: str, tiles: int, n_bytes: int, unit: str, shows: str, n_ipus: int = 4
) -> TemplateRow:
    """From the first chip to the first of the last row of two."""
    parameters = {"source_chip": 0, "target_chip": n_ipus - 2, "tiles": tiles, "n_bytes": n_bytes}
    return TemplateRow(name, "send_chip", parameters, unit, n_ipus, shows)


def _stream(name: str, program: str, tiles: int, n_bytes: int, shows: str) -> TemplateRow:
    return TemplateRow(name, program, {"tiles": tiles, "n_bytes": n_bytes}, "us", shows=shows)


def measured_row(row: TemplateRow, chip: Chip, value: float = 1.0) -> MeasuredRow:
    """A row of the template with a value."""
    parameters = {name: str(number) for name, number in row.parameters.items()}
    return MeasuredRow(
        id=row.id,
        chip=chip.name,
        n_ipus=row.n_ipus,
        workload=row.program,
        parameters=parameters,
        metric="time",
        unit=row.unit,
        value=value,
    )


def modelled_value(row: TemplateRow, chip: Chip) -> float:
    """What a program of the template takes on a chip by the cost model, in the row's unit."""
    return run_program(measured_row(row, chip), chip).in_unit(row.unit)  # pyright: ignore[reportArgumentType]


def _total_bytes(row: MeasuredRow) -> float:
    return float(row.number("n_bytes", 0) * row.number("tiles", 1))


@workload(f"^({'|'.join(PROGRAMS)})$", FAMILY)
def run_program(row: MeasuredRow, chip_name: str) -> ModelledValue:
    """The program alone, once."""
    build = PROGRAMS[row.workload.strip().lower()]
    parameters = {name: row.number(name) for name in PARAMETERS[row.workload.strip().lower()]}
    timing = time_program(
        chip_name, row.n_ipus, lambda graph, sequence: build(graph, sequence, **parameters)
    )
    return ModelledValue.of(timing, n_bytes=_total_bytes(row))
