"""What a session rejects before it compiles: impossible attributes, gradients that do not exist."""

from collections.abc import Iterable, Mapping, Sequence

import onnx
from onnx import TensorProto

from tremula.base.errors import suggest
from tremula.frontends.onnx.graph import OnnxNode
from tremula.frontends.popart import names
from tremula.frontends.popart.builder.graph import values_of
from tremula.frontends.popart.builder.inference import InferredType
from tremula.frontends.popart.exceptions import popart_exception
from tremula.frontends.popart.tensor_info import type_name

_COLLECTIVES = ("ReplicatedAllReduce", "ReplicatedReduceScatter")
_DROPOUTS = ("Dropout", "ShapedDropout")
_FLOATS = {
    TensorProto.FLOAT,
    TensorProto.FLOAT16,
    TensorProto.DOUBLE,
    TensorProto.BFLOAT16,
    TensorProto.UNDEFINED,  # not known before it is compiled
}


def check_nodes(graph: onnx.GraphProto, n_replicas: int, types: Mapping[str, InferredType]) -> None:
    """Raise for attributes that no node can have, labels that do not fit, and collectives.

    Replicas run one after another on the host: inside a step they cannot meet.
    """
    for node in _all_nodes(graph):
        if node.op_type in _DROPOUTS:
            _check_ratio(node)
        if node.op_type == "Nll":
            _check_labels(node, types)
        if node.op_type == "Abort" and node not in graph.node:
            raise popart_exception("Abort inside a graph of an operation is not supported")
        if node.op_type in _COLLECTIVES and n_replicas > 1:
            raise popart_exception(
                f"{node.op_type} {node.output[0]!r} joins values of replicas inside a step,"
                f" which sessions do for gradients only; there are {n_replicas} replicas"
            )


def abort_conditions(graph: onnx.GraphProto) -> tuple[str, ...]:
    """What Abort nodes read; "" for one that always stops the program."""
    nodes = [node for node in graph.node if node.op_type == "Abort"]
    return tuple(node.input[0] if node.input else "" for node in nodes)


def _all_nodes(graph: onnx.GraphProto) -> Iterable[onnx.NodeProto]:
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            if attribute.HasField("g"):
                yield from _all_nodes(attribute.g)


def _check_ratio(node: onnx.NodeProto) -> None:
    ratio = values_of(node).get("ratio", 0.5)
    if not 0 <= ratio < 1:
        raise popart_exception(
            f"Ratio value {ratio:g} of {node.op_type} {node.output[0]!r} is not valid. Please use a"
            " value in the interval [0,1)"
        )


def _check_labels(node: onnx.NodeProto, types: Mapping[str, InferredType]) -> None:
    chances, labels = (types.get(id, InferredType()) for id in node.input[:2])
    if chances.shape is None or labels.shape is None or labels.shape == chances.shape[:-1]:
        return
    raise popart_exception(
        f"The label tensor ({_shown(labels)}) must have shape {_sizes(chances.shape[:-1])} to match"
        f" all but the final dimension of the probabilities tensor ({_shown(chances)})"
    )


def _shown(kind: InferredType) -> str:
    return f"{type_name(kind.element)}   {_sizes(kind.shape or ())}"


def _sizes(shape: Sequence[int | None]) -> str:
    return f"[{' '.join(map(str, shape))}]"


def check_gradients(
    nodes: Sequence[OnnxNode],
    loss: str,
    wanted: Iterable[str],
    types: Mapping[str, InferredType],
) -> None:
    """Raise for an anchored gradient of a tensor by which the loss does not change."""
    known = differentiable(nodes, loss, types)
    for name in wanted:
        if name not in known:
            raise missing_anchor(names.GRADIENT + name, known)


def differentiable(
    nodes: Sequence[OnnxNode], loss: str, types: Mapping[str, InferredType]
) -> set[str]:
    """Floating-point tensors with a path to the loss that no Detach cuts."""
    result = {loss}
    for node in reversed(nodes):
        if node.op_type == "Detach" or result.isdisjoint(node.outputs):
            continue
        result |= {n for n in node.reads if types.get(n, InferredType()).element in _FLOATS}
    return result


def missing_anchor(id: str, known: Iterable[str]) -> popart_exception:
    """The error for an anchor that names no tensor."""
    return popart_exception(f"Anchor tensor `{id}' not in Ir Tensors. {suggest(id, known)}")
