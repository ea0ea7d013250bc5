"""What differs between a step of one micro-batch after another and a pipeline."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from torch import fx

from tremula.ir.lowering.program.gradients import GradientSums, OwnSum
from tremula.ir.lowering.program.host_transfers import HostTransfers
from tremula.ir.lowering.program.node_queries import follows_operand, is_of_update
from tremula.ir.lowering.program.off_chip import OffChipTensors
from tremula.ir.lowering.program.overlap import StepParts, overlapped_program, spans_iterations
from tremula.ir.lowering.program.schedule import Schedule
from tremula.ir.lowering.program.values import StepValues
from tremula.ir.lowering.tiles import Tiles
from tremula.ir.origin import BACKWARD, FORWARD, OPTIMISER, ORIGIN
from tremula.ir.step import BUFFER, StepSlot
from tremula.poplar.programs import Program, Repeat, Sequence
from tremula.poplar.tensors.tensor import Tensor


@dataclass(frozen=True)
class UnderConstruction:
    """The parts that build a program together."""

    schedule: Schedule
    values: StepValues
    off_chip: OffChipTensors
    gradients: GradientSums
    transfers: HostTransfers
    before: Sequence = field(default_factory=Sequence)  # before the first micro-batch of an update
    update: Sequence = field(default_factory=Sequence)


class Flow(Protocol):
    """When the parts of a step run, and how values get from one part to another."""

    def start(self) -> None:
        """Variables of inputs, weights and states are there."""
        ...

    def sequence_of(self, node: fx.Node) -> Sequence:
        """The part of the program that computes a node."""
        ...

    def is_computed(self, node: fx.Node) -> bool:
        """Whether a node is lowered by itself."""
        ...

    def may_overwrite(self, node: fx.Node) -> bool:
        """Whether a node may write its value over the resident tensor that it becomes."""
        ...

    def seed_of(self, node: fx.Node, tiles: Tiles) -> Tensor | None:
        """What a node's random numbers follow from, if they are drawn again; None: nothing."""
        ...

    def read(self, node: fx.Node, tiles: Tiles) -> object:
        """The value of a node as the one that is lowered sees it."""
        ...

    def own_sum(self, node: fx.Node, tiles: Tiles) -> OwnSum:
        """Add up a gradient over micro-batches."""
        ...

    def reads_of(self, node: fx.Node) -> Sequence:
        """Where an input is read from its stream."""
        ...

    def gives_of(self, node: fx.Node) -> Sequence:
        """Where an output is written to its stream."""
        ...

    def writes_of(self, slot: StepSlot) -> Sequence:
        """Where a resident tensor gets its new value."""
        ...

    def program(self) -> Program:
        """The whole program of a call."""
        ...


def chip_of_block(schedule: Schedule) -> Callable[[fx.Node], int | None]:
    """The chip of a node's block; a view is where its base is, an update where the weights are."""

    def own_chip(node: fx.Node) -> int | None:
        origin = node.meta.get(ORIGIN)
        if origin is None or origin.block is None or not schedule.chip_of_block:
            return None
        if follows_operand(node) or origin.phase == OPTIMISER:
            return None
        return schedule.chip_of_block[origin.block]

    return own_chip


def phase_of(node: fx.Node, schedule: Schedule) -> object:
    """The part of the program a node runs in: each fetches for itself what it reads."""
    origin, phases = node.meta.get(ORIGIN), schedule.phases
    if origin is None or origin.phase == OPTIMISER or not phases.of_block:
        return FORWARD if origin is None else origin.phase
    return phases.number(origin.block, is_backward=origin.phase == BACKWARD)


class SequentialFlow:
    """Every chip takes its turn with each micro-batch."""

    def __init__(self, of: UnderConstruction):
        self.of = of
        self.micro = Sequence()

    def start(self) -> None:
        pass

    def sequence_of(self, node: fx.Node) -> Sequence:
        return self.of.update if is_of_update(node) else self.micro

    def is_computed(self, node: fx.Node) -> bool:  # noqa: ARG002
        return True

    def may_overwrite(self, node: fx.Node) -> bool:  # noqa: ARG002
        return True

    def seed_of(self, node: fx.Node, tiles: Tiles) -> None:  # noqa: ARG002
        return None

    def read(self, node: fx.Node, tiles: Tiles) -> object:
        self.of.gradients.settle(node)
        self.of.off_chip.load(node, tiles, phase_of(tiles.node, self.of.schedule))
        return self.of.values.on_chip_of(tiles, node, lambda base: self.read(base, tiles))

    def own_sum(self, node: fx.Node, tiles: Tiles) -> OwnSum:
        value = self.read(node.all_input_nodes[0], tiles)
        return self.of.gradients.of_one_part(node, value, tiles)  # pyright: ignore[reportArgumentType]

    def reads_of(self, node: fx.Node) -> Sequence:  # noqa: ARG002
        return self.micro

    def gives_of(self, node: fx.Node) -> Sequence:  # noqa: ARG002
        return self.micro

    def writes_of(self, slot: StepSlot) -> Sequence:
        return self.micro if slot.kind == BUFFER else self.of.update

    def program(self) -> Program:
        """Micro-batches are repeated, then updates; transfers may overlap with either."""
        schedule, transfers = self.of.schedule, self.of.transfers
        if transfers.overlap.is_used:
            parts = StepParts(self.of.before, self.micro, self.of.update)
            counts = schedule.n_iterations, schedule.n_accumulation
            spans = spans_iterations(transfers.overlap_modes)
            graph = self.of.values.graph
            return overlapped_program(graph, transfers.overlap, parts, counts, spans=spans)
        passes = self.micro
        if schedule.n_accumulation > 1:
            passes = Repeat(schedule.n_accumulation, self.micro)
        whole = Sequence(self.of.before, passes, self.of.update)
        return Repeat(schedule.n_iterations, whole) if schedule.n_iterations > 1 else whole
