"""Builds variables, streams and vertices of a step that runs one micro-batch after another."""

from collections.abc import Callable
from typing import Any

from torch import fx

from tremula.base.errors import InvalidOption
from tremula.base.replica_group import ReplicaGroup
from tremula.base.source import at_source
from tremula.base.types import FLOAT
from tremula.ir.locations import HeldPlace, Location
from tremula.ir.lowering.bfloat16 import with_rounded, with_rounded_numbers
from tremula.ir.lowering.layouts import preferred_layout, spread_by_name
from tremula.ir.lowering.pointwise.fused import Folded
from tremula.ir.lowering.pointwise.map import narrow, wide
from tremula.ir.lowering.program.node_facts import (
    GRADIENT_MARK,
    base_of,
    check_result,
    chips_of_nodes,
    follows_operand,
    held_by_result,
    held_nodes,
    is_of_update,
    n_elements,
    overwrites,
    source_of_user,
)
from tremula.ir.lowering.program.overlap import (
    Overlap,
    StepParts,
    overlap_modes,
    overlapped_program,
    spans_iterations,
)
from tremula.ir.lowering.program.schedule import BuiltProgram, Schedule
from tremula.ir.lowering.program.streaming import Row, StreamingMemory
from tremula.ir.lowering.shards import add_shard, scattered_together
from tremula.ir.lowering.tiles import HOST_FUNCTIONS, LoweringOptions, Tiles
from tremula.ir.lowering.types import tile_type
from tremula.ir.nodes import is_view
from tremula.ir.op_table import lowering_of
from tremula.ir.origin import BACKWARD, FORWARD, OPTIMISER, ORIGIN
from tremula.ir.passes.offload_activations import FETCHED
from tremula.ir.passes.shard_update import N_SHARDS
from tremula.ir.step import BUFFER, HYPER, INPUT, OUTPUT, PARAMETER, STATE, CapturedStep, StepSlot
from tremula.poplar.graph import Graph
from tremula.poplar.programs import Copy, Program, Repeat, Sequence, Sync, SyncType, Waits
from tremula.poplar.target import Target
from tremula.poplar.tensors.tensor import Tensor, concat
from tremula.poplibs import gcl, popops, poputil
from tremula.poplibs.popops.elementwise.expr import _1, _2, _3

# Elements of a tensor that goes to another chip whole: an exchange between chips takes hundreds of
# cycles to begin, and code of its own on both.
_N_COPIED_WHOLE = 1024


