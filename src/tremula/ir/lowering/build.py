"""Builds the tile program of a captured step: variables, streams, and every node as vertices."""

from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import fx

from tremula.base.source import at_source
from tremula.ir import marker_ops  # noqa: F401  registers tremula::*
from tremula.ir.errors import UnsupportedOperations
from tremula.ir.lowering.layouts import wished_layout
from tremula.ir.lowering.table import lowering_of, overload_name
from tremula.ir.lowering.tiles import HOST_FUNCTIONS, LoweringOptions, Tiles
from tremula.ir.lowering.types import tile_type
from tremula.ir.origin import OPTIMISER, ORIGIN
from tremula.ir.passes.views import is_view
from tremula.ir.step import (
    BUFFER,
    GRADIENT,
    HYPER,
    INPUT,
    OUTPUT,
    PARAMETER,
    STATE,
    CapturedStep,
    Slot,
)
from tremula.poplar.graph import Graph
from tremula.poplar.programs import Copy, Program, Repeat, Sequence
from tremula.poplar.target import Target
from tremula.poplar.tensor import Tensor
from tremula.poplibs import popops, poputil

_GRADIENT = torch.ops.tremula.gradient.default


@dataclass(frozen=True)
class Schedule:
    """How often a step's parts run per call, and how gradients are combined."""

    n_iterations: int = 1
    n_accumulation: int = 1
    n_replicas: int = 1
    gradient_scale: float = 1.0  # 1 / (accumulation × all replicas) for the mean
    chip_of_block: tuple[int, ...] = ()

    @property
    def n_chips(self) -> int:
        return max(self.chip_of_block, default=0) + 1


@dataclass
class BuiltProgram:
    """A graph with its program, and the handles under which the host finds things."""

    graph: Graph
    program: Program
    held: dict[tuple[str, int], str] = field(default_factory=dict)  # (kind, index) -> handle
    inputs: list[str] = field(default_factory=list)  # stream handles
    outputs: list[tuple[Slot, str]] = field(default_factory=list)
    host_functions: dict[str, Callable] = field(default_factory=dict)  # by handle


