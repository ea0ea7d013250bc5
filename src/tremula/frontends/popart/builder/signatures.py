"""What a method of an op-set takes and makes: signatures of ONNX's operators, from `onnx.defs`."""

import inspect
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
import onnx
from onnx import AttributeProto, defs, helper, numpy_helper

from tremula.base.errors import suggest
from tremula.frontends.onnx.table import UNLIMITED
from tremula.frontends.onnx.table import Operator as Entry
from tremula.frontends.popart.exceptions import popart_exception
from tremula.frontends.popart.tensor_info import onnx_type

# Python's own words are not names of methods.
METHODS = {
    "And": "logical_and",
    "Or": "logical_or",
    "Not": "logical_not",
    "Xor": "logical_xor",
    "If": "logical_if",
}
ONNX_DOMAIN = ""
NEWEST_OPSET = defs.onnx_opset_version()
COUNT = "num_outputs"
_LAST = "auto_pad"  # a choice that came late: it comes after those that scripts give by position
# Attributes that hold an element type, which scripts write as text: "FLOAT16".
_ELEMENT_TYPES = {"to", "dtype", "data_type", "stash_type", "output_dtype", "outDataType"}


@dataclass(frozen=True)
class MethodAttribute:
    """An attribute of an operator. `default` None: it is left out unless it is given."""

    name: str
    kind: int  # of AttributeProto.AttributeType; 0: whatever the value is
    is_required: bool = False
    default: Any = None
    takes_empty: bool = False  # an empty list has a meaning; of others it is "left out"

    @property
    def parameter(self) -> str:
        return "lambda_" if self.name == "lambda" else self.name


@dataclass(frozen=True)
class OperatorMethod:
    """An operator as a method: how many tensors it takes and makes, and its attributes."""

    domain: str
    type: str
    n_inputs: tuple[int, int]
    n_outputs: tuple[int, int]  # equal: fixed; otherwise the caller says how many
    attributes: tuple[MethodAttribute, ...]
    inputs: tuple[str, ...] = ()  # names, for the docs
    schema: Any = None  # of onnx.defs, if it has one
    name: str = ""  # of the method, where it is not the type's
    counts_outputs: bool = False  # a node with one input says how many outputs it has
    entry: Entry | None = None  # of ONNX's table, for one that onnx.defs does not have

    @property
    def method(self) -> str:
        return self.name or METHODS.get(self.type, self.type.lower())

    @property
    def has_free_outputs(self) -> bool:
        return self.n_outputs[0] != self.n_outputs[1]

    def signature(self) -> inspect.Signature:
        """`args`, `num_outputs` where it is free, required attributes, others, `debugContext`."""
        first = [] if self.n_inputs[1] == 0 else ["args"]
        first += [COUNT] if self.has_free_outputs else []
        required = [a.parameter for a in self.attributes if a.is_required]
        names = [*first, *required]
        parameters = [inspect.Parameter(n, inspect.Parameter.POSITIONAL_OR_KEYWORD) for n in names]
        optional = [(a.parameter, a.default) for a in self.attributes if not a.is_required]
        parameters += [
            inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD, default=default)
            for name, default in [*optional, ("debugContext", "")]
        ]
        return inspect.Signature(parameters)


@cache
def operators(domain: str, version: int) -> dict[str, OperatorMethod]:
    """The operators of an op-set by the names of their methods."""
    newest: dict[str, Any] = {}
    for schema in defs.get_all_schemas_with_history():
        if schema.domain == domain and schema.since_version <= version:
            known = newest.get(schema.name)
            if known is None or schema.since_version > known.since_version:
                newest[schema.name] = schema
    result = [_operator(schema) for schema in newest.values() if not schema.deprecated]
    return {operator.method: operator for operator in result}


