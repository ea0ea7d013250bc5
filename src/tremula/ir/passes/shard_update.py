"""Pass: the update of large weights is sharded over replicas, with its states.

A weight of n elements is R shards of ceil(n / R), the last ones padded with zeros. Its gradient is
reduced and scattered, each replica updates its shard, and the new shards are gathered:

    gradient ──reduce-scatter──► shard ─┐
    weight ───────own shard────► shard ─┼─► update ──► shard ──gather──► weight
    states, which are shards ───────────┘

Updates are element-wise, so only shapes change. A sum over a shard (of a norm) is completed over
replicas.
"""

from typing import NamedTuple

import torch
from torch import Tensor, fx

import tremula.ir.ops.shards  # noqa: F401  registers tremula::own_shard
from tremula.ir.errors import UnsupportedOperations
from tremula.ir.ops.markers import GRADIENT_MARK
from tremula.ir.origin import OPTIMISER, ORIGIN, Origin
from tremula.ir.passes.clean import drop_dead
from tremula.ir.passes.offload_activations import PartReads, base_of
from tremula.ir.step import OUTPUT, PARAMETER, STATE, CapturedStep

OWN_SHARD = torch.ops.tremula.own_shard.default
GATHERED = torch.ops.tremula.gathered.default
SUM_OVER_REPLICAS = torch.ops.tremula.sum_over_replicas.default
_SUMS = {torch.ops.aten.sum.default, torch.ops.aten.sum.dim_IntList}


N_SHARDS = "n_shards"  # the key under which a node's meta has the number of shards it is one of


class Shards(NamedTuple):
    """What is sharded over replicas."""

    n_replicas: int = 1
    updated: tuple[str, ...] = ()  # weights of which each replica updates a shard
    stored: tuple[str, ...] = ()  # of these: weights of which each replica holds only a shard


def shard_update(step: CapturedStep, shards: Shards) -> CapturedStep:
    """Shard updates over replicas; weights stored as shards are gathered where they are read."""
    for name in shards.updated:
        _ShardedWeight(step, name, shards.n_replicas, is_held=name in shards.stored).run()
    return drop_dead(step)


class _ShardedWeight:
    def __init__(self, step: CapturedStep, name: str, n_replicas: int, *, is_held: bool):
        assert step.rule is not None, "only training has an update"
        self.step = step
        self.name = name
        self.n_replicas = n_replicas
        node_of = dict(zip(step.inputs, step.placeholders(), strict=True))
        self.weight = next(n for s, n in node_of.items() if (s.kind, s.name) == (PARAMETER, name))
        returned = [base_of(step.results()[place]) for place, _ in step.results_of_kind(OUTPUT)]
        self.is_held = is_held and self.weight not in returned  # what a model returns is whole
        self.whole = self.weight.meta["val"]
        self.shape = tuple(self.whole.shape)
        self.length = -(-self.whole.numel() // n_replicas)
        self.states = [
            node
            for slot, node in node_of.items()
            if slot.kind == STATE
            and slot.owner == name
            and tuple(node.meta["val"].shape) == self.shape
        ]
        self.sharded: set[fx.Node] = set()

    def run(self) -> None:
        for input_node in (*self.states, *([self.weight] if self.is_held else [])):
            self._shorten(input_node)
        number = self.step.rule.names.index(self.name)  # pyright: ignore[reportOptionalMemberAccess]
        for node in list(self.step.graph.nodes):
            if node.target is GRADIENT_MARK and node.args[1] == number:
                self._shorten(node)
            elif _is_of_update(node):
                self._visit(node)
        if self.is_held:
            self._gather_reads()
        else:
            self._gather_result()

    def _visit(self, node: fx.Node) -> None:
        if self.weight in node.all_input_nodes and not self.is_held:
            node.replace_input_with(self.weight, self._own_shard(node))
        if not any(source in self.sharded for source in node.all_input_nodes):
            return
        value = node.meta["val"]
        if node.target in _SUMS and not value.shape:
            self._complete(node)
        elif isinstance(value, Tensor) and tuple(value.shape) == self.shape:
            self._shorten(node)
        else:
            origin: Origin = node.meta[ORIGIN]
            raise UnsupportedOperations(
                f"The update of {self.name} cannot be sharded over replicas: {node.target} is not"
                " element-wise.",
                source=origin.source,
                hint="leave useReplicatedTensorSharding off, or use another optimizer",
            )

    def _shorten(self, node: fx.Node) -> None:
        self.sharded.add(node)
        node.meta["val"] = node.meta["val"].new_empty((self.length,))
        node.meta[N_SHARDS] = self.n_replicas

    def _own_shard(self, before: fx.Node) -> fx.Node:
        with self.step.graph.inserting_before(before):
            shard = self.step.graph.call_function(OWN_SHARD, (self.weight, self.n_replicas))
        shard.meta = {**self.weight.meta, ORIGIN: before.meta[ORIGIN]}
        self._shorten(shard)
        return shard

    def _complete(self, node: fx.Node) -> None:
        """A sum over a shard becomes that over the whole."""
        with self.step.graph.inserting_after(node):
            whole = self.step.graph.call_function(SUM_OVER_REPLICAS, (node,))
        whole.meta = dict(node.meta)
        node.replace_all_uses_with(whole, delete_user_cb=lambda user: user is not whole)

    def _gathered(self, shard: fx.Node) -> fx.Node:
        result = self.step.graph.call_function(GATHERED, (shard, list(self.shape), self.n_replicas))
        result.meta = {"val": self.whole, N_SHARDS: 1}
        return result

    def _gather_reads(self) -> None:
        """Each block of each pass gathers the weight for itself, and lets it go afterwards."""

        def part_of(node: fx.Node) -> tuple:
            return (node.meta[ORIGIN].phase, node.meta[ORIGIN].block)

        PartReads(self.step, lambda base, _: base is self.weight, self._gathered, part_of).run()

    def _gather_result(self) -> None:
        output = self.step.graph.output_node()
        results = self.step.results()
        for place, slot in self.step.results_of_kind(PARAMETER):
            if slot.name == self.name and results[place] in self.sharded:
                with self.step.graph.inserting_before(output):
                    whole = self._gathered(results[place])
                whole.meta[ORIGIN] = results[place].meta[ORIGIN]
                results[place] = whole
        output.args = (tuple(results),)


def _is_of_update(node: fx.Node) -> bool:
    origin = node.meta.get(ORIGIN)
    return node.op == "call_function" and origin is not None and origin.phase == OPTIMISER
