"""Exchange: the bytes every tile receives and sends in each step, and what it must copy itself.

A tile receives what its vertices read and it does not hold, each byte once; it sends what other
tiles need of its data, each byte once however many listen (multicast). After compute, outputs go
home. A field must be contiguous in its tile's memory: the exchange can put remote data anywhere,
but the part that is on the tile already has to be copied into place, and outputs copied back.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from functools import lru_cache, partial
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np

from tremula.compiler.file.codec import record
from tremula.compiler.lower.copies import contiguous_pairs
from tremula.compiler.passes.intervals import (
    Edge,
    edges_of_set,
    merge_per_group,
    sum_per_tile,
    union_on_tiles,
)
from tremula.compiler.passes.on_tile_copies import (
    DESCRIPTOR_WORDS,
    LEAST_REGULAR,
    TileCopies,
    copies_of_edges,
    copies_of_pieces,
    descriptor_words,
)
from tremula.compiler.passes.parallel import in_parallel
from tremula.compiler.passes.piece_sweeps import (
    count_covered,
    count_covering,
    cut_copies,
    cut_elsewhere,
    longest_ways,
    pairs_in_turn,
    served_alone,
)
from tremula.compiler.passes.receiving import (
    CONTROLS_OF_OUTSIDE_PIECE,
    RemotePieces,
    controls_of_pieces,
    controls_of_reads,
)
from tremula.compiler.program_ir import (
    HOST_KINDS,
    CopyPlan,
    FrozenComputeSet,
    FrozenGraph,
    LoweredPrograms,
    Step,
    StepKind,
)
from tremula.hardware import Chip, exchange_ways
from tremula.poplar.target import Target
from tremula.poplar.tensors.interval_sweeps import filled, find_entries
from tremula.poplar.tensors.runs import joined_intervals, sorted_ends
from tremula.poplar.tensors.tensor import Tensor
from tremula.poplar.tensors.tile_map import ByteTileMap
from tremula.poplar.tensors.variables import VariableTable

Ints = np.ndarray


@record
@dataclass(frozen=True, slots=True)
class ExchangePhase:
    """One exchange: int64[n_tiles] columns.

    A fragment is a maximal contiguous piece: incoming per pair of sender and receiver, outgoing per
    sender; `n_in_controls` are what a receiver does for them (receiving.py). `shared` are bytes
    that all receiving tiles on a tile's exchange bus take together; `sent_wide` are sent bytes
    whose receivers all do so, `sent_on_bus` what the bus sends in all. `latency` is that of the
    longest path to or from a tile, in cycles; `overlapped` are bytes that arrive while the farthest
    sender's are still in flight. `chip_bytes[a, b]` cross from chip a
    to chip b, each byte once per receiving chip, in `chip_sends[a, b]` messages.
    """

    received: Ints
    sent: Ints
    shared: Ints
    sent_wide: Ints
    sent_on_bus: Ints
    latency: Ints
    overlapped: Ints
    n_in_fragments: Ints
    n_in_controls: Ints
    n_out_fragments: Ints
    chip_bytes: Ints
    chip_sends: Ints

    @property
    def crosses_chips(self) -> bool:
        return bool(self.chip_bytes.any())


@record
@dataclass(frozen=True, slots=True)
class StepExchange:
    """All data movement of a step; None where nothing moves."""

    before: ExchangePhase | None = None
    after: ExchangePhase | None = None  # outputs going home
    gather: TileCopies | None = None  # into place before compute; of a COPY, its on-tile part
    scatter: TileCopies | None = None  # out of place after compute
    buffer_bytes: Ints | None = None  # temporary memory for data that is not at home


NO_EXCHANGE = StepExchange()


def further_on(exchange: StepExchange, n_tiles: int) -> StepExchange:
    """A phase moved to another chip, whose tile numbers are higher by n_tiles."""
    if n_tiles == 0:
        return exchange
    # There is nothing between chips.
    return _with_columns(exchange, lambda c: np.roll(c, n_tiles) if c.ndim == 1 else c)


Part = TypeVar("Part", StepExchange, ExchangePhase, TileCopies)


def _with_columns(part: Part, change: Callable[[Ints], Ints]) -> Part:
    """A phase with each of its columns changed."""

    def changed(value: Any) -> Any:  # noqa: ANN401 - a column, a record of columns or None
        if isinstance(value, np.ndarray):
            return change(value)
        return None if value is None else _with_columns(value, change)

    return type(part)(**{f.name: changed(getattr(part, f.name)) for f in fields(part)})


def exchange_columns(part: Any) -> Iterator[Ints]:  # noqa: ANN401 - a record of columns
    """All columns of an exchange."""
    for field in fields(part):
        value = getattr(part, field.name)
        if isinstance(value, np.ndarray):
            yield value
        elif value is not None:
            yield from exchange_columns(value)


class SharedColumns:
    """Each different column once: exchanges that differ mostly have some in common."""

    def __init__(self) -> None:
        self._known: dict[tuple[tuple[int, ...], int], Ints] = {}

    def of(self, exchange: StepExchange) -> StepExchange:
        """This exchange, sharing equal columns with earlier ones."""
        return _with_columns(exchange, self._column)

    def _column(self, column: Ints) -> Ints:
        key = column.shape, hash(column.tobytes())
        if key not in self._known:  # by itself, not as a part of a larger one
            self._known[key] = column if column.base is None else column.copy()
            self._known[key].flags.writeable = False
        known = self._known[key]
        return known if np.array_equal(known, column) else column


@record
@dataclass(frozen=True, slots=True)
class StepExchanges:
    """The exchanges of a program; steps of the same compute set share theirs."""

    distinct: tuple[StepExchange, ...]  # first those of compute sets that differ
    row_of_step: Ints  # int64[n_steps]: row of `distinct`, -1 for steps that move nothing
    row_of_set: Ints  # int64[n_compute_sets]
    n_uses: Ints  # int64[n_distinct]: sets or copies that are alike, each with its own code

    def of_step(self, step: int) -> StepExchange:
        row = int(self.row_of_step[step])
        return NO_EXCHANGE if row < 0 else self.distinct[row]

    def of_compute_set(self, compute_set: int) -> StepExchange:
        return self.distinct[int(self.row_of_set[compute_set])]


def exchanges_of(programs: LoweredPrograms) -> StepExchanges:
    """What every static step moves."""
    graph = programs.graph
    firsts, row_of_set, n_alike = np.unique(
        np.array(graph.set_numbers(), np.int64), return_inverse=True, return_counts=True
    )
    sets = [graph.compute_sets[i] for i in firsts.tolist()]
    copies = sorted({copy.first for copy in programs.alike_copies})
    on_chips = graph.set_on_chips()
    alike = [(int(on_chips.first[i]), int(on_chips.n_tiles[i])) for i in firsts.tolist()]
    columns = SharedColumns()
    of_set = partial(exchange_of_compute_set, graph=graph)
    distinct = _of_distinct(of_set, graph.compute_sets, alike, columns)
    alike = [(c.first_on_chips, c.n_tiles) for c in (programs.alike_copies[i] for i in copies)]
    of_copy = partial(exchange_of_copy, graph=graph)
    distinct += _of_distinct(of_copy, programs.copies, alike, columns)
    row_of_step = np.full(len(programs.steps), -1, np.int64)
    copy_of_step = programs.copies_by_step()
    row_of_copy = {copy: len(sets) + i for i, copy in enumerate(copies)}
    n_uses = [*n_alike.tolist(), *[0] * len(copies)]
    for number, step in enumerate(programs.steps):
        if step.kind is StepKind.EXECUTE:
            row_of_step[number] = row_of_set[step.compute_set]
            continue
        if step.kind is StepKind.COPY:
            row = row_of_copy[programs.alike_copies[copy_of_step[number]].first]
            row_of_step[number] = row
            n_uses[row] += 1
            continue
        if step.kind is StepKind.CROSS_REPLICA or step.kind in HOST_KINDS:
            moved = columns.of(_exchange_with_outside(step, graph))
        else:
            continue
        row_of_step[number] = len(distinct)
        distinct.append(moved)
        n_uses.append(1)
    return StepExchanges(tuple(distinct), row_of_step, row_of_set, np.array(n_uses, np.int64))


Moving = TypeVar("Moving", FrozenComputeSet, CopyPlan)


def _of_distinct(
    exchange_of: Callable[[Moving], StepExchange],
    moving: Sequence[Moving],
    alike: list[tuple[int, int]],
    columns: SharedColumns,
) -> list[StepExchange]:
    """Exchanges of those that are alike: the number of the first, and how many tiles further on."""
    firsts = dict.fromkeys(first for first, _ in alike)
    result = in_parallel(
        lambda number: columns.of(exchange_of(moving[number])),
        firsts,
        lambda number: moving[number].n_runs,
    )
    known = dict(zip(firsts, result, strict=True))
    return [
        known[first] if n_tiles == 0 else columns.of(further_on(known[first], n_tiles))
        for first, n_tiles in alike
    ]


def exchange_of_compute_set(compute_set: FrozenComputeSet, graph: FrozenGraph) -> StepExchange:
    """Inputs to the vertices, outputs back home, and rearrangement on the tiles."""
    edges, n_tiles = edges_of_set(compute_set), graph.target.n_tiles
    are_read = [e for e in edges if e.spec.is_read]
    read = remote_needs(are_read, graph)
    written = remote_needs((e for e in edges if e.spec.is_written), graph)
    before = _phase(read, controls_of_reads(read, are_read, n_tiles), graph)
    home = written.sent_home()
    after = _phase(home, controls_of_pieces(home, home.low, n_tiles), graph)
    gather, scatter, scratch = copies_of_edges(edges, graph)
    buffers = scratch
    for phase, is_out in ((before, False), (after, True)):
        if phase is not None:
            buffers = buffers + (phase.sent if is_out else phase.received)
    if before is not None and after is not None:
        buffers = buffers - _in_both(read, written, graph)
    return StepExchange(before, after, gather, scatter, buffers if buffers.any() else None)


class CopyPieces(NamedTuple):
    """A copy cut where tiles change: bytes from `begin` on one tile to `goal` on another."""

    from_tile: Ints
    to_tile: Ints
    begin: Ints
    goal: Ints
    size: Ints

    @property
    def is_remote(self) -> Ints:
        return self.from_tile != self.to_tile

    def between_tiles(self) -> tuple[RemotePieces, Ints]:
        """Pieces that are exchanged, by the tile that takes them and address; where they go."""
        is_remote = self.is_remote
        from_tile, to_tile, begin, goal, size = (column[is_remote] for column in self)
        place = to_tile * (begin.max(initial=0) + 1) + begin
        if bool((place[1:] < place[:-1]).any()):
            order = np.argsort(place, kind="stable")
            columns = from_tile, to_tile, begin, goal, size
            from_tile, to_tile, begin, goal, size = (column[order] for column in columns)
        return RemotePieces(to_tile, begin, begin + size, from_tile), goal


def pieces_of_copy(plan: CopyPlan, graph: "MappedGraph") -> CopyPieces:
    pairs, of = contiguous_pairs(plan), graph.tile_map
    entries = of.entries_at(pairs[0]), of.entries_at(pairs[1])
    n_expected = 2 * len(pairs[0]) + 64  # most are cut once or not at all
    return CopyPieces(*filled(cut_copies, 5, n_expected, *of, *pairs, *entries))


def exchange_of_copy(plan: CopyPlan, graph: FrozenGraph) -> StepExchange:
    """Remote pieces are exchanged; pieces that stay on a tile, or are needed twice, are copied."""
    of, n_tiles = pieces_of_copy(plan, graph), graph.target.n_tiles
    stays = ~of.is_remote
    tile, begin, goal_low, size = (c[stays] for c in (of.to_tile, of.begin, of.goal, of.size))
    staying = sum_per_tile(tile, size, n_tiles)
    pieces, goal = of.between_tiles()
    arriving = sum_per_tile(pieces.here, pieces.high - pieces.low, n_tiles)
    phase = _phase(pieces, controls_of_pieces(pieces, goal, n_tiles), graph)
    again = arriving - (phase.received if phase is not None else 0)
    if plan.overlaps:  # everything goes through a buffer
        again = again + arriving + staying
    copies = copies_of_pieces(tile, size, again, graph.target.chip, n_tiles)
    if copies is not None and copies.n_copies.max() >= LEAST_REGULAR:
        words = descriptor_words(tile, begin, goal_low, size, n_tiles)
        words += DESCRIPTOR_WORDS * (again > 0)
        copies = replace(copies, n_words=words)
    buffers = arriving + staying if plan.overlaps else None
    return StepExchange(phase, None, copies, None, buffers)


class MappedGraph(Protocol):
    """What is enough of a graph to say what moves: its tiles, its variables, and where they lie."""

    @property
    def target(self) -> Target: ...

    @property
    def variables(self) -> VariableTable: ...

    @property
    def tile_map(self) -> ByteTileMap: ...


def remote_needs(edges: Iterable[Edge], graph: MappedGraph) -> RemotePieces:
    """What the vertices of each tile read, or write, of other tiles' data.

    Sorted by tile and address, each byte once a tile.
    """
    n_tiles, span = graph.target.n_tiles, graph.variables.n_bytes
    parts = [(np.empty(0, np.int64),) * 3]
    for edge in edges:
        begin, end, row, _ = edge.intervals
        parts.append(merge_per_group(edge.table.tile[row], begin, end, n_tiles, span)[:3])
    tile, begin, end = (np.concatenate(c) for c in zip(*parts, strict=True))
    if len(parts) > 2:  # of several edges
        tile, begin, end = merge_per_group(tile, begin, end, n_tiles, span)[:3]
    n_expected = len(begin) + len(begin) // 4 + 64  # few are cut
    entry = graph.tile_map.entries_at(begin)
    columns = *graph.tile_map, tile, begin, end, entry
    return RemotePieces(*filled(cut_elsewhere, 4, n_expected, *columns))


def _in_both(read: RemotePieces, written: RemotePieces, graph: FrozenGraph) -> Ints:
    """int64[n_tiles]: remote bytes both read and written by a tile need one buffer, not two."""
    n_tiles, span = graph.target.n_tiles, graph.variables.n_bytes
    tile, low, high = (np.concatenate(c) for c in zip(read[:3], written[:3], strict=True))
    union = merge_per_group(tile, low, high, n_tiles, span).n_bytes
    return sum_per_tile(tile, high - low, n_tiles) - union


def _phase(pieces: RemotePieces, n_in_controls: Ints, graph: FrozenGraph) -> ExchangePhase | None:
    """The columns of an exchange that brings pieces to the tiles that need them."""
    destination, low, high, source = pieces
    if not len(low):
        return None
    target, span = graph.target, graph.variables.n_bytes
    n_tiles = target.n_tiles
    # A piece that brings no new byte to its tile (a repeated source) is not a fragment.
    got = union_on_tiles(destination, low, high, n_tiles, span)
    sent = merge_per_group(source, low, high, n_tiles, span)
    crosses = source // target.tiles_per_ipu != destination // target.tiles_per_ipu
    shared, sent_wide = shared_on_buses(
        got[:3], sent[:3], (low[crosses], high[crosses]), target, span
    )
    bus = bus_of_tiles(target)
    pairs = _pairs_of_tiles(source, destination)
    return ExchangePhase(
        got.n_bytes,
        sent.n_bytes,
        shared,
        sent_wide,
        sum_per_tile(bus, sent.n_bytes, int(bus[-1]) + 1)[bus],
        longest_latency(*pairs, target),
        overlapped_bytes(pairs, source, low, high, n_tiles),
        got.n_new,
        n_in_controls,
        sent.n_joined,
        *_between_chips(source, destination, low, high, target, span),
    )


def _between_chips(
    source: Ints, destination: Ints, low: Ints, high: Ints, target: Target, span: int
) -> tuple[Ints, Ints]:
    """int64[n_chips, n_chips] each: bytes from chip to chip, and messages.

    On GC2 a message is what is in one piece on a tile and goes to one chip, to whichever of its
    tiles: a column of a grid is as many messages as it has rows. For later chips
    what a tile sends to a chip is taken to be one message, since two measured grids over four GC200
    show no turn for each row; no document says so.
    """
    n_chips = target.n_ipus
    chip_bytes, n_sends = (np.zeros(n_chips * n_chips, np.int64) for _ in range(2))
    from_chip, to_chip = source // target.tiles_per_ipu, destination // target.tiles_per_ipu
    crosses = from_chip != to_chip
    if crosses.any():
        pair = (from_chip * n_chips + to_chip)[crosses]
        chip_bytes += merge_per_group(
            pair, low[crosses], high[crosses], n_chips * n_chips, span
        ).n_bytes
        sender, group = np.unique(
            source[crosses] * np.int64(n_chips) + to_chip[crosses], return_inverse=True
        )
        messages = np.ones(len(sender), np.int64)
        if target.chip.arch == "ipu1":
            pieces = merge_per_group(group, low[crosses], high[crosses], len(sender), span)
            messages = pieces.n_joined
        tile, chip = np.divmod(sender, n_chips)
        n_sends += sum_per_tile(tile // target.tiles_per_ipu * n_chips + chip, messages, n_chips**2)
    shape = (n_chips, n_chips)
    return chip_bytes.reshape(shape), n_sends.reshape(shape)


def _exchange_with_outside(step: Step, graph: FrozenGraph) -> StepExchange:
    """Streams, remote buffers, other replicas: tiles send what is read, receive what is written."""
    sent, n_out = _tensor_bytes(step.reads, graph)
    received, n_in = _tensor_bytes(step.writes, graph)
    if not (sent.any() or received.any()):
        return NO_EXCHANGE
    nothing = np.zeros_like(sent)
    chips = np.zeros((graph.target.n_ipus,) * 2, np.int64)
    latency = np.full_like(sent, graph.target.chip.exchange_latency_cycles)
    controls = CONTROLS_OF_OUTSIDE_PIECE * n_in
    phase = ExchangePhase(
        received, sent, nothing, nothing, nothing, latency, nothing, n_in, controls, n_out,
        chips, chips,
    )  # fmt: skip
    return StepExchange(phase)


def _tensor_bytes(tensors: Iterable[Tensor], graph: FrozenGraph) -> tuple[Ints, Ints]:
    """int64[n_tiles] bytes of tensors on each tile, and pieces."""
    n_tiles = graph.target.n_tiles
    n_bytes, n_pieces = np.zeros(n_tiles, np.int64), np.zeros(n_tiles, np.int64)
    for tensor in tensors:
        _, low, high, tile = graph.tile_map.split(*joined_intervals(*tensor.covered_intervals()))
        n_bytes += sum_per_tile(tile, high - low, n_tiles)
        n_pieces += sum_per_tile(tile, None, n_tiles)
    return n_bytes, n_pieces


# -- how tiles share the exchange: buses of neighbours, distances, overlap -------------------------


Pieces = tuple[Ints, Ints, Ints]  # tile, begin, end; those of a tile are disjoint


def bus_of_tiles(target: Target) -> Ints:
    """int64[n_tiles]: the exchange bus of each tile; neighbours share one."""
    return _bus_of_tiles(target.n_tiles, target.tiles_per_ipu, target.chip.n_tiles_per_exchange_bus)


@lru_cache(4)  # each exchange needs it twice
def _bus_of_tiles(n_tiles: int, per_chip: int, n_on_bus: int) -> Ints:
    tile = np.arange(n_tiles)
    result = tile // per_chip * -(-per_chip // n_on_bus) + tile % per_chip // n_on_bus
    result.flags.writeable = False
    return result


def shared_on_buses(
    got: Pieces, sent: Pieces, crossing: tuple[Ints, Ints], target: Target, span: int
) -> tuple[Ints, Ints]:
    """int64[n_tiles] each: bytes a tile receives, and bytes it sends, at the rate of a whole bus.

    A bus brings data faster if all its tiles that receive anything take it, and enough tiles of
    the machine do; a sender is faster if all receivers of its data take it so. Data that goes to
    other chips, too (`crossing`), leaves its tile at the plain rate.
    """
    n_tiles, chip = target.n_tiles, target.chip
    nothing = np.zeros(n_tiles, np.int64)
    if chip.n_tiles_per_exchange_bus < 2:
        return nothing, nothing
    if chip.n_receivers_for_double_width > 1 and _n_bytes(got) == _n_bytes(sent):
        return nothing, nothing  # every byte has one receiver: too few
    tile, low, high = got
    bus_of_tile = bus_of_tiles(target)
    n_buses = int(bus_of_tile[-1]) + 1
    receives = np.zeros(n_tiles, bool)
    receives[tile] = True
    n_receiving = sum_per_tile(bus_of_tile[receives], None, n_buses)
    shift = bus_of_tile[tile] * span
    place, n_takers = _sweep(low + shift, high + shift)
    begin, end, n_takers = place[:-1], place[1:], n_takers[:-1]
    bus = begin // span
    where = begin - bus * span
    together = (n_takers == n_receiving[bus]) & (end > begin)
    few_begin, few_end = _taken_by_few(low, high, chip.n_receivers_for_double_width)
    few_begin, few_end = (
        np.concatenate(c) for c in zip((few_begin, few_end), crossing, strict=True)
    )
    fast = (end - begin)[together] - _covered(
        few_begin, few_end, where[together], (where + end - begin)[together]
    )
    shared = sum_per_tile(bus[together], fast, n_buses)[bus_of_tile] * receives
    apart = ~together & (n_takers > 0) & (end > begin)
    slow_begin = np.concatenate((few_begin, where[apart]))
    slow_end = np.concatenate((few_end, (where + end - begin)[apart]))
    tile, low, high = sent
    wide = high - low - _covered(slow_begin, slow_end, low, high)
    return shared, sum_per_tile(tile, wide, n_tiles)


def _n_bytes(pieces: Pieces) -> int:
    return int((pieces[2] - pieces[1]).sum())


def _taken_by_few(low: Ints, high: Ints, n_enough: int) -> tuple[Ints, Ints]:
    """(begin, end) of what fewer than n_enough of the intervals cover, but some do."""
    place, n_takers = _sweep(low, high)
    is_few = (n_takers[:-1] > 0) & (n_takers[:-1] < n_enough)
    return place[:-1][is_few], place[1:][is_few]


def _sweep(low: Ints, high: Ints) -> tuple[Ints, Ints]:
    """Sorted ends of intervals, and how many intervals lie over what follows each of them."""
    result = np.empty((2, 2 * len(low)), np.int64)
    count_covering(*sorted_ends(low, high), result)
    return result[0], result[1]


def _covered(low: Ints, high: Ints, begin: Ints, end: Ints) -> Ints:
    """Bytes of each [begin, end) that the union of the intervals [low, high) covers."""
    result = np.zeros(len(begin), np.int64)
    low, high = joined_intervals(low, high)
    if len(low):
        so_far = np.concatenate(([0], np.cumsum(high - low)))
        entries = np.empty((2, len(begin)), np.int64)
        find_entries(high, begin, entries[0])
        find_entries(high, end, entries[1])
        count_covered(low, so_far, begin, end, entries, result)
    return result


def _pairs_of_tiles(source: Ints, destination: Ints) -> tuple[Ints, Ints]:
    """(sender, receiver) of pieces, fewer times than there are pieces."""
    pairs = np.empty((2, len(source)), np.int64)
    (n,) = pairs_in_turn(source, destination, pairs)
    return pairs[0, :n], pairs[1, :n]


def longest_latency(source: Ints, destination: Ints, target: Target) -> Ints:
    """int64[n_tiles]: cycles of the longest path to or from each tile.

    Between chips it is that of tiles in the same places of one chip: the paths to and from the
    links. The latency of the links themselves is not counted here.
    """
    longest = np.zeros(target.n_tiles, np.int64)
    ways = _ways_of_tiles(target.chip, target.tiles_per_ipu, target.n_ipus)
    longest_ways(source, destination, target.chip.exchange_latency_cycles, *ways, longest)
    return longest


@lru_cache(4)  # each exchange needs them twice
def _ways_of_tiles(chip: Chip, per_chip: int, n_chips: int) -> tuple[Ints, ...]:
    return tuple(np.tile(column[:per_chip], n_chips) for column in exchange_ways(chip))


def overlapped_bytes(
    pairs: tuple[Ints, Ints], source: Ints, low: Ints, high: Ints, n_tiles: int
) -> Ints:
    """int64[n_tiles]: what a tile receives while the data of its farthest sender is in flight.

    Senders that serve this tile alone can be timed so that their data comes one after another.
    """
    n_senders, n_bytes = (np.zeros(n_tiles, np.int64) for _ in range(2))
    served_alone(*pairs, source, low, high, np.full(n_tiles, -1), n_senders, n_bytes)
    return n_bytes - -(-n_bytes // np.maximum(n_senders, 1))
