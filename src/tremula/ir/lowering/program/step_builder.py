"""Builds variables, streams and vertices of a step, node by node.

The parts have a file each: where values are (`values`), streaming memory (`off_chip`), gradients on
their way to the update (`gradients`), streams of the host (`host_transfers`). A `Flow` decides when
each part runs: one micro-batch after another (`flow`), or as a pipeline (`pipeline/flow`).
"""

from collections.abc import Callable

from torch import fx

from tremula.base.source import at_source
from tremula.ir.lowering.options import LoweringOptions
from tremula.ir.lowering.program.flow import (
    Flow,
    SequentialFlow,
    UnderConstruction,
    chip_of_block,
)
from tremula.ir.lowering.program.gradients import GradientSums
from tremula.ir.lowering.program.host_transfers import HostTransfers
from tremula.ir.lowering.program.node_queries import base_of, held_nodes, overwrites, source_of_user
from tremula.ir.lowering.program.off_chip import OffChipTensors
from tremula.ir.lowering.program.pipeline.flow import PipelineFlow
from tremula.ir.lowering.program.pipeline.stages import assign_stages
from tremula.ir.lowering.program.schedule import BuiltProgram, Schedule
from tremula.ir.lowering.program.values import StepValues
from tremula.ir.lowering.tiles import HOST_FUNCTIONS
from tremula.ir.ops.markers import GRADIENT_MARK
from tremula.ir.passes.offload_activations import FETCHED
from tremula.ir.step import INPUT, OUTPUT, CapturedStep
from tremula.poplar.graph import Graph
from tremula.poplar.programs import Copy, Sequence, Waits
from tremula.poplar.target import Target
from tremula.poplar.tensors.tensor import Tensor
from tremula.poplibs import poputil


def step_builder(
    step: CapturedStep, target: Target, schedule: Schedule, options: LoweringOptions
) -> "StepBuilder":
    """A builder with all its parts, for a pipeline if the schedule has stages."""
    graph = Graph(target, schedule.n_replicas)
    stages = assign_stages(step, schedule) if schedule.is_pipelined else None
    own_chip = chip_of_block(schedule) if stages is None else stages.chip_of
    values = StepValues(step, graph, options, own_chip)
    waits = Waits.ALL if schedule.waits_for_all else Waits.OWN
    off_chip = OffChipTensors(values, schedule, waits)
    before, update = Sequence(), Sequence()
    gradients = GradientSums(values, off_chip, schedule, before, update)
    built = BuiltProgram(graph, Sequence())
    transfers = HostTransfers(values, built, waits)
    of = UnderConstruction(schedule, values, off_chip, gradients, transfers, before, update)
    flow = SequentialFlow(of) if stages is None else PipelineFlow(of, stages)
    return StepBuilder(of, flow, built)


class StepBuilder:
    """Lowers the nodes of a step in their order."""

    def __init__(self, of: UnderConstruction, flow: Flow, built: BuiltProgram):
        self.of = of
        self.values = of.values
        self.step = of.values.step
        self.flow = flow
        self.built = built
        self._overwrites = overwrites(self.step, self.values.folded)  # node → placeholder

    def build(self, progress: Callable[[int, int], None] | None) -> BuiltProgram:
        """The program of the step; `progress(done, total)` counts nodes."""
        nodes = list(self.step.graph.nodes)
        self._hold_inputs()
        for done, node in enumerate(nodes):
            if node.op == "get_attr":
                self.values.of_node[node] = self.values.constant(node, self.values.chip_of[node])
            elif node.op == "call_function" and self.flow.is_computed(node):
                self.lower(node)
            if progress is not None:
                progress(done + 1, len(nodes))
        self._give_results()
        for shared in self.values.shared:
            self.built.host_functions.update(shared.get(HOST_FUNCTIONS, {}))
        self.built.program = self.of.transfers.called(self.flow.program())
        return self.built

    def _hold_inputs(self) -> None:
        for slot, node in zip(self.step.inputs, self.step.placeholders(), strict=True):
            with at_source(source_of_user(node)):
                tensor = self.values.variable(slot, node)
            self.values.of_node[node] = tensor
            if slot.kind == INPUT:
                self.of.transfers.add_input(slot, node, tensor, self.flow.reads_of(node))
            else:
                handle = self.of.off_chip.hold(slot, node, tensor)
                self.built.state_handles[slot.kind, slot.index] = handle
        self.flow.start()

    def lower(self, node: fx.Node) -> None:
        """Add the vertices of a node to the program."""
        if node in self.values.folded.nodes:
            return
        of, chip = self.of, self.values.chip_of[node]
        tiles = self.values.tiles_on(node, chip, self.flow.sequence_of(node))
        if node.target is GRADIENT_MARK:
            of.gradients.add(node, self.flow.own_sum(node, tiles))
            return
        if node.target is FETCHED:
            fetched = of.off_chip.fetched(node, tiles, lambda n: self.flow.read(n, tiles))
            self.values.of_node[node] = fetched
            return
        tiles.destination = self._destination(node, chip)
        tiles.seed = self.flow.seed_of(node, tiles)
        self.values.of_node[node] = self.values.build(tiles, lambda n: self.flow.read(n, tiles))
        of.off_chip.store(node, of.update)
        if any(user.target is FETCHED for user in node.users):
            of.off_chip.leave(node, tiles)

    def _destination(self, node: fx.Node, chip: int) -> Tensor | None:
        """The resident tensor that a node writes its value over, if it may and is on its chip."""
        overwritten = self._overwrites.get(node)
        if (
            overwritten is None
            or self.values.chip_of[overwritten] != chip
            or not self.flow.may_overwrite(node)
        ):
            return None
        return self.values.tensor(overwritten)

    # -- results -----------------------------------------------------------------------------------

    def _give_results(self) -> None:
        of, state_nodes = self.of, held_nodes(self.step)
        writes: dict[int, tuple[Sequence, list[tuple[Tensor, Tensor]]]] = {}
        for slot, node in zip(self.step.outputs, self.step.results(), strict=True):
            of.gradients.settle(node)
            value, old = self.values.tensor(node), state_nodes.get((slot.kind, slot.index))
            if slot.kind in (OUTPUT, INPUT):
                gives = self.flow.gives_of(node)
                self._load_result(node, gives)
                of.transfers.add_output(slot, node, value, gives)
            elif old is None or old in of.off_chip.rows:
                continue  # a loss or a gradient is not saved; what is off the chip was stored
            elif value is not (target := self.values.tensor(old)):  # else it was written in place
                sequence = self.flow.writes_of(slot)
                writes.setdefault(id(sequence), (sequence, []))[1].append((value, target))
        for sequence, pairs in writes.values():
            self._write(pairs, sequence)

    def _load_result(self, node: fx.Node, gives: Sequence) -> None:
        """A weight that a model returns is fetched for it."""
        if base_of(node) in self.of.off_chip.rows:
            self.of.off_chip.fetch(base_of(node), self.values.tiles_on(node, 0, gives))

    def _write(self, pairs: list[tuple[Tensor, Tensor]], sequence: Sequence) -> None:
        """Save a new value that is a view of another resident tensor before that one is written."""
        targets = {v for _, target in pairs for v in target.variable_ids()}
        safe = []
        for value, target in pairs:
            aliases = targets & set(value.variable_ids())
            graph = self.values.graph
            saved = poputil.duplicate(graph, value, sequence, "saved") if aliases else value
            safe.append((saved, target))
        for value, target in safe:
            sequence.add(Copy(value.flatten(), target.flatten()))
