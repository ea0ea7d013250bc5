"""Pass: values that wait in streaming memory from the part of a step that makes them to the next.

A reader in another part gets `tremula::fetched` of the value, made just before it: the program
stores the value where it is computed, and fetches it there. Views are built again on what was
fetched, so that only what they are views of travels.
"""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor, fx

from tremula.ir.locations import Phases
from tremula.ir.nodes import is_view, schema_name
from tremula.ir.ops import markers  # noqa: F401  registers tremula::fetched
from tremula.ir.origin import BACKWARD, OPTIMISER, ORIGIN
from tremula.ir.step import CapturedStep

FETCHED = torch.ops.tremula.fetched.default
Parts = Callable[[fx.Node], Hashable]


def by_direction(node: fx.Node) -> Hashable:
    """Two parts: the forward pass and the backward pass."""
    return node.meta[ORIGIN].phase


def part_of_stage(stage_of_block: Sequence[int], node: fx.Node) -> Hashable:
    """Directions of a pipeline's last stage, which has both; None: values wait in rings."""
    block = node.meta[ORIGIN].block
    is_last = block is not None and stage_of_block[block] == max(stage_of_block)
    return by_direction(node) if is_last else None


def part_of_phase(phases: Phases, node: fx.Node) -> Hashable:
    """The number of its phase."""
    origin = node.meta[ORIGIN]
    return phases.number(origin.block, is_backward=origin.phase == BACKWARD)


def leave_chip(
    step: CapturedStep,
    leaves: Callable[[int], bool],
    part_of: Parts = by_direction,
    *,
    only_for_backward: bool = False,
) -> CapturedStep:
    """Values with a size that `leaves` are off the chip between parts of the step.

    Or only those that the forward pass makes and the backward pass reads.
    """

    def waits(base: fx.Node, user: fx.Node) -> bool:
        value = base.meta.get("val")
        return (
            is_of_micro_batches(base)
            and isinstance(value, Tensor)
            and None not in (part_of(base), part_of(user))
            and part_of(base) != part_of(user)
            and (not only_for_backward or by_direction(base) != by_direction(user))
            and leaves(value.numel())
        )

    def bring(base: fx.Node) -> fx.Node:
        return step.graph.call_function(FETCHED, (base,))

    return PartReads(step, waits, bring, part_of).run()


@dataclass(frozen=True)
class PartReads:
    """Lets each part of a step read, of values that wait elsewhere, what was brought to it."""

    step: CapturedStep
    waits: Callable[[fx.Node, fx.Node], bool]  # (what is not a view, a reader)
    bring: Callable[[fx.Node], fx.Node]  # makes the node that brings a value, with its shape
    part_of: Parts
    brought: dict[tuple[fx.Node, Hashable], fx.Node] = field(default_factory=dict)

    def run(self) -> CapturedStep:
        for node in list(self.step.graph.nodes):
            if is_of_micro_batches(node) and not _follows(node):
                for source in node.all_input_nodes:
                    if self.waits(base_of(source), node):
                        node.replace_input_with(source, self._brought_to(source, node))
        return self.step

    def _brought_to(self, source: fx.Node, user: fx.Node) -> fx.Node:
        """The value in the part of a user; once for all users there, of which this is the first."""
        key = (source, self.part_of(user))
        if key not in self.brought:
            is_base = base_of(source) is source
            base = None if is_base else self._brought_to(source.all_input_nodes[0], user)
            with self.step.graph.inserting_before(user):
                if base is None:
                    new = self.bring(source)
                else:
                    new = self.step.graph.node_copy(source, lambda _: base)
            new.meta = {**source.meta, **new.meta, ORIGIN: user.meta[ORIGIN]}
            self.brought[key] = new
        return self.brought[key]


def _follows(node: fx.Node) -> bool:
    """Whether a node computes nothing itself: a view, or a gradient where it is reduced."""
    return is_view(node.target) or schema_name(node) == "tremula::gradient"


def is_of_micro_batches(node: fx.Node) -> bool:
    """Whether micro-batches make a value; the update reads gradients where they are."""
    origin = node.meta.get(ORIGIN)
    return node.op == "call_function" and origin is not None and origin.phase != OPTIMISER


def base_of(node: fx.Node) -> fx.Node:
    """What a view is a view of; anything else is itself."""
    while node.op == "call_function" and is_view(node.target):
        node = node.all_input_nodes[0]
    return node
