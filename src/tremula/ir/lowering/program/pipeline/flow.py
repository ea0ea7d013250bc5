"""A step as a pipeline: each stage works on its own micro-batch, all at the same time.

Two forward stages on chips 0 and 1 make three stages of training, for backward follows forward.
Iterations go down, and each entry is the micro-batch that the stage works on:

    stage          0      1      2          value `a` of stage 0 is read by stages 1 and 2
    chip           0      1      0
    iteration 0    m0                       a(m0) ──shift──► register on chip 1
              1    m1     m0                a(m1) ──shift──► register; a(m0), a(m1) in a ring
              2    m2     m1     m0         stage 2 restores a(m0) from the ring on chip 0

So a value is not one tensor: `StepValues` has that of the stage that makes it (its *home*), and
`_at(node, stage)` is what another stage sees of the micro-batch it works on. `_brought_to` chooses:

1. weights and constants are the same for all micro-batches: one copy per chip (`_fixed_on`);
2. a view is built again at the later stage, on its base, so that only the base travels;
3. the later stage's chip had the value before (stage 2 above): the earlier stage keeps it in a ring
   with a slot per micro-batch between the two, and the later one restores it (`_kept`);
4. random numbers are drawn again from their seed, which is what the ring keeps (`_redrawn`);
5. else the end of each iteration shifts it from stage to stage, a register on each (`_shifted`).
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import fx

from tremula.base.types import UNSIGNED_INT
from tremula.ir.lowering.program.flow import UnderConstruction, phase_of
from tremula.ir.lowering.program.gradients import OwnSum
from tremula.ir.lowering.program.node_queries import (
    base_of,
    consumers,
    held_nodes,
    is_of_update,
    n_elements,
)
from tremula.ir.lowering.program.pipeline.program import StageParts, pipeline_program
from tremula.ir.lowering.program.pipeline.stages import Stages
from tremula.ir.lowering.random import follows_from_seed, new_seed
from tremula.ir.lowering.tiles import Tiles
from tremula.ir.nodes import is_view
from tremula.ir.ops.markers import GRADIENT_MARK
from tremula.ir.step import INPUT, StepSlot
from tremula.poplar.programs import Copy, Program, Repeat, Sequence
from tremula.poplar.tensors.tensor import Tensor, concat
from tremula.poplibs import popops, poputil
from tremula.poplibs.popops.slicing.dynamic_slice import (
    add_matrix_like,
    dynamic_slice_with_output,
    dynamic_update,
    regions_of_slice,
)

_N_SEED_WORDS = 2  # a value of so few elements is kept as it is


@dataclass(frozen=True)
class _Kept:
    """A value that a stage gets back from an earlier one on its chip: two rows of elements."""

    row: Tensor  # the value at the earlier stage
    working_row: Tensor  # its copy at the later one


class PipelineFlow:
    """A value belongs to the stage that makes it. Later stages read copies that travel along."""

    def __init__(self, of: UnderConstruction, stages: Stages):
        self.of = of
        self.values = of.values
        self.stages = stages
        self.parts = [StageParts() for _ in stages.chip]
        self._at_stage: dict[tuple[fx.Node, int], object] = {}
        self._fixed_copies: dict[tuple[fx.Node, int], Tensor] = {}
        self._fixed_variables: set[int] = set()
        self._registers: set[int] = set()  # variables that shifts write
        self._rings: dict[tuple[int, int], list[_Kept]] = {}  # (earlier stage, stage)
        self._seeds: dict[tuple[fx.Node, int], Tensor] = {}  # of a node, as a stage sees it
        self._term_nodes = self._terms_of_gradients()

    def start(self) -> None:
        """Weights, states and their like are the same for all micro-batches."""
        step = self.values.step
        for slot, node in zip(step.inputs, step.placeholders(), strict=True):
            value = self.values.of_node[node]
            if slot.kind != INPUT and node not in self.stages.of_node and isinstance(value, Tensor):
                self._fixed_variables.update(value.variable_ids())

    def sequence_of(self, node: fx.Node) -> Sequence:
        stage = self.stages.of_node.get(node)
        if stage is not None:
            return self.parts[stage].compute
        return self.of.update if is_of_update(node) else self.of.before

    def is_computed(self, node: fx.Node) -> bool:
        """Sums that only reduce a gradient over stages are not: each stage adds up its own part."""
        return node not in self._term_nodes or node.target is GRADIENT_MARK

    def may_overwrite(self, node: fx.Node) -> bool:
        """Only the update writes in place: no micro-batch is under way then."""
        return is_of_update(node)

    def seed_of(self, node: fx.Node, tiles: Tiles) -> Tensor | None:
        """A new seed for numbers that a later stage on this chip draws again."""
        home = self.stages.of_node.get(node)
        if home is None or not follows_from_seed(node) or n_elements(node) <= _N_SEED_WORDS:
            return None
        later = {self.stages.of_node.get(user) for user in consumers(node)} - {home, None}
        if not any(self._is_far_on_chip(home, stage) for stage in later if stage is not None):
            return None
        return self._seeds.setdefault((node, home), new_seed(tiles))

    def _is_far_on_chip(self, home: int, stage: int) -> bool:
        """Whether a stage would get a value of an earlier one on its chip from a ring."""
        earlier = self.stages.last_on_chip(self.stages.chip[stage], home, stage)
        return earlier is not None and self.stages.n_between(earlier, stage) > 1

    # -- values on the way -------------------------------------------------------------------------

    def read(self, node: fx.Node, tiles: Tiles) -> object:
        stage = self.stages.of_node.get(tiles.node)
        if stage is not None:
            if self.values.chip_of[base_of(node)] == tiles.chip:
                self.of.off_chip.load(node, tiles, stage)
            return self._at(node, stage)
        if is_of_update(tiles.node):
            self.of.gradients.settle(node)
            self.of.off_chip.load(node, tiles, phase_of(tiles.node, self.of.schedule))
            return self.values.on_chip_of(tiles, node, lambda base: self.read(base, tiles))
        return self._fixed_on(node, tiles.chip)

    def _at(self, node: fx.Node, stage: int) -> object:
        """A value as a stage sees it: of the micro-batch that the stage works on."""
        if self.stages.of_node.get(node) == stage:
            return self.values.of_node[node]
        key = (node, stage)
        if key not in self._at_stage:
            self._at_stage[key] = self._brought_to(node, stage)
        return self._at_stage[key]

    def _brought_to(self, node: fx.Node, stage: int) -> object:
        value, chip = self.values.of_node[node], self.stages.chip[stage]
        if not isinstance(value, Tensor) or not value.n_elems:
            return value
        home = self.stages.of_node.get(node)
        if home is None or self._is_fixed(value):
            return self._fixed_on(node, chip)
        if is_view(node.target) and n_elements(node) >= n_elements(node.all_input_nodes[0]):
            # Views are free, so their base travels, once for all of them.
            tiles = self.values.tiles_on(node, chip, self.parts[stage].compute)
            return self.values.build(tiles, lambda base: self._at(base, stage))
        earlier = self.stages.last_on_chip(chip, home, stage)
        if earlier is not None and self.stages.n_between(earlier, stage) == 1:
            return self._at(node, earlier)  # nothing has been written over it
        if earlier is not None and (node, home) in self._seeds:
            return self._redrawn(node, stage)
        if earlier is not None:
            at_earlier = self._at(node, earlier)
            assert isinstance(at_earlier, Tensor), "only tensors are kept"
            return self._kept(at_earlier, earlier, stage, f"{node.name}/stage{stage}")
        return self._shifted(node, stage)

    def _redrawn(self, node: fx.Node, stage: int) -> object:
        """Random numbers as they were at an earlier stage on this chip: from the seed of then."""
        tiles = self.values.tiles_on(node, self.stages.chip[stage], self.parts[stage].compute)
        tiles.seed = self._seed_at(node, stage)
        return self.values.build(tiles, lambda _: self.values.tensor(node))  # only its layout

    def _seed_at(self, node: fx.Node, stage: int) -> Tensor:
        key, home = (node, stage), self.stages.of_node[node]
        if key not in self._seeds:
            earlier = self.stages.last_on_chip(self.stages.chip[stage], home, stage)
            assert earlier is not None, "the seed's stage was on this chip"
            seed = self._seed_at(node, earlier)
            if self.stages.n_between(earlier, stage) > 1:
                seed = self._kept(seed, earlier, stage, f"{node.name}/seed{stage}")
            self._seeds[key] = seed
        return self._seeds[key]

    def _is_fixed(self, value: Tensor) -> bool:
        """Whether a value is made of weights and constants only."""
        is_constant = value.variables.is_constant
        return all(v in self._fixed_variables or is_constant[v] for v in value.variable_ids())

    def _fixed_on(self, node: fx.Node, chip: int) -> object:
        """A weight or a constant on another chip: copied once for all micro-batches."""
        value = self.values.of_node[node]
        if self.values.chip_of[node] == chip or not isinstance(value, Tensor):
            return value
        key = (node, chip)
        if key not in self._fixed_copies:
            if node.op == "get_attr":
                self._fixed_copies[key] = self.values.constant(node, chip)
            else:
                name = f"{node.name}/copy"
                if base_of(node) in self.of.off_chip.rows:
                    self.of.off_chip.fetch(
                        base_of(node), self.values.tiles_on(node, chip, self.of.before)
                    )
                copy = poputil.copy_to_ipu(self.values.graph, value, self.of.before, chip, name)
                self._fixed_variables.update(copy.variable_ids())
                self._fixed_copies[key] = copy
        return self._fixed_copies[key]

    def _shifted(self, node: fx.Node, stage: int) -> Tensor:
        """A register that the end of each iteration fills from the stage before."""
        value, before = self._at(node, stage - 1), self.parts[stage - 1]
        assert isinstance(value, Tensor), "only tensors travel"
        name = f"{node.name}/stage{stage}"
        if self._registers & set(value.variable_ids()):
            # The same copy fills the register that this value is in.
            value = self.values.tiles_on(
                node, self.stages.chip[stage - 1], before.compute
            ).writeable_copy(value)
        chip = self.stages.chip[stage]
        register, source, target = poputil.create_ipu_copy(self.values.graph, value, chip, name)
        self._registers.update(target.variable_ids())
        source, (target,) = poputil.in_memory_order(source, [target])
        before.shifts.append((source, target))
        return register

    def _kept(self, value: Tensor, earlier: int, stage: int, name: str) -> Tensor:
        """A working copy of a value that an earlier stage on the same chip had."""
        graph = self.values.chips[self.stages.chip[stage]]
        distinct, repeated = poputil.distinct_part(value)
        working = poputil.clone_in_order(graph, distinct, name)
        row, (working_row,) = poputil.in_memory_order(distinct, [working])
        self._rings.setdefault((earlier, stage), []).append(_Kept(row, working_row))
        return repeated(working)

    def _add_rings(self) -> None:
        """One ring of each type between two stages, with a slot for each micro-batch between them.

        A list of slot numbers says which is next. It is rotated by one each time, which is cheaper
        than counting: with three slots 0 1 2, then 1 2 0, then 2 0 1.
        """
        for (earlier, stage), buffered in self._rings.items():
            graph = self.values.chips[self.stages.chip[stage]]
            n_slots = self.stages.n_between(earlier, stage)
            keeps, restores = self.parts[earlier].keeps, self.parts[stage].restores
            name = f"ring{earlier}-{stage}"
            order = graph.add_constant(UNSIGNED_INT, [n_slots], np.arange(n_slots), mapping=0)
            turns = [graph.clone(order, f"{name}/turn") for _ in range(2)]
            self.of.before.add(*(Copy(order, turn) for turn in turns))
            leaves = self.values.options.locations.activation.leaves
            for value in buffered:
                if leaves(value.row.n_elems):
                    self._keep_off_chip(value, n_slots, turns, (keeps, restores))
            stays = [value for value in buffered if not leaves(value.row.n_elems)]
            for type in dict.fromkeys(value.row.type for value in stays):
                same = [value for value in stays if value.row.type == type]
                row = concat([value.row for value in same]).expand([0])
                working = concat([value.working_row for value in same]).expand([0])
                ring, _ = add_matrix_like(graph, type, n_slots, *regions_of_slice(graph, row), name)
                dynamic_update(graph, ring, row, turns[0][:1], keeps, f"{name}/keep")
                dynamic_slice_with_output(
                    graph, working, ring, turns[1][:1], restores, f"{name}/restore"
                )
            for sequence, turn in zip((keeps, restores), turns, strict=True):
                sequence.add(Copy(concat([turn[1:], turn[:1]]), turn, name=f"{name}/turn"))

    def _keep_off_chip(
        self, value: _Kept, n_slots: int, turns: list[Tensor], parts: tuple[Sequence, Sequence]
    ) -> None:
        """A ring in streaming memory: its slots are the rows of a remote buffer."""
        handle = f"remote:ring:{value.working_row.variable_ids()[0]}"
        row, (keeps, restores) = value.row, parts
        ring = self.values.graph.add_remote_buffer(handle, row.type, row.n_elems, n_slots)
        keeps.add(Copy(row, ring, turns[0][:1], waits=self.of.transfers.waits))
        restores.add(Copy(ring, value.working_row, turns[1][:1], waits=self.of.transfers.waits))

    # -- gradients ---------------------------------------------------------------------------------

    def _terms_of_gradients(self) -> dict[fx.Node, list[fx.Node]]:
        """Sums that only reduce a weight's gradient over stages: their terms, for each such sum.

        No stage has to wait for another: each accumulates its own part.
        """
        result = {}
        for node in self.values.step.graph.nodes:
            if node.target is GRADIENT_MARK:
                result[node] = self._terms(node.all_input_nodes[0], result)
        return result

    def _terms(self, node: fx.Node, terms_of: dict[fx.Node, list[fx.Node]]) -> list[fx.Node]:
        of_node, operands = self.stages.of_node, node.all_input_nodes
        is_plain_sum = (
            node.target is torch.ops.aten.add.Tensor
            and len(node.users) == 1
            and not node.kwargs
            and len(operands) == 2
            and all(n.meta["val"].shape == node.meta["val"].shape for n in operands)
            and all(n.meta["val"].dtype == node.meta["val"].dtype for n in operands)
        )
        if not is_plain_sum or of_node.get(operands[0]) == of_node.get(operands[1]):
            return [node]
        terms = [term for operand in operands for term in self._terms(operand, terms_of)]
        terms_of[node] = terms
        return terms

    def own_sum(self, node: fx.Node, tiles: Tiles) -> OwnSum:
        """Each stage adds its part while micro-batches pass; the update adds those of chips."""
        gradients, totals = self.of.gradients, dict[int, Tensor]()
        leaders: dict[int, Tiles] = {}
        for term in sorted(self._term_nodes[node], key=self.stages.of_node.__getitem__):
            stage = self.stages.of_node[term]
            value, chip = self.values.of_node[term], self.stages.chip[stage]
            assert isinstance(value, Tensor), "gradients are tensors"
            here = self.values.tiles_on(node, chip, self.parts[stage].compute)
            value = gradients.scattered(node, value, here)
            if chip not in totals:
                totals[chip] = gradients.accumulator(value, here)
            gradients.accumulate(totals[chip], value, here, leaders.get(chip))
            leaders.setdefault(chip, here)
        chip = tiles.chip if tiles.chip in totals else next(iter(totals))
        self.values.chip_of[node] = chip
        total, home = totals.pop(chip), self.values.tiles_on(node, chip, self.of.update)
        return lambda: (self._sum_of_parts(total, totals, home), home)

    def _sum_of_parts(self, total: Tensor, others: dict[int, Tensor], home: Tiles) -> Tensor:
        self.of.off_chip.load_sum(total, home)
        for other, part in others.items():
            self.of.off_chip.load_sum(part, home)
            name = f"{home.name}/part"
            if other != home.chip:
                part = poputil.copy_to_ipu(self.values.graph, part, self.of.update, home.chip, name)
            popops.add_in_place(home.graph, total, part, self.of.update, name)
        return total

    # -- ends --------------------------------------------------------------------------------------

    def reads_of(self, node: fx.Node) -> Sequence:
        return self.parts[self.stages.of_node.get(node, 0)].reads

    def gives_of(self, node: fx.Node) -> Sequence:
        return self.parts[self.stages.of_node.get(node, 0)].gives

    def writes_of(self, slot: StepSlot) -> Sequence:
        state_node = held_nodes(self.values.step)[slot.kind, slot.index]
        stage = self.stages.of_node.get(state_node)
        return self.of.update if stage is None else self.parts[stage].writes

    def program(self) -> Program:
        """Device iterations repeat a training step; without an update they are micro-batches."""
        schedule, is_training = self.of.schedule, self.values.step.training
        self._add_rings()
        n_runs = schedule.n_iterations if is_training else 1
        n_micro_batches = schedule.n_accumulation * schedule.n_iterations // n_runs
        passes = pipeline_program(
            self.values.graph, self.parts, n_micro_batches, self.stages.stride
        )
        whole = Sequence(self.of.before, passes, self.of.update)
        return Repeat(n_runs, whole) if n_runs > 1 else whole
