"""Operators that their operator set defines by others: their bodies, as functions."""

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from typing import Any

from onnx import FunctionProto, NodeProto, TypeProto, defs, helper
from torch import Tensor

from tremula.frontends.onnx.context import outside_the_recording
from tremula.frontends.onnx.errors import UnsupportedOnnx
from tremula.frontends.onnx.graph import Attributes, OnnxFunction, OnnxNode, Parser
from tremula.frontends.onnx.initialisers import Reader

_bodies: dict[tuple, OnnxFunction] = {}


def body_of_schema(
    node: OnnxNode, operands: Sequence[object], types: Sequence[int], attributes: Attributes
) -> OnnxFunction:
    """What an operator without an entry is, for operands and attributes like these."""
    fixed = fixed_body(node)
    if fixed is not None:
        return fixed
    schema: Any = defs.get_schema(node.op_type, node.version, node.domain)
    if not all(v is None or isinstance(v, Tensor) for v in operands):
        raise UnsupportedOnnx(f"{node.label} of sequences has no definition.")
    protos = [_type_proto(v, t) for v, t in zip(operands, types, strict=True)]
    text = schema.get_context_dependent_function(
        _call(node, attributes).SerializeToString(), [proto.SerializeToString() for proto in protos]
    )
    if not text:
        raise UnsupportedOnnx(f"{node.label} has no definition for these operands.")
    key = (node.version, text)
    if key not in _bodies:
        _bodies[key] = _parsed(FunctionProto.FromString(text), node, node.version)
    return _bodies[key]


def fixed_body(node: OnnxNode) -> OnnxFunction | None:
    """The body of an operator that has one definition for all operands; None for others."""
    schema: Any = defs.get_schema(node.op_type, node.version, node.domain)
    if not schema.has_function:
        return None
    key = (node.domain, node.op_type, schema.since_version)
    if key not in _bodies:
        _bodies[key] = _parsed(schema.function_body, node, node.version)
    return _bodies[key]


def _call(node: OnnxNode, attributes: Attributes) -> NodeProto:
    """The node with the values of attributes that are those of the function around it."""
    assert node.proto is not None, "it was read from a file"
    call = NodeProto()
    call.CopyFrom(node.proto)
    own = [a for a in node.proto.attribute if not a.ref_attr_name]
    resolved = [
        helper.make_attribute(name, attributes[name])
        for name in node.references
        if name in attributes
    ]
    call.ClearField("attribute")
    call.attribute.extend([*own, *resolved])
    return call


def _parsed(proto: FunctionProto, node: OnnxNode, version: int) -> OnnxFunction:
    with outside_the_recording():
        return _parsed_with_values(proto, node, version)


def _parsed_with_values(proto: FunctionProto, node: OnnxNode, version: int) -> OnnxFunction:
    parser = Parser((), Reader())
    proto = FunctionProto.FromString(proto.SerializeToString())
    if not any(i.domain == "" for i in proto.opset_import):
        newest = version if node.domain == "" else defs.onnx_opset_version()
        proto.opset_import.append(helper.make_opsetid("", newest))
    function = parser.function(proto)
    parser.reject_missing()
    defaults = _defaults(node, version, parser)
    return replace(function, attributes={**function.attributes, **defaults})


def _defaults(node: OnnxNode, version: int, parser: Parser) -> Attributes:
    """What attributes are that a call leaves out."""
    schema = defs.get_schema(node.op_type, version, node.domain)
    return {
        name: parser.attribute(attribute.default_value, {}, 0)
        for name, attribute in schema.attributes.items()
        if attribute.default_value.name
    }


def _type_proto(value: object, number: int) -> TypeProto:
    if not isinstance(value, Tensor):
        return TypeProto()
    return helper.make_tensor_type_proto(number, list(value.shape))


def schema_attributes(node: OnnxNode) -> frozenset[str]:
    """The attributes that ONNX defines for an operator; anything else is an annotation."""
    return _schema_attributes(node.domain, node.op_type, node.version)


@cache
def _schema_attributes(domain: str, name: str, version: int) -> frozenset[str]:
    try:
        return frozenset(defs.get_schema(name, version, domain).attributes)
    except defs.SchemaError:
        return frozenset()
