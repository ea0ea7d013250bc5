"""Gradients between the backward pass and the update: summed over micro-batches and replicas."""

from collections.abc import Callable

from torch import fx

from tremula.base.replica_group import ReplicaGroup
from tremula.base.types import FLOAT
from tremula.ir.lowering.pointwise.map import narrow, wide
from tremula.ir.lowering.program.node_queries import n_elements
from tremula.ir.lowering.program.off_chip import OffChipTensors
from tremula.ir.lowering.program.schedule import Schedule
from tremula.ir.lowering.program.values import StepValues
from tremula.ir.lowering.shards import scattered_together
from tremula.ir.lowering.start_tiles import spread_if_small
from tremula.ir.lowering.tiles import Tiles
from tremula.ir.lowering.types import tile_type
from tremula.ir.passes.shard_update import N_SHARDS
from tremula.poplar.programs import Sequence
from tremula.poplar.tensors.tensor import Tensor, concat
from tremula.poplibs import gcl, popops, poputil
from tremula.poplibs.popops.elementwise.expr import _1, _2, _3

# What brings the sum of this replica, and where it is then.
OwnSum = Callable[[], tuple[Tensor, Tiles]]


class GradientSums:
    """The gradients that the optimiser sees: over all micro-batches and replicas of the step.

    A sum that is off the chip comes back when the update asks for it, not all at its beginning.
    Sums that are merged into one collective wait for each other.
    """

    def __init__(
        self,
        values: StepValues,
        off_chip: OffChipTensors,
        schedule: Schedule,
        before: Sequence,
        update: Sequence,
    ):
        """`before` runs before the first micro-batch of each update, `update` after the last."""
        self.values = values
        self.off_chip = off_chip
        self.schedule = schedule
        self.options = values.options
        self.before, self.update = before, update
        self._deferred: dict[fx.Node, OwnSum] = {}  # gradients that are not yet read
        self._counters: dict[int, Tensor] = {}  # of micro-batches, by the sequence that counts

    def add(self, node: fx.Node, own_sum: OwnSum) -> None:
        """Reduce the gradient of a mark now, or when it is first read."""
        self._deferred[node] = own_sum
        is_off_chip = self.options.locations.accumulator.leaves(n_elements(node))
        if not is_off_chip and self._merge_key(node) is None:
            self.settle(node)

    def settle(self, node: fx.Node) -> None:
        """Build what was put off until something reads it, and what is merged with it."""
        if node not in self._deferred:
            return
        key = self._merge_key(node)
        together = [n for n in self._deferred if key is not None and self._merge_key(n) == key]
        sums = [(n, *self._deferred.pop(n)()) for n in together or [node]]
        self.values.of_node.update(self._over_replicas(sums))

    # -- over micro-batches ------------------------------------------------------------------------

    @property
    def is_combined(self) -> bool:
        """Whether a gradient is more than that of one micro-batch."""
        schedule = self.schedule
        return schedule.n_accumulation * schedule.n_replicas > 1 or schedule.gradient_scale != 1

    def of_one_part(self, node: fx.Node, value: Tensor, tiles: Tiles) -> OwnSum:
        """The sum of a gradient that a single part of the program computes."""
        home = self.values.tiles_on(node, tiles.chip, self.update)
        if not self.is_combined:
            return lambda: (value, home)
        value = self.scattered(node, value, tiles)
        if self.schedule.n_accumulation == 1:
            total = poputil.duplicate(tiles.graph, value, self.update, tiles.name)
            return lambda: (total, home)
        total = self.accumulator(value, tiles)
        self.accumulate(total, value, tiles)

        def loaded() -> tuple[Tensor, Tiles]:
            self.off_chip.load_sum(total, home)
            return total, home

        return loaded

    def _scatters_early(self, node: fx.Node) -> bool:
        """Whether sums of gradients are shards: those of micro-batches are scattered at once."""
        n_shards = node.meta.get(N_SHARDS, 1)
        is_sharded = self.options.locations.accumulator.shards(n_elements(node) * n_shards)
        return n_shards > 1 and self.schedule.n_accumulation > 1 and is_sharded

    def scattered(self, node: fx.Node, value: Tensor, tiles: Tiles) -> Tensor:
        """This replica's shard of a micro-batch's gradient, if sums are shards."""
        if not self._scatters_early(node):
            return value
        return gcl.reduce_scatter(tiles.graph, value, "ADD", tiles.sequence, tiles.name)

    def accumulator(self, like: Tensor, tiles: Tiles) -> Tensor:
        """A variable that is zero before the first micro-batch of each update."""
        type, rule = like.type, self.values.step.rule
        if self.schedule.has_running_mean:
            assert rule is not None, "only training has gradients"
            type = tile_type(rule.accum_dtype)
        name = f"{tiles.name}/accumulator"
        total = poputil.clone_in_order(self.values.graph, like, name, type=type)
        popops.zero(tiles.graph, total, self.before, tiles.name)
        self.off_chip.add_sum(total, self.values.tiles_on(tiles.node, tiles.chip, self.before))
        return total

    def accumulate(
        self, total: Tensor, value: Tensor, tiles: Tiles, leader: Tiles | None = None
    ) -> None:
        """Add the gradient of a micro-batch, or move their running mean towards it.

        Several parts of a program may share a mean: the first in which a micro-batch arrives is
        the `leader` of the others, which add their gradients divided by its count.
        """
        self.off_chip.load_sum(total, tiles)
        self._add_to(total, value, tiles, leader)
        self.off_chip.store_sum(total, tiles)

    def _add_to(self, total: Tensor, value: Tensor, tiles: Tiles, leader: Tiles | None) -> None:
        if not self.schedule.has_running_mean:
            popops.add_in_place(tiles.graph, total, value, tiles.sequence, tiles.name)
            return
        mean, gradient = wide(_1, total.type), wide(_2, value.type)
        change = gradient - mean if leader is None else gradient
        moved = narrow(mean + change / _3, total.type)
        operands = [total, value, self._counter(leader or tiles)]
        popops.map_in_place(tiles.graph, moved, operands, tiles.sequence, tiles.name)

    def _counter(self, tiles: Tiles) -> Tensor:
        """FLOAT: the number of the micro-batch, from 1, as the part of a program counts that runs.

        It is incremented before its first reader: parts of a pipeline are at different ones.
        """
        key = id(tiles.sequence)
        if key not in self._counters:
            name = "micro_batch"
            counter = spread_if_small(tiles.graph, FLOAT, [], name)
            popops.zero(tiles.graph, counter, self.before, name)
            one = tiles.constant(1.0, FLOAT)
            popops.add_in_place(tiles.graph, counter, one, tiles.sequence, name)
            self._counters[key] = counter
        return self._counters[key]

    # -- over replicas -----------------------------------------------------------------------------

    def _merge_key(self, node: fx.Node) -> object:
        """Gradients with equal keys are reduced over replicas by one collective; None: by its own.

        Off the chip, sums are fetched one by one to save memory, and so stay apart.
        """
        options, is_shard = self.options, node.meta.get(N_SHARDS, 1) > 1
        wants = options.merges_reduce_scatters if is_shard else options.merges_all_reduces
        is_off_chip = options.locations.accumulator.leaves(n_elements(node))
        if not wants or is_off_chip or self.schedule.n_replicas == 1 or self._scatters_early(node):
            return None
        return self.values.chip_of[node], is_shard, self._group_of(node)

    def _group_of(self, node: fx.Node) -> ReplicaGroup:
        """The groups of replicas that share the weight of a gradient."""
        rule, index = self.values.step.rule, node.args[1]
        assert rule is not None, "only training has gradients"
        assert isinstance(index, int), "a mark has its weight's index"
        return self.schedule.group_of(rule.names[index])

    def _over_replicas(self, sums: list[tuple[fx.Node, Tensor, Tiles]]) -> dict[fx.Node, Tensor]:
        """The update begins with sums over replicas, then the scale of the mean.

        Sums that are reduced together differ at most in their types.
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
        if not self.is_combined:
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
