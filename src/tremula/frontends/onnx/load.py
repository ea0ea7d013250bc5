"""Reads a model from a file, from bytes or from a protocol buffer, and checks what it says."""

import math
from dataclasses import dataclass, replace
from pathlib import Path

import onnx
from google.protobuf.message import DecodeError
from onnx import ModelProto, TensorProto, defs, helper, shape_inference

from tremula.frontends.onnx.errors import OnnxError
from tremula.frontends.onnx.graph import (
    OnnxGraph,
    Parser,
    reject_huge,
    reject_unknown_names,
    value_info,
    versions_of,
)
from tremula.frontends.onnx.initialisers import Reader

ModelLike = ModelProto | bytes | str | Path
_SMALL_ELEMENTS = 1024  # initialisers up to this size take part in shape inference


@dataclass(frozen=True)
class LoadedModel:
    """A model's main graph, with the element types that shape inference found."""

    graph: OnnxGraph
    versions: dict[str, int]
    proto: ModelProto


def load(model: ModelLike, input_shapes: dict[str, tuple[int, ...]] | None = None) -> LoadedModel:
    proto, folder = read_proto(model)
    _reject_foreign(proto)
    proto = with_shapes(proto, input_shapes or {})
    versions = versions_of(proto.opset_import)
    parser = Parser(proto.functions, Reader(folder))
    graph = parser.graph(proto.graph, versions)
    parser.reject_missing()
    reject_unknown_names(graph)
    return LoadedModel(_with_types(graph, proto), versions, proto)


def read_proto(model: ModelLike) -> tuple[ModelProto, Path | None]:
    """The model, and the folder where further files of it are."""
    if isinstance(model, ModelProto):
        return model, None
    folder = None
    if isinstance(model, str | Path):
        path = Path(model)
        if not path.is_file():
            raise OnnxError(
                f"There is no file {str(path)!r}.", hint="give the path of a .onnx file"
            )
        folder, what, data = path.parent, str(path), path.read_bytes()
    else:
        what, data = f"{len(model)} bytes", bytes(model)
    try:
        return ModelProto.FromString(data), folder
    except (DecodeError, RecursionError) as error:
        raise OnnxError(
            f"{what} is not an ONNX model: {error}",
            hint="it may be truncated, or of another format; onnx.checker.check_model says more",
        ) from None


def _reject_foreign(proto: ModelProto) -> None:
    if not proto.HasField("graph"):
        raise OnnxError("The model has no graph.", hint="is it an ONNX model?")
    newest = defs.onnx_opset_version()
    version = versions_of(proto.opset_import).get("")
    if version is None and any(node.domain in ("", "ai.onnx") for node in proto.graph.node):
        raise OnnxError("The model does not say which version of ONNX's operators it uses.")
    if version is not None and not 1 <= version <= newest:
        raise OnnxError(
            f"The model uses version {version} of ONNX's operators; onnx {onnx.__version__} knows"
            f" 1 to {newest}.",
            hint="install a newer onnx, or convert the model with onnx.version_converter",
        )


def with_shapes(proto: ModelProto, shapes: dict[str, tuple[int, ...]]) -> ModelProto:
    """The model with sizes of inputs fixed."""
    if not shapes:
        return proto
    result = ModelProto()
    result.CopyFrom(proto)
    inputs = {value.name: value for value in result.graph.input}
    for name, shape in shapes.items():
        if name not in inputs:
            raise OnnxError(f"The model has no input {name!r}: it has {', '.join(inputs)}.")
        tensor = inputs[name].type.tensor_type
        inputs[name].type.CopyFrom(helper.make_tensor_type_proto(tensor.elem_type, shape))
    return result


def _with_types(graph: OnnxGraph, proto: ModelProto) -> OnnxGraph:
    """The graph with element types for all values, and the shapes of its outputs."""
    try:
        inferred = shape_inference.infer_shapes(_skeleton(proto), data_prop=True)
    except (onnx.shape_inference.InferenceError, RuntimeError, ValueError) as error:
        if _is_typed(proto):  # by PopART's builder, whose types are not all ONNX's
            return _annotated(graph, proto.graph)
        raise OnnxError(f"The model's types contradict each other: {error}") from None
    return _annotated(graph, inferred.graph)


def _is_typed(proto: ModelProto) -> bool:
    """Whether a model of PopART's builder declares the type of every tensor."""
    declared = {value.name for value in (*proto.graph.value_info, *proto.graph.output)}
    made = (name for node in proto.graph.node for name in node.output if name)
    return proto.producer_name == "tremula.popart" and declared.issuperset(made)


def _annotated(graph: OnnxGraph, inferred: onnx.GraphProto) -> OnnxGraph:
    declared = (*inferred.value_info, *inferred.output, *inferred.input)
    infos = {value.name: value_info(value) for value in declared}
    reject_huge(infos.values())
    types = {name: info.type for name, info in infos.items() if info.type}
    of_node = {(n.name, *n.output): n for n in inferred.node}
    nodes = []
    for node in graph.nodes:
        proto = of_node.get((node.name, *node.outputs))
        if node.graphs and proto is not None:
            inner = {a.name: a.g for a in proto.attribute if a.HasField("g")}
            attributes = {
                k: _annotated(v, inner[k]) if isinstance(v, OnnxGraph) and k in inner else v
                for k, v in node.attributes.items()
            }
            node = replace(node, attributes=attributes)
        nodes.append(node)
    outputs = tuple(infos.get(value.name, value) for value in graph.outputs)
    return replace(graph, types={**types, **graph.types}, nodes=tuple(nodes), outputs=outputs)


def _skeleton(proto: ModelProto) -> ModelProto:
    """The model without the data of large initialisers, of which only types and shapes matter."""
    result = ModelProto()
    for name in ("ir_version", "producer_name", "domain"):
        setattr(result, name, getattr(proto, name))
    result.ir_version = max(result.ir_version, 4)  # initialisers need not be inputs
    result.opset_import.extend(proto.opset_import)
    result.functions.extend(proto.functions)
    graph, inputs = result.graph, {value.name for value in proto.graph.input}
    for name in ("node", "input", "output", "value_info"):
        getattr(graph, name).extend(getattr(proto.graph, name))
    graph.name = proto.graph.name
    for tensor in proto.graph.initializer:
        is_inside = tensor.data_location != TensorProto.EXTERNAL
        is_small = is_inside and math.prod(tensor.dims) <= _SMALL_ELEMENTS
        if is_small:
            graph.initializer.append(tensor)
        elif tensor.name not in inputs:
            graph.input.append(
                helper.make_tensor_value_info(tensor.name, tensor.data_type, list(tensor.dims))
            )
    return result
