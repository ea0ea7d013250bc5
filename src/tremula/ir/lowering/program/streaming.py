"""Streaming memory of a program: remote buffers, and the copies that fetch and store tensors.

Tensors of one size, type and chip are rows of one buffer, as the equal layers of a model have them:
a program that several layers share then takes the row as its argument.

Tiles that are set aside for transfers load a tensor ahead: as soon as the one before it was taken
from them, while the others compute. One half of them loads, the other stores:

    take k ─┬─ compute with k ............. ─┬─ take k + 1
            └─ load k + 1 on tiles for I/O  ─┘
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from tremula.base.types import UNSIGNED_INT, Type
from tremula.ir.locations import Location
from tremula.ir.lowering.tiles import Tiles
from tremula.poplar.graph import Graph
from tremula.poplar.programs import Copy, Sequence, Waits
from tremula.poplar.streams import RemoteBuffer
from tremula.poplar.tensors.tensor import Tensor

# The tiles of a chip that load, or those that store.
IoTiles = Callable[[int, bool], Graph]


@dataclass(frozen=True)
class RemoteRow:
    """A tensor in streaming memory: one row of a remote buffer."""

    buffer: RemoteBuffer
    number: int
    location: Location

    @property
    def key(self) -> tuple[str, int]:
        return self.buffer.handle, self.number


class StreamingMemory:
    """Hands out rows; a buffer grows with every tensor of its kind."""

    def __init__(self, graph: Graph, waits: Waits, io_tiles: IoTiles | None = None):
        self.graph = graph
        self.waits = waits
        self.io_tiles = io_tiles
        self._buffers: dict[tuple[str, Type, int, int], RemoteBuffer] = {}
        self._ahead: dict[int, _Ahead] = {}  # by sequence

    def add(
        self, kind: str, location: Location, type: Type, n_elements: int, chip: int
    ) -> RemoteRow:
        """A new row for a tensor of a kind: weight, state, …"""
        key = (kind, type, n_elements, chip)
        buffer = self._buffers.get(key)
        if buffer is None:
            handle = f"remote:{kind}:{type.name}:{n_elements}:chip{chip}"
            buffer = self.graph.add_remote_buffer(handle, type, n_elements)
            number = 0
        else:
            number = buffer.repeats
            buffer = self.graph.resize_remote_buffer(buffer.handle, number + 1)
        self._buffers[key] = buffer
        return RemoteRow(buffer, number, location)

    def load(self, row: RemoteRow, tensor: Tensor, tiles: Tiles) -> None:
        """Fill a tensor, just before it is used."""
        if row.location.uses_io_tiles and self.io_tiles is not None:
            self._load_ahead(row, tensor, tiles)
            return
        # Not flattened: of a tensor in another order that would be a piece for every few elements.
        tiles.sequence.add(Copy(row.buffer, tensor, _offset(row, tiles), waits=self.waits))

    def store(self, tensor: Tensor, row: RemoteRow, tiles: Tiles) -> None:
        """Keep a tensor's value off the chip."""
        sequence = tiles.sequence
        self._ahead_in(sequence).stored.add(row.key)
        if row.location.stores_on_io_tiles and self.io_tiles is not None:
            io = self.io_tiles(tiles.chip, True)
            waiting = _waiting(tensor, io)
            sequence.add(Copy(tensor.flatten(), waiting))
            sequence.add(Copy(waiting, row.buffer, _number(row, io), waits=Waits.NONE))
        else:
            sequence.add(Copy(tensor, row.buffer, _offset(row, tiles), waits=self.waits))

    def _load_ahead(self, row: RemoteRow, tensor: Tensor, tiles: Tiles) -> None:
        """Begin where the last one was taken; loads that are taken together begin together."""
        assert self.io_tiles is not None, "asked for only if there are some"
        sequence = tiles.sequence
        ahead = self._ahead_in(sequence)
        place = ahead.place
        if row.key in ahead.stored:  # not before it was stored
            place = ahead.last = Sequence()
            sequence.add(place)
        elif ahead.last is not None and sequence.steps[-1] is ahead.place:
            place = ahead.last
        io = self.io_tiles(tiles.chip, False)
        waiting = _waiting(tensor, io)
        place.add(Copy(row.buffer, waiting, _number(row, io), waits=Waits.NONE))
        sequence.add(Copy(waiting, tensor.flatten()))
        self._ahead[id(sequence)] = _Ahead(Sequence(), place)
        sequence.add(self._ahead[id(sequence)].place)

    def _ahead_in(self, sequence: Sequence) -> "_Ahead":
        if id(sequence) not in self._ahead:
            self._ahead[id(sequence)] = _Ahead(Sequence())
            sequence.add(self._ahead[id(sequence)].place)
        return self._ahead[id(sequence)]


@dataclass
class _Ahead:
    """Of a sequence: where loads may begin."""

    place: Sequence  # the next ones
    last: Sequence | None = None  # those before
    stored: set[tuple[str, int]] = field(default_factory=set)  # since they were taken


def _waiting(like: Tensor, io: Graph) -> Tensor:
    return io.add_variable(like.type, [like.n_elems], "waiting", mapping="linear")


def _number(row: RemoteRow, io: Graph) -> Tensor:
    """The row on a tile for transfers, so that no other one takes part in them."""
    return io.add_constant(UNSIGNED_INT, [1], [row.number], mapping=0)


def _offset(row: RemoteRow, tiles: Tiles) -> Tensor:
    return tiles.constant([row.number], UNSIGNED_INT)
