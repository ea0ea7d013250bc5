"""What a session reads from its graph before it plans a step: weights it writes, chips it names."""

import onnx

from tremula.frontends.popart.builder.annotations import VIRTUAL_GRAPH

_STATISTICS = {"BatchNormalization": (3, 4)}  # operands that training replaces by outputs 1 and 2


def updates_of(graph: onnx.GraphProto, *, is_training: bool) -> dict[str, str]:
    """Weights that the graph itself writes, and the tensors that become their values.

    Variables of CopyVarUpdate; in training, means and variances of norms.
    """
    weights = {tensor.name for tensor in graph.initializer}
    pairs = [(n.input[0], n.output[0]) for n in graph.node if n.op_type == "CopyVarUpdate"]
    if is_training:
        pairs += [
            (node.input[operand], node.output[i + 1])
            for node in graph.node
            for i, operand in enumerate(_STATISTICS.get(node.op_type, ()))
            if len(node.output) > 2 and node.output[i + 1]
        ]
    return {name: new for name, new in pairs if name in weights}


def n_chips_named(graph: onnx.GraphProto) -> int:
    """How many chips annotations name; a CPU has as many."""
    named = [a.i for node in graph.node for a in node.attribute if a.name == VIRTUAL_GRAPH]
    return 1 + max(named, default=0)
