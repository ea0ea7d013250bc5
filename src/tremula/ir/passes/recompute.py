"""Passes: forward values that the backward pass computes again instead of keeping them."""

from collections.abc import Callable, Sequence

from torch import fx

from tremula.ir.nodes import is_random, schema_name
from tremula.ir.origin import BACKWARD, FORWARD, ORIGIN
from tremula.ir.passes.clean import drop_dead
from tremula.ir.passes.recompute_plan import MODES, base_value, forward_values, kept_values
from tremula.ir.step import CapturedStep

_CHECKPOINT = "tremula::checkpoint"
_REMEMBERED = ("tremula::recurrent", "tremula::ctc_loss")


def recompute_between_checkpoints(
    step: CapturedStep, stage_of_block: Sequence[int] = ()
) -> CapturedStep:
    """Before the last checkpoint, only checkpoints outlive the forward pass.

    Values after the last one are used at once by the backward pass and stay. So do values that
    comes from another stage of a pipeline: the chip that made it is busy with other micro-batches.
    """
    marks = _marks(step)
    if not marks or not step.training:
        return step
    before: set[fx.Node] = set()
    front = [mark.all_input_nodes[0] for mark in marks]
    while front:
        node = front.pop()
        if node not in before:
            before.add(node)
            front += node.all_input_nodes
    before |= {item for node in before for item in node.users if _is_item(item)}
    # The step's results must be kept anyway.
    stored = _checkpointed(marks) | set(step.results())
    gone, stage = before - stored, _stages(stage_of_block)
    return _Recomputation(step, lambda n, user: n in gone and stage(n) == stage(user)).run()


NORMS_ONLY, EVERYTHING = "norms", "everything"
RECOMPUTATIONS = (*MODES, NORMS_ONLY, EVERYTHING)


def recompute_by_mode(step: CapturedStep, mode: str) -> CapturedStep:
    """Choose by itself what the backward pass computes again, in a step that is not a pipeline.

    "ideal" and "popart" keep the cheapest cuts of the forward pass (`recompute_plan.py`), "norms"
    computes norms and what is applied to them again, "everything" all there is.
    """
    if not step.training or _marks(step):
        return step
    if mode == NORMS_ONLY:
        gone = _norms_and_followers(step)
    else:
        values = forward_values(step)
        saved = set() if mode == EVERYTHING else kept_values(values, mode)
        gone = set(values) - saved
    gone -= set(step.results())

    def goes(node: fx.Node, _user: fx.Node) -> bool:
        return base_value(node) in gone

    return _Recomputation(step, goes).run()


def _norms_and_followers(step: CapturedStep) -> set[fx.Node]:
    """Norms, and element-wise functions of their results alone."""
    norms = [node for node in forward_values(step) if "norm" in schema_name(node)]
    followers = {
        user
        for norm in norms
        for item in (norm, *norm.users)
        for user in item.users
        if {base_value(source) for source in user.all_input_nodes} == {norm}
        and user.meta.get("val") is not None
        and user.meta[ORIGIN].phase == FORWARD
    }
    return {*norms, *followers}


def recompute_stages(step: CapturedStep, stage_of_block: Sequence[int]) -> CapturedStep:
    """Of all stages but the last, only what comes from other stages outlives the forward pass."""
    if not step.training or len(set(stage_of_block)) < 2:
        return step
    stored, last, stage = _checkpointed(_marks(step)), max(stage_of_block), _stages(stage_of_block)
    return _Recomputation(
        step, lambda n, user: n not in stored and last != stage(n) == stage(user)
    ).run()


def recompute_remembered(step: CapturedStep, stage_of_block: Sequence[int]) -> CapturedStep:
    """Stages recompute operations that leave more for their gradient than their results.

    Lowerings remember the rest, which by then belongs to another micro-batch.
    """
    if not step.training or len(set(stage_of_block)) < 2:
        return step
    last, stage = max(stage_of_block), _stages(stage_of_block)

    def goes(node: fx.Node, user: fx.Node) -> bool:
        maker = node.all_input_nodes[0] if _is_item(node) else node
        return schema_name(maker) in _REMEMBERED and last != stage(node) == stage(user)

    return _Recomputation(step, goes).run()


def _stages(stage_of_block: Sequence[int]) -> Callable[[fx.Node], int]:
    """The stage of a node; 0 for all if there is no pipeline."""

    def stage(node: fx.Node) -> int:
        block = node.meta[ORIGIN].block if ORIGIN in node.meta else None
        return stage_of_block[block] if block is not None and stage_of_block else 0

    return stage


def _marks(step: CapturedStep) -> list[fx.Node]:
    return [node for node in step.graph.nodes if schema_name(node) == _CHECKPOINT]


def _checkpointed(marks: list[fx.Node]) -> set[fx.Node]:
    """A checkpoint and what it marks are one value; other results of its operation stay, too."""
    marked = [mark.all_input_nodes[0] for mark in marks]
    items = (item for node in marked if _is_item(node) for item in node.all_input_nodes[0].users)
    return {*marks, *marked, *items}


class _Recomputation:
    """Gives every backward user of a value that is not stored a copy made just before it."""

    def __init__(self, step: CapturedStep, may_go: Callable[[fx.Node, fx.Node], bool]):
        self.step = step
        self.may_go = may_go  # whether a value is not stored for a user of it
        self.copies: dict[fx.Node, fx.Node] = {}

    def run(self) -> CapturedStep:
        for node in list(self.step.graph.nodes):
            origin = node.meta.get(ORIGIN)
            if node.op == "call_function" and origin is not None and origin.phase == BACKWARD:
                for source in node.all_input_nodes:
                    if self._goes(source, node):
                        node.replace_input_with(source, self._copy(source, before=node))
        return drop_dead(self.step)  # what only the backward pass read

    def _goes(self, node: fx.Node, user: fx.Node) -> bool:
        """Random values cannot be drawn again, so they are stored; so are non-operations."""
        origin = node.meta.get(ORIGIN)
        return (
            node.op == "call_function"
            and origin is not None
            and origin.phase == FORWARD
            and self.may_go(node, user)
            and not is_random(node)
            and not any(is_random(source) for source in node.all_input_nodes if _is_item(node))
        )

    def _copy(self, node: fx.Node, before: fx.Node) -> fx.Node:
        """The value computed again, with all it needs; once for all users, which come later."""
        pending = [node]
        while pending:
            current = pending[-1]
            missing = [
                source
                for source in current.all_input_nodes
                if self._goes(source, current) and source not in self.copies
            ]
            if missing:
                pending += missing
                continue
            pending.pop()
            if current not in self.copies:
                self.copies[current] = self._one_copy(current, before)
        return self.copies[node]

    def _one_copy(self, node: fx.Node, before: fx.Node) -> fx.Node:
        with self.step.graph.inserting_before(before):
            copy = self.step.graph.node_copy(
                node, lambda source: self.copies[source] if self._goes(source, node) else source
            )
        copy.meta = dict(node.meta)
        copy.meta[ORIGIN] = node.meta[ORIGIN].in_phase(BACKWARD)
        return copy


def _is_item(node: fx.Node) -> bool:
    return node.op == "call_function" and not schema_name(node)
