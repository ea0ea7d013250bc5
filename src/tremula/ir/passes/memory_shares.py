"""Pass: what poptorch.set_available_memory says reaches the product that made the tensor."""

from torch import fx

from tremula.ir.nodes import schema_name
from tremula.ir.origin import BACKWARD, ORIGIN, Choices, Origin
from tremula.ir.step import CapturedStep

_MARK = "tremula::set_available_memory"
_PLANNED = frozenset(
    {
        "aten::mm",
        "aten::bmm",
        "aten::addmm",
        "aten::baddbmm",
        "aten::mv",
        "aten::linear",
        "aten::matmul",
        "aten::convolution",
        "aten::convolution_backward",
        "aten::embedding",
        "aten::embedding_dense_backward",
        "aten::index_select",
        "tremula::serialized_mm",
    }
)
# Between a product and the output of a layer: its bias, and views.
_BETWEEN = frozenset(
    {
        "aten::add",
        "aten::view",
        "aten::_unsafe_view",
        "aten::reshape",
        "aten::permute",
        "aten::transpose",
        "aten::t",
        "aten::squeeze",
        "aten::unsqueeze",
        "aten::expand",
        "aten::_to_copy",
    }
)


def note_available_memory(step: CapturedStep) -> CapturedStep:
    """Remove the mark; the product, and the products of its gradients, get the share."""
    choices: dict[Origin, Choices] = {}
    for node in list(step.graph.nodes):
        if schema_name(node) == _MARK:
            made, memory = _maker(node.args[0]), Choices(float(node.args[1]))
            origin = made.meta.get(ORIGIN)
            if origin is not None:
                choices[origin.in_phase(BACKWARD)] = memory
                made.meta[ORIGIN] = origin.choosing(memory)
            node.replace_all_uses_with(node.args[0])
            step.graph.erase_node(node)
    for node in step.graph.nodes if choices else ():
        origin = node.meta.get(ORIGIN)
        if origin in choices and schema_name(node) in _PLANNED:
            node.meta[ORIGIN] = origin.choosing(choices[origin])
    return step


def _maker(node: fx.Node) -> fx.Node:
    """The product a tensor comes from, else the operation that gave it."""
    front, seen = [node], set()
    while front:
        current = front.pop(0)
        if schema_name(current) in _PLANNED:
            return current
        if current not in seen and (schema_name(current) in _BETWEEN or current is node):
            seen.add(current)
            front += current.all_input_nodes
    return node