def _operator(schema: defs.OpSchema) -> OperatorMethod:
    attributes = [_attribute(schema.attributes[name]) for name in sorted(schema.attributes)]
    if schema.name.startswith("Reduce"):
        attributes = [replace(a, takes_empty=a.name == "axes") for a in attributes]
    if schema.name == "Constant":  # PopART's method takes the array alone
        attributes = [MethodAttribute("value", AttributeProto.TENSOR, is_required=True)]
    counts = any(a.name == COUNT for a in attributes)  # the method's own argument of this name
    attributes = sorted((a for a in attributes if a.name != COUNT), key=lambda a: a.name == _LAST)
    return OperatorMethod(
        schema.domain,
        schema.name,
        (schema.min_input, schema.max_input),
        (max(schema.min_output, 1), schema.max_output),
        tuple(attributes),
        tuple(parameter.name for parameter in schema.inputs),
        schema,
        counts_outputs=counts,
    )


def _text(value: Any) -> Any:
    """Bytes, which are how ONNX stores texts, as texts."""
    if isinstance(value, list | tuple):
        return [_text(part) for part in value]
    return value.decode() if isinstance(value, bytes) else value


def _attribute(attribute: Any) -> MethodAttribute:
    default = None
    if attribute.default_value.name:
        default = helper.get_attribute_value(attribute.default_value)
        default = _text(default)
    return MethodAttribute(attribute.name, int(attribute.type.value), attribute.required, default)


# -- values ----------------------------------------------------------------------------------------


def make_attribute(attribute: MethodAttribute, value: Any) -> AttributeProto | None:
    """The value of an attribute as ONNX stores it; None if it is absent or the default."""
    if value is None or _is_default(attribute, value):
        return None
    if attribute.name in _ELEMENT_TYPES and attribute.kind == AttributeProto.INT:
        value = onnx_type(value)
    if attribute.kind == AttributeProto.TENSOR:
        value = value if isinstance(value, onnx.TensorProto) else tensor_proto(value)
    kind = attribute.kind or None
    try:
        plain = _plain(value, attribute.kind)
        return helper.make_attribute(attribute.name, plain, attr_type=kind)
    except (TypeError, ValueError) as error:
        name = AttributeProto.AttributeType.Name(attribute.kind)
        raise popart_exception(
            f"The attribute {attribute.name} takes a value of kind {name}, got {value!r}"
        ) from error


def _is_default(attribute: MethodAttribute, value: object) -> bool:
    if isinstance(value, list | tuple) and not len(value):
        return not attribute.is_required and not attribute.takes_empty
    is_plain = isinstance(value, int | float | str | list | tuple)
    if not is_plain or attribute.is_required or attribute.default is None:
        return False
    is_list = isinstance(value, list | tuple)
    return (list(value) if is_list else value) == attribute.default


def _plain(value: Any, kind: int) -> Any:
    if kind in (AttributeProto.FLOAT, AttributeProto.INT):
        return float(value) if kind == AttributeProto.FLOAT else int(value)
    if kind in (AttributeProto.INTS, AttributeProto.FLOATS):
        return [float(v) if kind == AttributeProto.FLOATS else int(v) for v in value]
    return value.tolist() if isinstance(value, np.ndarray | np.generic) else value


def tensor_proto(value: Any, name: str = "") -> onnx.TensorProto:
    """An array as ONNX stores it."""
    return numpy_helper.from_array(np.ascontiguousarray(value).reshape(np.shape(value)), name)


def check_inputs(operator: OperatorMethod, inputs: Sequence[str]) -> None:
    """Raise if an operator takes another number of tensors."""
    least, most = operator.n_inputs
    if least <= len(inputs) <= most:
        return
    takes = f"{least}" if least == most else f"{least} or more"
    takes = f"{least} to {most}" if least < most < UNLIMITED else takes
    named = f" ({', '.join(operator.inputs)})" if operator.inputs else ""
    raise popart_exception(
        f"{operator.type} takes {takes} inputs{named}, got {len(inputs)}: {list(inputs)}"
    )


def unknown_operator(name: str, known: dict[str, OperatorMethod], where: str) -> AttributeError:
    return AttributeError(f"{where} has no operator {name!r}: {suggest(name, known)}")
