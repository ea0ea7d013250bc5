"""The rewrites that patterns stand for, applied until nothing changes."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import numpy as np
import onnx
from onnx import helper, numpy_helper

from tremula.frontends.onnx.table import GRAPHCORE_DOMAIN
from tremula.frontends.popart.builder.annotations import EXCLUDED_PATTERNS
from tremula.frontends.popart.builder.graph import values_of
from tremula.frontends.popart.options.patterns import Patterns

_MAX_ROUNDS = 20  # rewrites only ever simplify; this stops a mistake
_NOTES = "__"  # annotations begin with it


@dataclass
class _RewrittenGraph:
    """A graph being rewritten, and the tables that rules use."""

    proto: onnx.GraphProto
    preserved: frozenset[str]  # tensors that no rule removes: outputs, anchors, the loss
    constants: dict[str, np.ndarray] = field(default_factory=dict)
    names: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        for node in self.proto.node:
            self.names |= set(node.output)
            if node.op_type == "Constant" and node.attribute[0].name == "value":
                self.constants[node.output[0]] = numpy_helper.to_array(node.attribute[0].t)

    def fresh(self, name: str) -> str:
        number, result = 0, name
        while result in self.names:
            number += 1
            result = f"{name}/{number}"
        self.names.add(result)
        return result


Rule = Callable[[onnx.NodeProto, _RewrittenGraph], list[onnx.NodeProto] | None]


def rewritten(
    model: onnx.ModelProto, patterns: Patterns, preserved: Iterable[str] = ()
) -> onnx.ModelProto:
    """The model after the patterns that are on; `kept` tensors stay what they are."""
    result = onnx.ModelProto()
    result.CopyFrom(model)
    outputs = {value.name for value in result.graph.output}
    graph = _RewrittenGraph(result.graph, frozenset({*preserved, *outputs}))
    rules = [(name, rule) for name, rule in RULES.items() if patterns.isPatternEnabled(name)]
    for _ in range(_MAX_ROUNDS):
        n_changes = sum(_apply(graph, name, rule) for name, rule in rules)
        if not n_changes:
            break
    if patterns.isPatternEnabled("PreUniRepl") or patterns.isPatternEnabled("PostNRepl"):
        _drop_identities(graph)
    if any(node.domain == GRAPHCORE_DOMAIN for node in result.graph.node):
        known = {opset.domain for opset in result.opset_import}
        if GRAPHCORE_DOMAIN not in known:
            result.opset_import.append(helper.make_opsetid(GRAPHCORE_DOMAIN, 1))
    return result


def _apply(graph: _RewrittenGraph, name: str, rule: Rule) -> bool:
    """One rule, once for every node; whether it changed anything."""
    result, has_changed = [], False
    for node in graph.proto.node:
        spared = name in values_of(node).get(EXCLUDED_PATTERNS, [])
        new = None if spared else rule(node, graph)
        result += [node] if new is None else [_noted(n, node) for n in new]
        has_changed = has_changed or new is not None
    if has_changed:
        _set_nodes(graph.proto, result)
    return has_changed


def _noted(new: onnx.NodeProto, old: onnx.NodeProto) -> onnx.NodeProto:
    """A new node has the annotations and the name of the one it replaces."""
    own = {attribute.name for attribute in new.attribute}
    notes = (a for a in old.attribute if a.name.startswith(_NOTES) and a.name not in own)
    new.attribute.extend(notes)
    new.name = new.name or old.name
    return new


def _set_nodes(graph: onnx.GraphProto, nodes: Iterable[onnx.NodeProto]) -> None:
    copies = []
    for node in nodes:
        copy = onnx.NodeProto()
        copy.CopyFrom(node)
        copies.append(copy)
    del graph.node[:]
    graph.node.extend(copies)


def _identity(node: onnx.NodeProto) -> list[onnx.NodeProto]:
    return [helper.make_node("Identity", [node.input[0]], [node.output[0]])]


# -- rules -----------------------------------------------------------------------------------------


def _op_to_identity(node: onnx.NodeProto, graph: _RewrittenGraph) -> list[onnx.NodeProto] | None:
    """Operations that change nothing."""
    values = values_of(node)
    is_idle = (
        (node.op_type in ("Concat", "Sum", "Mean", "Max", "Min") and len(node.input) == 1)
        or (node.op_type == "Scale" and values.get("scale") == 1.0)
        or (node.op_type == "Dropout" and values.get("ratio") == 0.0 and len(node.output) == 1)
        or (node.op_type == "Pad" and "pads" in values and not any(values["pads"]))
        or (node.op_type in ("Add", "Sub") and _is_constant(graph, node, 1, 0.0))
        or (node.op_type in ("Mul", "Div") and _is_constant(graph, node, 1, 1.0))
    )
    return _identity(node) if is_idle else None


def _is_constant(graph: _RewrittenGraph, node: onnx.NodeProto, place: int, value: float) -> bool:
    """Whether an operand is a scalar constant of this value."""
    result = graph.constants.get(node.input[place])
    return result is not None and result.ndim == 0 and float(result) == value


def _sum_to_add(node: onnx.NodeProto, _graph: _RewrittenGraph) -> list[onnx.NodeProto] | None:
    """A sum of two is an addition."""
    if node.op_type != "Sum" or len(node.input) != 2:
        return None
    return [helper.make_node("Add", list(node.input), list(node.output))]


def _transpose_to_identity(
    node: onnx.NodeProto, _graph: _RewrittenGraph
) -> list[onnx.NodeProto] | None:
    """A transposition that leaves dimensions in order."""
    order = values_of(node).get("perm")
    is_idle = node.op_type == "Transpose" and order is not None and list(order) == sorted(order)
    return _identity(node) if is_idle else None


def _negative_scale(node: onnx.NodeProto, _graph: _RewrittenGraph) -> list[onnx.NodeProto] | None:
    """A multiple by -1 is a negation."""
    if node.op_type != "Scale" or values_of(node).get("scale") != -1.0:
        return None
    return [helper.make_node("Neg", list(node.input), list(node.output))]


def _binary_constant(node: onnx.NodeProto, graph: _RewrittenGraph) -> list[onnx.NodeProto] | None:
    """A product with, or quotient by, a scalar constant is a multiple."""
    if node.op_type not in ("Mul", "Div") or node.domain:
        return None
    result = graph.constants.get(node.input[1])
    if result is None or result.ndim or result.dtype not in (np.float32, np.float16):
        return None
    factor = float(result) if node.op_type == "Mul" else 1 / float(result) if result else 0.0
    if not factor:
        return None
    scale = helper.make_node(
        "Scale", [node.input[0]], [node.output[0]], domain=GRAPHCORE_DOMAIN, scale=factor
    )
    return [scale]


def _split_op(node: onnx.NodeProto, _graph: _RewrittenGraph) -> list[onnx.NodeProto] | None:
    """A split is slices, one for each part."""
    sizes = values_of(node).get("split")
    if node.op_type != "Split" or sizes is None:
        return None
    axis, start, slices = values_of(node).get("axis", 0), 0, []
    for size, output in zip(sizes, node.output, strict=True):
        slices.append(
            helper.make_node(
                "Slice",
                [node.input[0]],
                [output],
                domain=GRAPHCORE_DOMAIN,
                starts=[start],
                ends=[start + size],
                axes=[axis],
            )
        )
        start += size
    return slices


RULES: dict[str, Rule] = {
    "OpToIdentity": _op_to_identity,
    "SumToAdd": _sum_to_add,
    "TransposeToIdentityOrReshapePattern": _transpose_to_identity,
    "DecomposeBinaryConstScalar": _binary_constant,
    "NegativeOneScale": _negative_scale,
    "SplitOp": _split_op,
}


def _drop_identities(graph: _RewrittenGraph) -> None:
    """Readers of a copy read what it copies; a copy that must stay, stays."""
    source: dict[str, str] = {}
    result = []
    for node in graph.proto.node:
        for index, name in enumerate(node.input):
            node.input[index] = source.get(name, name)
        is_idle = node.op_type == "Identity" and not node.domain
        is_noted = any(a.name.startswith("__recompute") for a in node.attribute)
        if is_idle and not is_noted and node.output[0] not in graph.preserved:
            source[node.output[0]] = node.input[0]
        else:
            result.append(node)
    if source and not _read_inside(graph.proto, source):
        _set_nodes(graph.proto, result)


def _read_inside(graph: onnx.GraphProto, names: Iterable[str]) -> bool:
    """Whether a graph inside a node reads one of these tensors."""
    wanted = set(names)
    inner = [a.g for node in graph.node for a in node.attribute if a.HasField("g")]
    return any(
        wanted.intersection(node.input) or _read_inside(g, wanted) for g in inner for node in g.node
    )
