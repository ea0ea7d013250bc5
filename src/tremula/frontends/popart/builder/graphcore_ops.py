"""The operators of ai.graphcore as methods: signatures and types of results, from ONNX's table.

An operator is one function in `onnx/operators/graphcore`. Its parameters are the method's inputs
and attributes. Types of results come from running the function on tensors without memory; where an
input has an open dimension, it runs for two sizes, and dimensions of results that differ are open.
"""

from collections.abc import Mapping, Sequence
from functools import cache
from inspect import Parameter
from keyword import iskeyword
from typing import Any, get_args

import torch
from onnx import AttributeProto, TensorProto, numpy_helper
from torch import Tensor

from tremula.base.errors import PoplarError
from tremula.frontends.onnx.context import BodyGraph, NodeContext
from tremula.frontends.onnx.element_types import element_type, number_of, tensor_of, widened
from tremula.frontends.onnx.table import GRAPHCORE_DOMAIN, all_operators
from tremula.frontends.onnx.table import Operator as Entry
from tremula.frontends.popart.builder.inference import InferredType
from tremula.frontends.popart.builder.signatures import (
    MethodAttribute,
    OperatorMethod,
)
from tremula.frontends.popart.enums import (
    CollectiveOperator,
    CommGroupType,
    DataType,
    InitType,
    ReductionType,
    ScatterReduction,
)
from tremula.frontends.popart.tensor_info import onnx_type

# Attributes that scripts give, and see, as members of enumerations.
_ENUM_DEFAULTS = {"Mean": ReductionType.Mean, "sum": ScatterReduction.Sum}
_OPEN_SIZES = (60, 120)  # with many divisors, so that reshapes and groups fit


@cache
def graphcore_operators() -> dict[str, OperatorMethod]:
    """Operators that take no graphs, by the names of their methods."""
    entries = (e for e in all_operators() if e.domain == GRAPHCORE_DOMAIN)
    made = [_operator(entry) for entry in entries if not _takes_graphs(entry)]
    return {operator.method: operator for operator in made}


def _takes_graphs(entry: Entry) -> bool:
    return any(p.annotation is BodyGraph for p in entry.attribute_parameters.values())


def _operator(entry: Entry) -> OperatorMethod:
    return OperatorMethod(
        GRAPHCORE_DOMAIN,
        entry.name,
        entry.n_inputs,
        entry.n_outputs,
        tuple(_attribute(name, p) for name, p in entry.attribute_parameters.items()),
        tuple(name.strip("_") for name in entry.operands),
        name=entry.method,
        entry=entry,
    )


def _attribute(name: str, parameter: Parameter) -> MethodAttribute:
    annotation = parameter.annotation
    is_float = annotation is float or float in get_args(annotation)
    kind = int(AttributeProto.FLOAT) if is_float else 0
    if parameter.default is Parameter.empty:
        return MethodAttribute(name, kind, is_required=True)
    default = parameter.default
    if name == "reduction":
        default = _ENUM_DEFAULTS.get(default, default)
    return MethodAttribute(name, kind, default=default)


# -- types of results ------------------------------------------------------------------------------


def result_types(
    entry: Entry,
    types: Sequence[InferredType | None],
    attributes: Mapping[str, Any],
    n_outputs: int,
    constants: Sequence[TensorProto | None] = (),
) -> list[InferredType]:
    """The types of an operator's results; unknown where those of its inputs do not decide them.

    `constants` are the operands whose values are known. Raises ValueError for inputs that do not
    fit.
    """
    known = [t for t in types if t is not None]
    first = known[0].element if known else 0
    if any(t.shape is None or not t.element for t in known):
        return [InferredType(first)] * n_outputs
    if all(t.is_static for t in known):
        return _computed_types(entry, types, attributes, n_outputs, constants)
    try:
        small, large = (
            _computed_types(
                entry, [t and _closed(t, n) for t in types], attributes, n_outputs, constants
            )
            for n in _OPEN_SIZES
        )
    except ValueError:  # of these sizes; others may fit
        return [InferredType(first)] * n_outputs
    return [_where_equal(a, b) for a, b in zip(small, large, strict=True)]


def _without_values(t: InferredType) -> Tensor:
    return widened(torch.empty(t.sizes(), dtype=element_type(t.element).tensor_type, device="meta"))


def _closed(t: InferredType, n: int) -> InferredType:
    return t.with_shape([n if size is None else size for size in t.shape or ()])


def _where_equal(a: InferredType, b: InferredType) -> InferredType:
    if a.shape is None or b.shape is None or len(a.shape) != len(b.shape):
        return InferredType(a.element)
    return a.with_shape([m if m == n else None for m, n in zip(a.shape, b.shape, strict=True)])


def _computed_types(
    entry: Entry,
    types: Sequence[InferredType | None],
    attributes: Mapping[str, Any],
    n_outputs: int,
    constants: Sequence[TensorProto | None],
) -> list[InferredType]:
    operands = [t and _without_values(t) for t in types]
    for i, constant in enumerate(constants):
        if constant is not None and i < len(entry.operands) and entry.operands[i] in entry.static:
            operands[i] = tensor_of(numpy_helper.to_array(constant))
    takes_any = entry.takes_any_attribute
    known = {n: value for n, value in attributes.items() if takes_any or n in entry.attributes}
    arguments = {f"{name}_" if iskeyword(name) else name: value for name, value in known.items()}
    if entry.takes_context:
        arguments["context"] = _meta_context(types, n_outputs)
    try:
        values = (entry.outline or entry.compute)(*operands, **arguments)
    except (RuntimeError, IndexError, TypeError, PoplarError) as error:
        raise ValueError(str(error).splitlines()[0]) from error
    flat = values if isinstance(values, tuple) else (values,)
    pairs = zip(operands, types, strict=True)
    elements = {x.dtype: t.element for x, t in pairs if x is not None and t is not None}
    return [_type_of(value, elements, types) for value in flat[:n_outputs]]


def _type_of(
    value: Tensor | None,
    elements: Mapping[torch.dtype, int],
    types: Sequence[InferredType | None],
) -> InferredType:
    """Of the type of an input that is computed alike, else PyTorch's; None: of an open shape."""
    if value is None:
        return InferredType(next(t.element for t in types if t is not None))
    return InferredType(elements.get(value.dtype) or number_of(value), tuple(value.shape))


def _meta_context(types: Sequence[InferredType | None], n_outputs: int) -> NodeContext:
    def unavailable(*_args: object) -> Any:
        raise RuntimeError("the operator runs another graph")

    names = tuple(f"output {i}" for i in range(n_outputs))
    elements = tuple(t.element if t is not None else 0 for t in types)
    device = torch.device("meta")
    return NodeContext(1, names, elements, (0,) * n_outputs, device, *[unavailable] * 3)


# -- attributes ------------------------------------------------------------------------------------


def stored_value(name: str, value: object) -> Any:
    """A choice as the node's attribute holds it: reductions by name, types and others by number."""
    if isinstance(value, ReductionType):
        return value.name
    if isinstance(value, ScatterReduction):
        return {"NoReduction": "none"}.get(value.name, value.name.lower())
    if isinstance(value, DataType | str) and name in ("data_type", "out_type"):
        return onnx_type(value)
    if isinstance(value, CollectiveOperator | InitType | CommGroupType | bool):
        return int(value)
    if name == "outDataType" and isinstance(value, DataType):
        return value.name
    return value
