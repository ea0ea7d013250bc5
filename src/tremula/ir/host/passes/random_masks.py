"""Pass of the host: masks are drawn first and in order, so that all backends draw the same."""

import torch
from torch import fx

from tremula.ir.nodes import is_random, operand, schema_name
from tremula.ir.passes.clean import drop_dead
from tremula.ir.step import CapturedStep

aten = torch.ops.aten
_MASK = "drawn_mask_"


def can_draw_first(step: CapturedStep) -> bool:
    """Whether a step draws nothing but masks, except inside attention."""
    return all(
        node.target is aten.bernoulli.p or "attention" in schema_name(node)
        for node in step.graph.nodes
        if node.op == "call_function"
        and is_random(node)
        and not schema_name(node).startswith("aten::empty")
    )


def draw_first(step: CapturedStep, device: torch.device) -> CapturedStep:
    """Move masks to the front: they depend on shapes alone."""
    graph = step.graph
    first = next(node for node in graph.nodes if node.op != "placeholder")
    for node in draws(step):
        value = node.meta["val"]
        with graph.inserting_before(first):
            like = graph.call_function(
                aten.empty.memory_format,
                (list(value.shape),),
                {"dtype": value.dtype, "device": device},
            )
            drawn = graph.call_function(aten.bernoulli.p, (like, node.args[1]))
        like.meta["val"] = value
        drawn.meta.update(node.meta)
        node.replace_all_uses_with(drawn)
        graph.erase_node(node)
    return drop_dead(step)


def draws(step: CapturedStep) -> list[fx.Node]:
    return [node for node in step.graph.nodes if node.target is aten.bernoulli.p]


def without_draws(step: CapturedStep) -> tuple[CapturedStep, fx.GraphModule]:
    """The step with its masks as its last inputs, and what draws them."""
    drawing = fx.Graph()
    masks = []
    last = step.placeholders()[-1] if step.placeholders() else None
    for number, node in enumerate(draws(step)):
        like = operand(node)
        masks.append(drawing.node_copy(node, {like: drawing.node_copy(like)}.__getitem__))
        after_last = step.graph.inserting_after(last) if last else step.graph.inserting_before()
        with after_last:
            last = step.graph.placeholder(f"{_MASK}{number}")
        last.meta.update(node.meta)
        node.replace_all_uses_with(last)
        step.graph.erase_node(node)
    drawing.output(masks)
    return drop_dead(step), fx.GraphModule(torch.nn.Module(), drawing)


def probabilities(drawing: fx.Graph) -> list[float]:
    """Of a one in each mask that a graph draws."""
    drawn = (node for node in drawing.nodes if node.target is aten.bernoulli.p)
    return [float(node.args[1]) for node in drawn]


def is_mask(node: fx.Node) -> bool:
    return node.op == "placeholder" and str(node.target).startswith(_MASK)