def build_tile_program(
    step: CapturedStep,
    target: Target,
    schedule: Schedule,
    options: LoweringOptions | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> BuiltProgram:
    """Lower a functional, decomposed step. `progress(done, total)` counts nodes."""
    refuse_unsupported(step)
    return _Builder(step, target, schedule, options or LoweringOptions()).build(progress)


def refuse_unsupported(step: CapturedStep) -> None:
    """One error that names every operation without a lowering, with module and line."""
    missing: dict[str, fx.Node] = {}
    for node in step.graph.nodes:
        if node.target is _GRADIENT:
            continue  # the builder itself reduces gradients
        if node.op == "call_function" and lowering_of(node) is None:
            missing.setdefault(overload_name(node.target), node)
    if not missing:
        return
    names = ", ".join(sorted(missing))
    lines = []
    for name, node in sorted(missing.items()):
        origin = node.meta.get(ORIGIN)
        where = f"{origin.module or 'the model'}, {origin.source}" if origin else "the model"
        lines.append(f"{name} in {where}")
    first = next(iter(missing.values())).meta.get(ORIGIN)
    raise UnsupportedOperations(
        f"Unsupported ops found in compiled model: [{names}]. Not all operations are supported yet"
        " by the tile program: " + "; ".join(lines),
        source=first.source if first else None,
        mend="write the model without them, or add a lowering (docs/lowering.md says how)",
    )


class _Builder:
    def __init__(
        self, step: CapturedStep, target: Target, schedule: Schedule, options: LoweringOptions
    ):
        self.step = step
        self.schedule = schedule
        self.options = options
        self.graph = Graph(target, schedule.n_replicas)
        self.chips = self._chip_graphs()
        self.micro = Sequence()
        self.update = Sequence()
        self.values: dict[fx.Node, object] = {}
        self.chip_of: dict[fx.Node, int] = {}
        self.copies: dict[tuple[fx.Node, int], Tensor] = {}
        self.shared: list[dict] = [{} for _ in self.chips]
        self.built = BuiltProgram(self.graph, self.micro)
        self._place_nodes()
        self.overwrites = self._overwrites()

    def _chip_graphs(self) -> list[Graph]:
        if self.schedule.n_chips == 1 and self.graph.target.n_ipus == 1:
            return [self.graph]
        n_tiles = self.graph.target.n_tiles // self.graph.target.n_ipus
        return [
            self.graph.create_virtual_graph(chip * n_tiles, (chip + 1) * n_tiles)
            for chip in range(self.graph.target.n_ipus)
        ]

    def build(self, progress: Callable[[int, int], None] | None) -> BuiltProgram:
        nodes = list(self.step.graph.nodes)
        self._hold_inputs()
        for done, node in enumerate(nodes):
            if node.op == "get_attr":
                self.values[node] = self._tiles(node).constant_of(self.step.constants[node.target])
            elif node.op == "call_function":
                self._lower(node)
            if progress is not None:
                progress(done + 1, len(nodes))
        self._give_results()
        for shared in self.shared:
            self.built.host_functions.update(shared.get(HOST_FUNCTIONS, {}))
        self.built.program = self._program()
        return self.built

    # -- where things are --------------------------------------------------------------------------

    def _place_nodes(self) -> None:
        """A node's block says its chip; without one it follows its largest operand, else chip 0."""
        chip_of_block = self.schedule.chip_of_block
        for node in self.step.graph.nodes:
            origin = node.meta.get(ORIGIN)
            block = origin.block if origin is not None else None
            if block is not None and chip_of_block:
                self.chip_of[node] = chip_of_block[block]
        self._place_held()
        for node in self.step.graph.nodes:
            if node not in self.chip_of:
                known = [n for n in node.all_input_nodes if n in self.chip_of]
                largest = max(known, key=_n_elements, default=None)
                self.chip_of[node] = 0 if largest is None else self.chip_of[largest]

    def _place_held(self) -> None:
        """A held tensor is on the chip that first uses it, a state on its parameter's."""
        chip_of_parameter = {}
        for slot, node in zip(self.step.inputs, self.step.placeholders(), strict=True):
            user = next((user for user in node.users if user in self.chip_of), None)
            if user is not None:
                self.chip_of[node] = self.chip_of[user]
            if slot.kind == PARAMETER:
                chip_of_parameter[slot.name] = self.chip_of.get(node, 0)
            elif slot.kind == STATE:
                self.chip_of[node] = chip_of_parameter.get(slot.name.rpartition("___")[2], 0)

    def _tiles(self, node: fx.Node) -> Tiles:
        origin = node.meta.get(ORIGIN)
        is_update = origin is not None and origin.phase == OPTIMISER
        chip = self.chip_of[node]
        return Tiles(
            self.chips[chip],
            self.update if is_update else self.micro,
            node,
            self.options,
            self.shared[chip],
            chip,
        )

    def _on_chip(self, node: fx.Node, chip: int, tiles: Tiles) -> object:
        """A value on the chip that reads it; copies between chips are explicit, and made once."""
        value = self.values[node]
        home = self.chip_of[node]
        if home == chip or not isinstance(value, Tensor) or value.contains_constant:
            return value
        key = (node, chip)
        if key not in self.copies:
            copy = poputil.copy_to_ipu(
                self.graph, value, tiles.sequence, chip, f"{tiles.name}/copy"
            )
            self.copies[key] = copy
        return self.copies[key]

    def _overwrites(self) -> dict[fx.Node, fx.Node]:
        """Nodes that may write their value over the held tensor it becomes: node → placeholder."""
        order = {node: place for place, node in enumerate(self.step.graph.nodes)}
        held = {
            (slot.kind, slot.index): node
            for slot, node in zip(self.step.inputs, self.step.placeholders(), strict=True)
        }
        found = {}
        for slot, node in zip(self.step.outputs, self.step.results(), strict=True):
            old = held.get((slot.kind, slot.index))
            if slot.kind not in (PARAMETER, STATE) or old is None or node.op != "call_function":
                continue
            if _last_read(old, order) <= order[node]:
                found[node] = old
        return found

    # -- variables and streams ---------------------------------------------------------------------

    def _hold_inputs(self) -> None:
        for slot, node in zip(self.step.inputs, self.step.placeholders(), strict=True):
            with at_source(self._source_of_user(node)):
                tensor = self._variable(slot, node)
            self.values[node] = tensor
            if slot.kind == INPUT:
                self._input_stream(slot, tensor)
            else:
                handle = f"{slot.kind}:{slot.name}"
                self.graph.create_host_write(handle, tensor)
                self.graph.create_host_read(handle, tensor)
                self.built.held[slot.kind, slot.index] = handle

    def _source_of_user(self, node: fx.Node) -> object:
        origin = next((u.meta[ORIGIN] for u in node.users if ORIGIN in u.meta), None)
        return origin.source if origin is not None else None

    def _variable(self, slot: Slot, node: fx.Node) -> Tensor:
        wished = (
            wished_layout(node, self._tiles) if slot.kind in (PARAMETER, INPUT, BUFFER) else None
        )
        if wished is not None:
            return wished
        if slot.kind == STATE and (like := self._parameter_of(slot)) is not None:
            return self.graph.clone(like, slot.name)
        value = node.meta["val"]
        shape = [int(n) for n in value.shape]
        mapping = 0 if slot.kind == HYPER else "linear"
        graph = self.chips[self.chip_of[node]]
        return graph.add_variable(tile_type(value.dtype), shape, slot.name, mapping=mapping)

    def _parameter_of(self, slot: Slot) -> Tensor | None:
        """An optimiser's state lies as the parameter it belongs to."""
        owner = slot.name.rpartition("___")[2]
        for other, node in zip(self.step.inputs, self.step.placeholders(), strict=True):
            if other.kind == PARAMETER and other.name == owner:
                state = self.step.placeholders()[self.step.inputs.index(slot)].meta["val"]
                same = (
                    state.shape == node.meta["val"].shape and state.dtype == node.meta["val"].dtype
                )
                return self.values.get(node) if same else None
        return None

    def _input_stream(self, slot: Slot, tensor: Tensor) -> None:
        handle = f"input:{slot.index}"
        stream = self.graph.add_host_to_device_fifo(handle, tensor.type, max(tensor.n_elems, 1))
        self.micro.add(Copy(stream, tensor.flatten()))
        self.built.inputs.append(handle)

    # -- operations --------------------------------------------------------------------------------

    def _lower(self, node: fx.Node) -> None:
        tiles = self._tiles(node)
        if node.target is _GRADIENT:
            self.values[node] = self._reduced_gradient(node, tiles)
            return
        read = lambda n: self._on_chip(n, tiles.chip, tiles)  # noqa: E731
        args, kwargs = fx.map_arg((node.args, node.kwargs), read)
        origin = node.meta.get(ORIGIN)
        overwritten = self.overwrites.get(node)
        if overwritten is not None and self.chip_of[overwritten] == tiles.chip:
            tiles.destination = self.values[overwritten]
        with at_source(origin.source if origin is not None else None):
            value = lowering_of(node).build(tiles, *args, **kwargs)
        _check_result(node, value)
        self.values[node] = value

    def _reduced_gradient(self, node: fx.Node, tiles: Tiles) -> Tensor:
        """The gradient the optimiser sees: over all micro-batches and replicas of the step."""
        schedule = self.schedule
        value = self._on_chip(node.args[0], tiles.chip, tiles)
        if schedule.n_accumulation * schedule.n_replicas == 1 and schedule.gradient_scale == 1:
            return value
        if schedule.n_accumulation > 1:
            total = self.graph.clone(value, f"{tiles.name}/accumulator")
            popops.zero(tiles.graph, total, self._zeroing(), tiles.name)
            popops.add_in_place(tiles.graph, total, value, tiles.sequence, tiles.name)
        else:
            total = poputil.duplicate(tiles.graph, value, self.update, tiles.name)
        if schedule.n_replicas > 1:
            from tremula.poplibs import gcl

            gcl.all_reduce_in_place(tiles.graph, total, self.update, tiles.name)
        if schedule.gradient_scale != 1:
            scale = tiles.constant(schedule.gradient_scale, total.type)
            popops.mul_in_place(tiles.graph, total, scale, self.update, tiles.name)
        return total

    def _zeroing(self) -> Sequence:
        """What runs before the first micro-batch of each update."""
        if not hasattr(self, "before"):
            self.before = Sequence()
        return self.before

    # -- results -----------------------------------------------------------------------------------

    def _give_results(self) -> None:
        held = {
            (slot.kind, slot.index): self.values[node]
            for slot, node in zip(self.step.inputs, self.step.placeholders(), strict=True)
        }
        writes = []
        for slot, node in zip(self.step.outputs, self.step.results(), strict=True):
            value = self.values[node]
            if slot.kind in (OUTPUT, INPUT):
                self._output_stream(slot, value)
            elif slot.kind != GRADIENT:
                sequence = self.micro if slot.kind == BUFFER else self.update
                if value is not held[slot.kind, slot.index]:  # else it was written in place
                    writes.append((sequence, value, held[slot.kind, slot.index]))
        for sequence, value, target in self._safe(writes):
            sequence.add(Copy(value.flatten(), target.flatten()))

    def _safe(self, writes: list[tuple[Sequence, Tensor, Tensor]]) -> list:
        """A new value that is a view of another held tensor is saved before that one is written."""
        targets = {v for _, _, target in writes for v in target.variable_ids()}
        safe = []
        for sequence, value, target in writes:
            if targets & set(value.variable_ids()):
                value = poputil.duplicate(self.graph, value, sequence, "saved")
            safe.append((sequence, value, target))
        return safe

    def _output_stream(self, slot: Slot, value: Tensor) -> None:
        handle = f"{slot.kind}-out:{slot.index}"
        stream = self.graph.add_device_to_host_fifo(handle, value.type, max(value.n_elems, 1))
        self.micro.add(Copy(value.flatten(), stream))
        self.built.outputs.append((slot, handle))

    def _program(self) -> Program:
        schedule = self.schedule
        passes = self.micro
        if schedule.n_accumulation > 1:
            passes = Repeat(schedule.n_accumulation, self.micro)
        before = getattr(self, "before", Sequence())
        whole = Sequence(before, passes, self.update)
        return Repeat(schedule.n_iterations, whole) if schedule.n_iterations > 1 else whole


def _n_elements(node: fx.Node) -> int:
    value = node.meta.get("val")
    return value.numel() if isinstance(value, torch.Tensor) else 0


def _last_read(node: fx.Node, order: dict[fx.Node, int]) -> int:
    """When a value, or a view of it, is read last; being a result of the step is no reading."""
    last = -1
    for user in node.users:
        if user.op != "output":
            reach = _last_read(user, order) if is_view(user.target) else -1
            last = max(last, order[user], reach)
    return last


def _check_result(node: fx.Node, value: object) -> None:
    """A lowering gives the shape and type PyTorch promised; anything else is our mistake."""
    expected = node.meta["val"]
    pairs = [(expected, value)]
    if isinstance(expected, tuple | list):
        pairs = [
            p for p in zip(expected, value, strict=True) if p[0] is not None and p[1] is not None
        ]
    for fake, tensor in pairs:
        want = (tuple(int(n) for n in fake.shape), tile_type(fake.dtype))
        if (tuple(tensor.shape), tensor.type) != want:
            raise AssertionError(
                f"lowering of {overload_name(node.target)} gave {tensor.type}{list(tensor.shape)},"
                f" expected {want[1]}{list(want[0])}"
            )
