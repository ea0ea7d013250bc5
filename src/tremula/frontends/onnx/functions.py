"""Operators that their operator set defines by others: their bodies, as functions."""

from collections.abc import Sequence
from functools import cache

from onnx import FunctionProto, TypeProto, defs, helper
from torch import Tensor

from tremula.frontends.onnx.errors import UnsupportedOnnx
from tremula.frontends.onnx.graph import Function, Node, Parser
from tremula.frontends.onnx.initialisers import Reader

_bodies: dict[tuple, Function] = {}


def body_of_schema(node: Node, operands: Sequence[object], types: Sequence[int]) -> Function:
    """What an operator without an entry is, for operands like these."""
    assert node.proto is not None, "only nodes of files have none"
    schema = defs.get_schema(node.op_type, node.version, node.domain)
    if schema.has_function:
        key = (node.domain, node.op_type, schema.since_version)
        if key not in _bodies:
            _bodies[key] = _parsed(schema.function_body, node, node.version)
        return _bodies[key]
    if not all(v is None or isinstance(v, Tensor) for v in operands):
        raise UnsupportedOnnx(f"{node.label} of sequences has no definition.")
    protos = [_type_proto(v, t) for v, t in zip(operands, types, strict=True)]
    text = schema.get_context_dependent_function(
        node.proto.SerializeToString(), [proto.SerializeToString() for proto in protos]
    )
    if not text:
        raise UnsupportedOnnx(f"{node.label} has no definition for these operands.")
    key = (node.version, text)
    if key not in _bodies:
        _bodies[key] = _parsed(FunctionProto.FromString(text), node, node.version)
    return _bodies[key]


def _parsed(proto: FunctionProto, node: Node, version: int) -> Function:
    parser = Parser((), Reader())
    if not proto.opset_import:
        proto = FunctionProto.FromString(proto.SerializeToString())
        proto.opset_import.append(helper.make_opsetid(node.domain, version))
    function = parser.function(proto)
    parser.refuse_missing()
    return function


def _type_proto(value: object, number: int) -> TypeProto:
    if not isinstance(value, Tensor):
        return TypeProto()
    return helper.make_tensor_type_proto(number, list(value.shape))


def schema_attributes(node: Node) -> frozenset[str]:
    """The attributes that ONNX defines for an operator; anything else is somebody's annotation."""
    return _schema_attributes(node.domain, node.op_type, node.version)


@cache
def _schema_attributes(domain: str, name: str, version: int) -> frozenset[str]:
    try:
        return frozenset(defs.get_schema(name, version, domain).attributes)
    except defs.SchemaError:
        return frozenset()
