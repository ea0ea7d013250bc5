"""Streaming memory of a program: remote buffers, and the copies that fetch and store tensors.

Tensors of one size, type and chip are rows of one buffer, as the equal layers of a model have them:
a program that several layers share then takes the row as its argument.
"""

from dataclasses import dataclass

from tremula.base.types import UNSIGNED_INT, Type
from tremula.ir.lowering.tiles import Tiles
from tremula.poplar.graph import Graph
from tremula.poplar.programs import Copy, Waits
from tremula.poplar.streams import RemoteBuffer
from tremula.poplar.tensors.tensor import Tensor


@dataclass(frozen=True)
class Row:
    """A tensor's place off the chip."""

    buffer: RemoteBuffer
    number: int


class StreamingMemory:
    """Hands out rows; a buffer grows with every tensor of its kind."""

    def __init__(self, graph: Graph, waits: Waits):
        self.graph = graph
        self.waits = waits
        self._buffers: dict[tuple[str, Type, int, int], RemoteBuffer] = {}

    def add(self, kind: str, type: Type, n_elements: int, chip: int) -> Row:
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
        return Row(buffer, number)

    def load(self, row: Row, tensor: Tensor, tiles: Tiles) -> None:
        """Fill a tensor, just before it is used."""
        copy = Copy(row.buffer, tensor.flatten(), _offset(row, tiles), waits=self.waits)
        tiles.sequence.add(copy)

    def store(self, tensor: Tensor, row: Row, tiles: Tiles) -> None:
        """Keep a tensor's value off the chip."""
        copy = Copy(tensor.flatten(), row.buffer, _offset(row, tiles), waits=self.waits)
        tiles.sequence.add(copy)


def _offset(row: Row, tiles: Tiles) -> Tensor:
    return tiles.constant([row.number], UNSIGNED_INT)