class StepBuilder:
    """Every chip takes its turn with each micro-batch. A pipeline replaces some of the methods."""

    def __init__(
        self, step: CapturedStep, target: Target, schedule: Schedule, options: LoweringOptions
    ):
        self.step = step
        self.schedule = schedule
        self.options = options
        self.graph = Graph(target, schedule.n_replicas)
        self.chips = self._chip_graphs()
        self.before = Sequence()  # what runs before the first micro-batch of each update
        self.micro = Sequence()
        self.update = Sequence()
        self.values: dict[fx.Node, object] = {}
        self.copies: dict[tuple[fx.Node, int], Tensor] = {}
        self.shared: list[dict] = [{} for _ in self.chips]
        self.built = BuiltProgram(self.graph, self.micro)
        self.chip_of = chips_of_nodes(step, self._own_chip)
        self.folded = Folded(step.graph, self.chip_of)
        self.overwrites = self._overwrites()
        self.waits = Waits.ALL if schedule.waits_for_all else Waits.OWN
        overlaps = bool(options.n_io_tiles) and not schedule.is_pipelined
        io_tiles = self._half_of_io_tiles if overlaps else None
        self.memory = StreamingMemory(self.graph, self.waits, io_tiles)
        self.rows: dict[fx.Node, Row] = {}  # of weights and states in streaming memory
        # Of activations: where they went, what they were, how a clone repeats elements alike.
        self.left: dict[fx.Node, tuple[Row, Tensor, Callable[[Tensor], Tensor]]] = {}
        self.total_rows: dict[int, Row] = {}  # of sums of gradients, by variable
        # Gradients nobody has read yet: what brings this replica's sum, and where it is then.
        self.deferred: dict[fx.Node, Callable[[], tuple[Tensor, Tiles]]] = {}
        self.loaded: set[tuple[fx.Node, object]] = set()  # in which part of the program
        self.held_by_result = held_by_result(step)
        self.overlap = Overlap()
        self.overlap_modes = overlap_modes(step) if options.n_io_tiles else {}
        self.counters: dict[int, Tensor] = {}  # of micro-batches, by the sequence that counts

    def _chip_graphs(self) -> list[Graph]:
        _check_io_tiles(self.options.n_io_tiles, self.graph.target)
        if self.graph.target.n_ipus == 1 and not self.options.n_io_tiles:
            return [self.graph]
        n_tiles, n_io = self.graph.target.tiles_per_ipu, self.options.n_io_tiles
        return [
            self.graph.create_virtual_graph(chip * n_tiles, (chip + 1) * n_tiles - n_io)
            for chip in range(self.graph.target.n_ipus)
        ]

    def _io_graph(self, chip: int) -> Graph:
        """The tiles of a chip that are set aside for transfers: its last ones."""
        n_tiles = self.graph.target.tiles_per_ipu
        end = (chip + 1) * n_tiles
        return self.graph.create_virtual_graph(end - self.options.n_io_tiles, end)

    def _half_of_io_tiles(self, chip: int, stores: bool) -> Graph:
        """Of the tiles for transfers, those that load from streaming memory or store to it."""
        end = (chip + 1) * self.graph.target.tiles_per_ipu
        begin = end - self.options.n_io_tiles
        middle = begin + (self.options.n_io_tiles + 1) // 2
        if middle == end:  # a single one does both
            return self.graph.create_virtual_graph(begin, end)
        return self.graph.create_virtual_graph(*((middle, end) if stores else (begin, middle)))

    def build(self, progress: Callable[[int, int], None] | None) -> BuiltProgram:
        nodes = list(self.step.graph.nodes)
        self._hold_inputs()
        for done, node in enumerate(nodes):
            if node.op == "get_attr":
                self.values[node] = self._constant(node, self.chip_of[node])
            elif node.op == "call_function":
                self._lower(node)
            if progress is not None:
                progress(done + 1, len(nodes))
        self._give_results()
        for shared in self.shared:
            self.built.host_functions.update(shared.get(HOST_FUNCTIONS, {}))
        self.built.program = self._called(self._program())
        return self.built

    # -- where things are --------------------------------------------------------------------------

    def _own_chip(self, node: fx.Node) -> int | None:
        """The chip of its block; a view is where its base is, an update where the weights are."""
        origin = node.meta.get(ORIGIN)
        if origin is None or origin.block is None or not self.schedule.chip_of_block:
            return None
        if follows_operand(node) or origin.phase == OPTIMISER:
            return None
        return self.schedule.chip_of_block[origin.block]

    def _overwrites(self) -> dict[fx.Node, fx.Node]:
        """Nodes that write over the held tensor their value becomes: node → placeholder."""
        return overwrites(self.step, self.folded)

    def _tiles(self, node: fx.Node) -> Tiles:
        return self._tiles_on(node, self.chip_of[node], self._sequence_of(node))

    def _tiles_on(self, node: fx.Node, chip: int, sequence: Sequence) -> Tiles:
        return Tiles(self.chips[chip], sequence, node, self.options, self.shared[chip], chip)

    def _sequence_of(self, node: fx.Node) -> Sequence:
        return self.update if is_of_update(node) else self.micro

    def _constant(self, node: fx.Node, chip: int) -> Tensor:
        tiles = self._tiles_on(node, chip, self.micro)
        return tiles.constant_of(self.step.constants[str(node.target)])

    def _read(self, node: fx.Node, tiles: Tiles) -> object:
        """A value on the chip that reads it; copies between chips are explicit, and made once."""
        self._settle(node)
        self._load(node, tiles)
        value = self.values[node]
        home = self.chip_of[node]
        if home == tiles.chip or not isinstance(value, Tensor) or value.contains_constant:
            return value
        key = (node, tiles.chip)
        if key not in self.copies:
            self.copies[key] = self._copied(node, value, tiles)
        return self.copies[key]

    def _copied(self, node: fx.Node, value: Tensor, tiles: Tiles) -> Tensor:
        """A value from another chip. A small tensor comes whole, once for all views of it."""
        base = base_of(node)
        if base is not node and n_elements(base) <= _N_COPIED_WHOLE and is_view(node.target):
            here = self._tiles_on(node, tiles.chip, tiles.sequence)
            return self._built(here, lambda of: self._read(of, tiles))  # pyright: ignore[reportReturnType]
        name = f"{tiles.name}/copy"
        return poputil.copy_to_ipu(self.graph, value, tiles.sequence, tiles.chip, name)

    # -- variables and streams ---------------------------------------------------------------------

    def _hold_inputs(self) -> None:
        for slot, node in zip(self.step.inputs, self.step.placeholders(), strict=True):
            with at_source(source_of_user(node)):
                tensor = self._variable(slot, node)
            self.values[node] = tensor
            if slot.kind == INPUT:
                self._input_stream(slot, node, tensor)
            else:
                self.built.held[slot.kind, slot.index] = self._held_at(slot, node, tensor)

    def _held_at(self, slot: StepSlot, node: fx.Node, tensor: Tensor) -> HeldPlace:
        """Where the host finds a held tensor: on the tiles, or in a row of a remote buffer."""
        n_shards = node.meta.get(N_SHARDS, 1)
        location, chip = self._location_of(slot), self.chip_of[node]
        if location.leaves(tensor.n_elems * n_shards):
            row = self.memory.add(slot.kind, location, tensor.type, tensor.n_elems, chip)
            self.rows[node] = row
            return HeldPlace(row.buffer.handle, row.number, n_shards)
        handle = f"{slot.kind}:{slot.name}"
        self.graph.create_host_write(handle, tensor)
        self.graph.create_host_read(handle, tensor)
        return HeldPlace(handle, n_shards=n_shards)

    def _location_of(self, slot: StepSlot) -> Location:
        locations = self.options.locations
        return {PARAMETER: locations.weight, STATE: locations.state}.get(slot.kind, Location())

    # -- streaming memory --------------------------------------------------------------------------

    def _part_of(self, node: fx.Node) -> object:
        """The part of the program a node runs in: each fetches for itself what it reads."""
        origin, phases = node.meta.get(ORIGIN), self.schedule.phases
        if origin is None or origin.phase == OPTIMISER or not phases.of_block:
            return FORWARD if origin is None else origin.phase
        return phases.number(origin.block, is_backward=origin.phase == BACKWARD)

    def _load(self, node: fx.Node, tiles: Tiles) -> None:
        """Fetch a weight or a state before its first reader in a part of the program."""
        base = base_of(node)
        key = (base, self._part_of(tiles.node))
        if base in self.rows and key not in self.loaded and not follows_operand(tiles.node):
            self.loaded.add(key)
            self._fetch(base, tiles)

    def _fetch(self, held: fx.Node, tiles: Tiles) -> None:
        value = self.values[held]
        assert isinstance(value, Tensor), "held tensors are tensors"
        home = self._tiles_on(tiles.node, self.chip_of[held], tiles.sequence)
        self.memory.load(self.rows[held], value, home)

    def _store(self, node: fx.Node) -> None:
        """Send new weights and states to streaming memory as soon as they are computed."""
        for held in self.held_by_result.get(node, ()):
            if held in self.rows:
                value = self.values[node]
                assert isinstance(value, Tensor), "held tensors are tensors"
                tiles = self._tiles_on(node, self.chip_of[node], self.update)
                self.memory.store(value, self.rows[held], tiles)

    def _leave(self, node: fx.Node, tiles: Tiles) -> None:
        """Send a value away that a later part of the program fetches."""
        value = self.values[node]
        if isinstance(value, Tensor) and value.n_elems and not value.contains_constant:
            distinct, repeated = poputil.distinct_part(value)
            kind, location = "activation", self.options.locations.activation
            row = self.memory.add(kind, location, value.type, distinct.n_elems, tiles.chip)
            self.memory.store(poputil.in_memory_order(distinct, [])[0], row, tiles)
            self.left[node] = (row, distinct, repeated)

    def _fetched(self, node: fx.Node, tiles: Tiles) -> object:
        """A value that left the chip, laid out as it was there."""
        source = node.all_input_nodes[0]
        if source not in self.left:
            return self._read(source, tiles)
        row, distinct, repeated = self.left[source]
        clone = poputil.clone_in_order(self.graph, distinct, tiles.name)
        home = self._tiles_on(node, self.chip_of[source], tiles.sequence)
        self.chip_of[node] = home.chip
        self.memory.load(row, poputil.in_memory_order(distinct, [clone])[1][0], home)
        return repeated(clone)

    def _load_total(self, total: Tensor, tiles: Tiles) -> None:
        row = self.total_rows.get(_variable_of(total))
        if row is not None:
            self.memory.load(row, total, tiles)

    def _store_total(self, total: Tensor, tiles: Tiles) -> None:
        row = self.total_rows.get(_variable_of(total))
        if row is not None:
            self.memory.store(total, row, tiles)

    # -- variables ---------------------------------------------------------------------------------

    def _variable(self, slot: StepSlot, node: fx.Node) -> Tensor:
        chip = self.chip_of[node]
        if N_SHARDS in node.meta:
            value = node.meta["val"]
            type = tile_type(value.dtype)
            return add_shard(self.chips[chip], type, value.numel(), slot.name)
        if slot.kind in (PARAMETER, INPUT, BUFFER):
            preferred = preferred_layout(node, lambda user: self._tiles_on(user, chip, self.micro))
            if preferred is not None:
                return preferred
        if slot.kind == STATE and (like := self._parameter_of(slot, node)) is not None:
            type = tile_type(node.meta["val"].dtype)
            return poputil.clone_in_order(self.graph, like, slot.name, type=type)
        value = node.meta["val"]
        shape = [int(n) for n in value.shape]
        graph, type = self.chips[chip], tile_type(value.dtype)
        if slot.kind in (PARAMETER, BUFFER):
            return spread_by_name(graph, type, shape, slot.name)
        mapping = 0 if slot.kind == HYPER else "linear"
        return graph.add_variable(type, shape, slot.name, mapping=mapping)

    def _parameter_of(self, state: StepSlot, node: fx.Node) -> Tensor | None:
        """The weight that an optimiser's state is laid out like, whatever their types."""
        shape = node.meta["val"].shape
        for slot, parameter in zip(self.step.inputs, self.step.placeholders(), strict=True):
            if slot.kind == PARAMETER and slot.name == state.owner:
                same = shape == parameter.meta["val"].shape
                result = self.values.get(parameter) if same else None
                return result if isinstance(result, Tensor) else None
        return None

    def _reads_of(self, node: fx.Node) -> Sequence:  # noqa: ARG002
        """Where an input is read from its stream."""
        return self.micro

    def _input_stream(self, slot: StepSlot, node: fx.Node, tensor: Tensor) -> None:
        if self.options.has_synthetic_data:
            self.graph.set_initial_value(tensor, 0)
            return
        handle = f"input:{slot.index}"
        depth = 1 + self.options.prefetch_depth
        stream = self.graph.add_host_to_device_fifo(
            handle, tensor.type, max(tensor.n_elems, 1), buffering_depth=depth
        )
        self.built.inputs.append(handle)
        if tensor.n_elems and node in self.overlap_modes:
            waiting = self._on_io_tiles(tensor, self.chip_of[node])
            self.overlap.loads.add(Copy(stream, waiting, waits=Waits.NONE))
            self.overlap.takes.add(Copy(waiting, tensor.flatten()))
        elif tensor.n_elems:  # a tensor without elements has nothing to fetch
            self._reads_of(node).add(Copy(stream, tensor.flatten(), waits=self.waits))

    def _on_io_tiles(self, like: Tensor, chip: int) -> Tensor:
        graph = self._io_graph(chip)
        return graph.add_variable(like.type, [like.n_elems], "waiting", mapping="linear")

    # -- operations --------------------------------------------------------------------------------

    def _lower(self, node: fx.Node) -> None:
        if node in self.folded.nodes:
            return
        tiles = self._tiles(node)
        if node.target is GRADIENT_MARK:
            self._reduce_gradient(node, tiles)
            return
        if node.target is FETCHED:
            self.values[node] = self._fetched(node, tiles)
            return
        overwritten = self.overwrites.get(node)
        if overwritten is not None and self.chip_of[overwritten] == tiles.chip:
            target = self.values[overwritten]
            assert isinstance(target, Tensor), "held tensors are tensors"
            tiles.destination = target
        self.values[node] = self._built(tiles, lambda n: self._read(n, tiles))
        self._store(node)
        if any(user.target is FETCHED for user in node.users):
            self._leave(node, tiles)

    def _built(self, tiles: Tiles, read: Callable[[fx.Node], Any]) -> object:
        """The result of a node's lowering for the operands that `read` returns."""
        node = tiles.node
        origin = node.meta.get(ORIGIN)
        if self.folded.has_folded(node):
            with at_source(origin.source if origin is not None else None):
                return self.folded.lower(tiles, read)
        args, kwargs = with_rounded_numbers(node, fx.map_arg((node.args, node.kwargs), read))
        lowering = lowering_of(node)
        assert lowering is not None, "what has none was refused before"
        with at_source(origin.source if origin is not None else None):
            value = lowering.build(tiles, *args, **kwargs)
            check_result(node, value)
            return with_rounded(tiles, value)

    def _reduce_gradient(self, node: fx.Node, tiles: Tiles) -> None:
        """The gradient the optimiser sees: over all micro-batches and replicas of the step.

        A sum that is off the chip comes back when the update asks for it, not all at its beginning.
        Sums that are merged wait for each other.
        """
        self.deferred[node] = self._own_sum(node, tiles)
        is_off_chip = self.options.locations.accumulator.leaves(n_elements(node))
        if not is_off_chip and self._merge_key(node) is None:
            self._settle(node)

    def _settle(self, node: fx.Node) -> None:
        """Build what was put off until something reads it, and what is merged with it."""
        if node not in self.deferred:
            return
        key = self._merge_key(node)
        together = [n for n in self.deferred if key is not None and self._merge_key(n) == key]
        sums = [(n, *self.deferred.pop(n)()) for n in together or [node]]
        self.values.update(self._over_replicas(sums))

    def _own_sum(self, node: fx.Node, tiles: Tiles) -> Callable[[], tuple[Tensor, Tiles]]:
        """Adds up micro-batches; gives what brings this replica's sum, and where it is."""
        value = self._read(node.all_input_nodes[0], tiles)
        assert isinstance(value, Tensor), "gradients are tensors"
        home = self._tiles_on(node, tiles.chip, self.update)
        if not self._is_combined:
            return lambda: (value, home)
        value = self._scattered(node, value, tiles)
        if self.schedule.n_accumulation == 1:
            total = poputil.duplicate(tiles.graph, value, self.update, tiles.name)
            return lambda: (total, home)
        total = self._accumulator(value, tiles)
        self._accumulate(total, value, tiles)

        def loaded() -> tuple[Tensor, Tiles]:
            self._load_total(total, home)
            return total, home

        return loaded

    @property
    def _is_combined(self) -> bool:
        """Whether a gradient is more than that of one micro-batch."""
        schedule = self.schedule
        return schedule.n_accumulation * schedule.n_replicas > 1 or schedule.gradient_scale != 1

    def _scatters_early(self, node: fx.Node) -> bool:
        """Whether sums of gradients are shards: those of micro-batches are scattered at once."""
        n_shards = node.meta.get(N_SHARDS, 1)
        is_sharded = self.options.locations.accumulator.shards(n_elements(node) * n_shards)
        return n_shards > 1 and self.schedule.n_accumulation > 1 and is_sharded

    def _scattered(self, node: fx.Node, value: Tensor, tiles: Tiles) -> Tensor:
        if not self._scatters_early(node):
            return value
        return gcl.reduce_scatter(tiles.graph, value, "ADD", tiles.sequence, tiles.name)

    def _accumulator(self, like: Tensor, tiles: Tiles) -> Tensor:
        """A variable that is zero before the first micro-batch of each update."""
        type = like.type
        if self.schedule.has_running_mean:
            assert self.step.rule is not None, "only training has gradients"
            type = tile_type(self.step.rule.accum_dtype)
        name = f"{tiles.name}/accumulator"
        total = poputil.clone_in_order(self.graph, like, name, type=type)
        popops.zero(tiles.graph, total, self.before, tiles.name)
        location = self.options.locations.accumulator
        if location.leaves(total.n_elems):
            kind = "accumulator"
            row = self.memory.add(kind, location, total.type, total.n_elems, tiles.chip)
            self.total_rows[_variable_of(total)] = row
            self._store_total(total, self._tiles_on(tiles.node, tiles.chip, self.before))
        return total

    def _accumulate(self, total: Tensor, value: Tensor, tiles: Tiles) -> None:
        """Add the gradient of a micro-batch, or move their running mean towards it."""
        self._load_total(total, tiles)
        self._add_to(total, value, tiles)
        self._store_total(total, tiles)

    def _add_to(self, total: Tensor, value: Tensor, tiles: Tiles) -> None:
        if not self.schedule.has_running_mean:
            popops.add_in_place(tiles.graph, total, value, tiles.sequence, tiles.name)
            return
        mean, gradient = wide(_1, total.type), wide(_2, value.type)
        moved = narrow(mean + (gradient - mean) / _3, total.type)
        operands = [total, value, self._counter(tiles)]
        popops.map_in_place(tiles.graph, moved, operands, tiles.sequence, tiles.name)

    def _counter(self, tiles: Tiles) -> Tensor:
        """FLOAT: the number of the micro-batch, from 1, as the part of a program counts that runs.

        It is incremented before its first reader: parts of a pipeline are at different ones.
        """
        key = id(tiles.sequence)
        if key not in self.counters:
            name = "micro_batch"
            counter = tiles.graph.add_variable(FLOAT, [], name, mapping=0)
            popops.zero(tiles.graph, counter, self.before, name)
            one = tiles.constant(1.0, FLOAT)
            popops.add_in_place(tiles.graph, counter, one, tiles.sequence, name)
            self.counters[key] = counter
        return self.counters[key]

    def _merge_key(self, node: fx.Node) -> object:
        """Gradients with equal keys are reduced over replicas by one collective; None: by its own.

        Off the chip, sums are fetched one by one to save memory, and so stay apart.
        """
        options, is_shard = self.options, node.meta.get(N_SHARDS, 1) > 1
        wants = options.merges_reduce_scatters if is_shard else options.merges_all_reduces
        is_off_chip = options.locations.accumulator.leaves(n_elements(node))
        if not wants or is_off_chip or self.schedule.n_replicas == 1 or self._scatters_early(node):
            return None
        return self.chip_of[node], is_shard, self._group_of(node)

    def _group_of(self, node: fx.Node) -> ReplicaGroup:
        """The groups of replicas that share the weight of a gradient."""
        assert self.step.rule is not None, "only training has gradients"
        place = node.args[1]
        assert isinstance(place, int), "a mark has its weight's number"
        return self.schedule.group_of(self.step.rule.names[place])

    def _over_replicas(self, sums: list[tuple[fx.Node, Tensor, Tiles]]) -> dict[fx.Node, Tensor]:
        """The update begins with sums over replicas, then the scale of the mean.

        Those given together are alike but for their types.
        """
        result = {}
        for type in dict.fromkeys(total.type for _, total, _ in sums):
            alike = [one for one in sums if one[1].type == type]
            for (node, _, tiles), total in zip(alike, self._summed(alike), strict=True):
                result[node] = self._scaled(total, tiles)
        return result

    def _summed(self, alike: list[tuple[fx.Node, Tensor, Tiles]]) -> list[Tensor]:
        """The sum of a weight that differs between groups of replicas is that of its group."""
        (node, _, tiles), totals = alike[0], [total for _, total, _ in alike]
        n_replicas, name = self.schedule.n_replicas, tiles.name
        group = self._group_of(node)
        if n_replicas == 1 or group.size == 1 or self._scatters_early(node):
            return totals
        if node.meta.get(N_SHARDS, 1) > 1:
            return scattered_together(tiles.graph, totals, n_replicas, self.update, name)
        whole = concat([total.flatten() for total in totals]) if len(totals) > 1 else totals[0]
        gcl.all_reduce_in_place(tiles.graph, whole, self.update, name, group=group)
        return totals

    def _scaled(self, total: Tensor, tiles: Tiles) -> Tensor:
        scale = self.schedule.gradient_scale
        if not self._is_combined:
            return total
        if self.schedule.has_running_mean:  # which is divided by this already
            scale *= self.schedule.n_accumulation
        if scale != 1:
            factor = tiles.constant(scale, total.type)
            popops.mul_in_place(tiles.graph, total, factor, self.update, tiles.name)
        type = tile_type(tiles.node.meta["val"].dtype)
        if total.type == type:
            return total
        return popops.cast(tiles.graph, total, type, self.update, tiles.name)

    # -- results -----------------------------------------------------------------------------------

    def _give_results(self) -> None:
        held = held_nodes(self.step)
        writes: dict[int, tuple[Sequence, list[tuple[Tensor, Tensor]]]] = {}
        for slot, node in zip(self.step.outputs, self.step.results(), strict=True):
            self._settle(node)
            value = self.values[node]
            assert isinstance(value, Tensor), "results are tensors"
            if slot.kind in (OUTPUT, INPUT):
                self._load_result(node)
                self._output_stream(slot, node, value)
            elif held.get((slot.kind, slot.index)) in self.rows:
                continue  # it was stored
            elif (slot.kind, slot.index) in held:  # a loss or a gradient is not kept
                target, sequence = self.values[held[slot.kind, slot.index]], self._writes_of(slot)
                assert isinstance(target, Tensor), "held tensors are tensors"
                if value is not target:  # else it was written in place
                    writes.setdefault(id(sequence), (sequence, []))[1].append((value, target))
        for sequence, pairs in writes.values():
            self._write(pairs, sequence)

    def _load_result(self, node: fx.Node) -> None:
        """A weight that a model returns is fetched for it."""
        if base_of(node) in self.rows:
            self._fetch(base_of(node), self._tiles_on(node, 0, self._gives_of(node)))

    def _gives_of(self, node: fx.Node) -> Sequence:  # noqa: ARG002
        """Where an output is written to its stream."""
        return self.micro

    def _writes_of(self, slot: StepSlot) -> Sequence:
        """Where a held tensor gets its new value."""
        return self.micro if slot.kind == BUFFER else self.update

    def _write(self, pairs: list[tuple[Tensor, Tensor]], sequence: Sequence) -> None:
        """A new value that is a view of another held tensor is saved before that one is written."""
        targets = {v for _, target in pairs for v in target.variable_ids()}
        safe = []
        for value, target in pairs:
            aliases = targets & set(value.variable_ids())
            saved = poputil.duplicate(self.graph, value, sequence, "saved") if aliases else value
            safe.append((saved, target))
        for value, target in safe:
            sequence.add(Copy(value.flatten(), target.flatten()))

    def _output_stream(self, slot: StepSlot, node: fx.Node, value: Tensor) -> None:
        if self.options.has_synthetic_data:
            return
        handle = f"{slot.kind}-out:{slot.index}"
        depth = 1 + self.options.prefetch_depth
        stream = self.graph.add_device_to_host_fifo(
            handle, value.type, max(value.n_elems, 1), buffering_depth=depth
        )
        self.built.outputs.append((slot, handle))
        if value.n_elems and node in self.overlap_modes:
            waiting = self._on_io_tiles(value, self.chip_of[node])
            self.overlap.puts.add(Copy(value.flatten(), waiting))
            self.overlap.stores.add(Copy(waiting, stream, waits=Waits.NONE))
        elif value.n_elems:
            self._gives_of(node).add(Copy(value.flatten(), stream, waits=self.waits))

    def _called(self, program: Program) -> Program:
        """What a call runs: a host that works ahead lets it wait once, at its beginning."""
        has_streams = bool(self.built.inputs or self.built.outputs)
        if not has_streams or not self.options.prefetch_depth:
            return program
        return Sequence(Sync(SyncType.HOST, name="call"), program)

    def _program(self) -> Program:
        schedule = self.schedule
        if self.overlap.is_used:
            parts = StepParts(self.before, self.micro, self.update)
            counts = schedule.n_iterations, schedule.n_accumulation
            spans = spans_iterations(self.overlap_modes)
            return overlapped_program(self.graph, self.overlap, parts, counts, spans=spans)
        passes = self.micro
        if schedule.n_accumulation > 1:
            passes = Repeat(schedule.n_accumulation, self.micro)
        whole = Sequence(self.before, passes, self.update)
        return Repeat(schedule.n_iterations, whole) if schedule.n_iterations > 1 else whole


def _check_io_tiles(n_io_tiles: int, target: Target) -> None:
    if n_io_tiles >= target.tiles_per_ipu:
        raise InvalidOption(
            f"{n_io_tiles} tiles of each chip are set aside for I/O, but a chip has only"
            f" {target.tiles_per_ipu}.",
            hint="ask for fewer, or use a larger chip",
        )


def _variable_of(total: Tensor) -> int:
    return int(next(iter(total.variable_ids())))
