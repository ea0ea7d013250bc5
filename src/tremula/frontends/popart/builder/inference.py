"""Types of an operation's results, inferred while a graph is built: one node at a time."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import onnx
from onnx import TensorProto, TypeProto, checker, helper, shape_inference

MAX_KNOWN_ELEMENTS = 4096  # constants that shapes are read from are small


@dataclass(frozen=True)
class InferredType:
    """An element type of ONNX's, 0 if it is open, and a shape, None if it is open."""

    element: int = 0
    shape: tuple[int | None, ...] | None = None

    @property
    def is_static(self) -> bool:
        return self.shape is not None and None not in self.shape

    def sizes(self) -> tuple[int, ...]:
        """The shape of a static type."""
        assert self.shape is not None, "the shape is open"
        return tuple(int(n) for n in self.shape if n is not None)

    def with_shape(self, shape: Sequence[int | None]) -> "InferredType":
        return InferredType(self.element, tuple(shape))

    def proto(self) -> TypeProto:
        return helper.make_tensor_type_proto(self.element, self.shape)


def type_of(proto: TypeProto) -> InferredType:
    """What a graph says about a tensor; open for sequences and optionals."""
    tensor = proto.tensor_type
    if not proto.HasField("tensor_type"):
        return InferredType()
    if not tensor.HasField("shape"):
        return InferredType(tensor.elem_type)
    sizes = tuple(d.dim_value if d.HasField("dim_value") else None for d in tensor.shape.dim)
    return InferredType(tensor.elem_type, sizes)


def infer(
    schema: Any,
    node: onnx.NodeProto,
    types: Mapping[str, TypeProto],
    constants: Mapping[str, TensorProto],
    opsets: Sequence[onnx.OperatorSetIdProto],
) -> dict[str, TypeProto]:
    """The types of a node's outputs, those that ONNX's inference finds.

    Raises what the inference raises for operands that do not fit.
    """
    known = {name: types[name] for name in node.input if name in types}
    values = {name: constants[name] for name in node.input if name in constants}

    def run(known: Mapping[str, TypeProto]) -> dict[str, TypeProto]:
        return shape_inference.infer_node_outputs(
            schema,
            node,
            dict(known),
            values,
            opset_imports=list(opsets),
            ir_version=onnx.IR_VERSION,
        )

    try:
        return run(known)
    except checker.ValidationError:
        if not known:
            raise
        # This version of the operator does not list the element type: shapes are those of floats.
        element = next(iter(known.values())).tensor_type.elem_type
        floats = {name: _with_element(t, element, TensorProto.FLOAT) for name, t in known.items()}
        result = run(floats)
        return {name: _with_element(t, TensorProto.FLOAT, element) for name, t in result.items()}


def _with_element(type: TypeProto, source: int, target: int) -> TypeProto:
    copy = TypeProto()
    copy.CopyFrom(type)
    if copy.tensor_type.elem_type == source:
        copy.tensor_type.elem_type = target
    return copy


def infer_whole(model: onnx.ModelProto) -> dict[str, TypeProto]:
    """Types inferred for a model as a whole, values of shapes included."""
    try:
        inferred = shape_inference.infer_shapes(model, data_prop=True)
    except (shape_inference.InferenceError, RuntimeError):
        return {}
    return {value.name: value.type for value in inferred.graph.value_info}


# -- where PopART's types are not ONNX's -----------------------------------------------------------

_INDEX_TYPES = {"ArgMax": {0: TensorProto.INT32}, "ArgMin": {0: TensorProto.INT32},
                "TopK": {1: TensorProto.UINT32}}  # fmt: skip


OWN_SIZES = {"Resize"}  # sizes of results are computed by the operator itself


def as_popart(node: onnx.NodeProto, types: Mapping[str, TypeProto]) -> dict[str, TypeProto]:
    """Types with the index types of the device, which has no 64-bit integers."""
    result = dict(types)
    for index, element in _INDEX_TYPES.get(node.op_type, {}).items():
        if not node.domain and index < len(node.output) and node.output[index] in result:
            shape = type_of(result[node.output[index]]).shape
            result[node.output[index]] = InferredType(element, shape).proto()
    return result


def special_types(
    node: onnx.NodeProto, types: Mapping[str, TypeProto]
) -> dict[str, TypeProto] | None:
    """Types of operations that PopART defines in another way; None for all others."""
    if node.op_type.startswith("Reduce") and not node.domain:
        axes = next((a for a in node.attribute if a.name == "axes"), None)
        if axes is not None and not axes.ints:  # nothing is reduced
            return {node.output[0]: types[node.input[0]]}
    return None
