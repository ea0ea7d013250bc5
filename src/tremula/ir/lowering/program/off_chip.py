"""Tensors of a step that are in streaming memory, and when a program fetches and stores them."""

from collections.abc import Callable
from functools import partial

from torch import fx

from tremula.ir.locations import HostHandle, Location
from tremula.ir.lowering.program.node_queries import base_of, follows_operand, held_by_result
from tremula.ir.lowering.program.schedule import Schedule
from tremula.ir.lowering.program.streaming import RemoteRow, StreamingMemory
from tremula.ir.lowering.program.values import Read, StepValues, half_of_io_graph
from tremula.ir.lowering.tiles import Tiles
from tremula.ir.passes.shard_update import N_SHARDS
from tremula.ir.step import PARAMETER, STATE, StepSlot
from tremula.poplar.programs import Sequence, Waits
from tremula.poplar.tensors.tensor import Tensor
from tremula.poplibs import poputil


class OffChipTensors:
    """Rows of streaming memory: of weights and states, of activations, of sums of gradients."""

    def __init__(self, values: StepValues, schedule: Schedule, waits: Waits):
        self.values = values
        self.locations = values.options.locations
        n_io_tiles = values.options.n_io_tiles
        overlaps = bool(n_io_tiles) and not schedule.is_pipelined
        io_tiles = partial(half_of_io_graph, values.graph, n_io_tiles) if overlaps else None
        self.memory = StreamingMemory(values.graph, waits, io_tiles)
        self.rows: dict[fx.Node, RemoteRow] = {}  # of weights and states
        # Of activations: their row, what they were, how a clone repeats elements alike.
        self._activations: dict[fx.Node, tuple[RemoteRow, Tensor, Callable[[Tensor], Tensor]]] = {}
        self._sums: dict[int, RemoteRow] = {}  # of gradients, by variable
        self._loaded: set[tuple[fx.Node, object]] = set()  # in which part of the program
        self._held_by_result = held_by_result(values.step)

    # -- weights and states ------------------------------------------------------------------------

    def hold(self, slot: StepSlot, node: fx.Node, tensor: Tensor) -> HostHandle:
        """Where the host finds a resident tensor: on the tiles, or in a row of a remote buffer."""
        n_shards = node.meta.get(N_SHARDS, 1)
        location, chip = self._location_of(slot), self.values.chip_of[node]
        if location.leaves(tensor.n_elems * n_shards):
            row = self.memory.add(slot.kind, location, tensor.type, tensor.n_elems, chip)
            self.rows[node] = row
            return HostHandle(row.buffer.handle, row.number, n_shards)
        handle = f"{slot.kind}:{slot.name}"
        self.values.graph.create_host_write(handle, tensor)
        self.values.graph.create_host_read(handle, tensor)
        return HostHandle(handle, n_shards=n_shards)

    def _location_of(self, slot: StepSlot) -> Location:
        kinds = {PARAMETER: self.locations.weight, STATE: self.locations.state}
        return kinds.get(slot.kind, Location())

    def load(self, node: fx.Node, tiles: Tiles, part: object) -> None:
        """Fetch a weight or a state before its first reader in a part of the program."""
        base = base_of(node)
        key = (base, part)
        if base in self.rows and key not in self._loaded and not follows_operand(tiles.node):
            self._loaded.add(key)
            self.fetch(base, tiles)

    def fetch(self, node: fx.Node, tiles: Tiles) -> None:
        """Copy a weight or a state to its variable."""
        chip = self.values.chip_of[node]
        home = self.values.tiles_on(tiles.node, chip, tiles.sequence)
        self.memory.load(self.rows[node], self.values.tensor(node), home)

    def store(self, node: fx.Node, update: Sequence) -> None:
        """Send new weights and states to streaming memory as soon as they are computed."""
        for state_node in self._held_by_result.get(node, ()):
            if state_node in self.rows:
                tiles = self.values.tiles_on(node, self.values.chip_of[node], update)
                self.memory.store(self.values.tensor(node), self.rows[state_node], tiles)

    # -- activations -------------------------------------------------------------------------------

    def leave(self, node: fx.Node, tiles: Tiles) -> None:
        """Send a value away that a later part of the program fetches."""
        value = self.values.of_node[node]
        if isinstance(value, Tensor) and value.n_elems and not value.contains_constant:
            distinct, repeated = poputil.distinct_part(value)
            kind, location = "activation", self.locations.activation
            row = self.memory.add(kind, location, value.type, distinct.n_elems, tiles.chip)
            self.memory.store(poputil.in_memory_order(distinct, [])[0], row, tiles)
            self._activations[node] = (row, distinct, repeated)

    def fetched(self, node: fx.Node, tiles: Tiles, read: Read) -> object:
        """A value that left the chip, laid out as it was there."""
        source = node.all_input_nodes[0]
        if source not in self._activations:
            return read(source)
        row, distinct, repeated = self._activations[source]
        clone = poputil.clone_in_order(self.values.graph, distinct, tiles.name)
        home = self.values.tiles_on(node, self.values.chip_of[source], tiles.sequence)
        self.values.chip_of[node] = home.chip
        self.memory.load(row, poputil.in_memory_order(distinct, [clone])[1][0], home)
        return repeated(clone)

    # -- sums of gradients -------------------------------------------------------------------------

    def add_sum(self, total: Tensor, tiles: Tiles) -> None:
        """Give a sum of gradients a row if it is to be off the chip, and store it there."""
        location = self.locations.accumulator
        if location.leaves(total.n_elems):
            row = self.memory.add("accumulator", location, total.type, total.n_elems, tiles.chip)
            self._sums[_variable_of(total)] = row
            self.store_sum(total, tiles)

    def load_sum(self, total: Tensor, tiles: Tiles) -> None:
        row = self._sums.get(_variable_of(total))
        if row is not None:
            self.memory.load(row, total, tiles)

    def store_sum(self, total: Tensor, tiles: Tiles) -> None:
        row = self._sums.get(_variable_of(total))
        if row is not None:
            self.memory.store(total, row, tiles)


def _variable_of(total: Tensor) -> int:
    return int(next(iter(total.variable_ids())))
