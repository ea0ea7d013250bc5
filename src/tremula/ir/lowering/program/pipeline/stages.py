"""The stages of a pipeline: which of them computes each node, on which chip."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from torch import fx

from tremula.ir.errors import UnsupportedOperations
from tremula.ir.lowering.program.node_queries import consumers, follows_operand, is_of_update
from tremula.ir.lowering.program.schedule import Schedule
from tremula.ir.origin import BACKWARD, ORIGIN
from tremula.ir.step import BUFFER, INPUT, PARAMETER, CapturedStep


@dataclass(frozen=True)
class Stages:
    """Stages in the order in which a micro-batch passes through them.

    A step of S forward stages has S stages, or 2S - 1 if it trains: the last one computes forward
    and backward at once, then the others follow backward, each on the chip it had. Interleaved, the
    last one has a separate backward stage, so there are 2S.
    """

    chip: tuple[int, ...]  # of each stage
    stride: int  # iterations between two micro-batches at a stage
    # Nodes whose value belongs to a micro-batch; weights, constants and their views have no stage.
    of_node: dict[fx.Node, int] = field(default_factory=dict)

    def chip_of(self, node: fx.Node) -> int | None:
        """The chip of a node's stage; None for one without a stage."""
        stage = self.of_node.get(node)
        return None if stage is None else self.chip[stage]

    def last_on_chip(self, chip: int, first: int, end: int) -> int | None:
        """The last stage on a chip, of those from `first` up to `end`."""
        return next((k for k in range(end - 1, first - 1, -1) if self.chip[k] == chip), None)

    def n_between(self, earlier: int, later: int) -> int:
        """How many micro-batches have passed an earlier stage and not yet a later one."""
        return -(-(later - earlier) // self.stride)


def assign_stages(step: CapturedStep, schedule: Schedule) -> Stages:
    """A node's stage is that of its block, or a later one if an operand comes from there."""
    return _Assignment(step, schedule).run()


class _Assignment:
    def __init__(self, step: CapturedStep, schedule: Schedule):
        self.step = step
        self.stage_of_block = schedule.stage_of_block
        self.n_forward = max(schedule.stage_of_block) + 1
        forward = [
            schedule.chip_of_block[schedule.stage_of_block.index(stage)]
            for stage in range(self.n_forward)
        ]
        self.stride = schedule.stride if step.training else 1
        backward = forward if self.stride > 1 else forward[:-1]
        self.chip = (*forward, *reversed(backward)) if step.training else tuple(forward)
        self.stage: dict[fx.Node, int] = {}
        self.changed = changed_in_loop(step)
        self.fixed = self._fixed()

    def run(self) -> Stages:
        nodes = [n for n in self.step.graph.nodes if n not in self.fixed and not is_of_update(n)]
        calls = [node for node in nodes if node.op == "call_function"]
        for node in calls:
            stage = self._stage_of(node)
            if stage is not None:
                self.stage[node] = stage
        self._place_by_users(reversed(calls))
        self._place_by_users(self._of_kind(INPUT))
        for placeholder, result in self.changed.items():
            self._place_changed(placeholder, result)
        return Stages(self.chip, self.stride, self.stage)

    def _fixed(self) -> set[fx.Node]:
        """What all micro-batches of an update share: resident tensors, constants, views."""
        passing = {*self._of_kind(INPUT), *self.changed}
        fixed: set[fx.Node] = set()
        for node in self.step.graph.nodes:
            if node.op in ("placeholder", "get_attr"):
                is_fixed = node not in passing
            else:
                is_fixed = follows_operand(node) and node.all_input_nodes[0] in fixed
            if is_fixed:
                fixed.add(node)
        return fixed

    def _of_kind(self, kind: str) -> list[fx.Node]:
        pairs = zip(self.step.inputs, self.step.placeholders(), strict=True)
        return [node for slot, node in pairs if slot.kind == kind]

    def _stage_of(self, node: fx.Node) -> int | None:
        """None if neither block nor operands determine it."""
        needed = max((self.stage.get(n, -1) for n in node.all_input_nodes), default=-1)
        origin = node.meta.get(ORIGIN)
        if follows_operand(node) or origin is None or origin.block is None:
            return needed if needed >= 0 else None
        own, last = self.stage_of_block[origin.block], self.n_forward - 1
        if origin.phase == BACKWARD:
            last = len(self.chip) - 1
            own = last - own
        if needed <= own:
            return own
        later = (k for k in range(needed, last + 1) if self.chip[k] == self.chip[own])
        return next(later, needed)

    def _place_by_users(self, nodes: Iterable[fx.Node]) -> None:
        """Nodes that nothing else places are computed by the first stage that uses them."""
        for node in nodes:
            if node not in self.stage:
                stages = [self.stage[user] for user in node.users if user in self.stage]
                self.stage[node] = min(stages, default=0)

    def _place_changed(self, placeholder: fx.Node, result: fx.Node) -> None:
        """A resident tensor that micro-batches change belongs to the stage that changes it."""
        home = self.stage.get(result, 0)
        readers = [self.stage[user] for user in consumers(placeholder) if user in self.stage]
        if min(readers, default=home) < home:
            origin = result.meta.get(ORIGIN)
            raise UnsupportedOperations(
                f"{self._name_of(placeholder)} is read by stage {min(readers)} of the pipeline, "
                f"but stage {home} changes it, when the first has gone on to later micro-batches.",
                source=origin.source if origin is not None else None,
                hint="let one stage read and change it, or use poptorch.ShardedExecution",
            )
        self.stage[placeholder] = home

    def _name_of(self, placeholder: fx.Node) -> str:
        return self.step.inputs[self.step.placeholders().index(placeholder)].name


def changed_in_loop(step: CapturedStep) -> dict[fx.Node, fx.Node]:
    """Resident tensors that micro-batches change, with new values: running means and the like.

    Without an optimiser no update comes later, so what changes a weight is part of it too.
    """
    kinds = (BUFFER,) if step.training else (BUFFER, PARAMETER)
    state_nodes = {
        (slot.kind, slot.index): node
        for slot, node in zip(step.inputs, step.placeholders(), strict=True)
        if slot.kind in kinds
    }
    results = zip(step.outputs, step.results(), strict=True)
    changes = ((state_nodes.get((slot.kind, slot.index)), node) for slot, node in results)
    return {old: new for old, new in changes if old is not None and old is not new}
