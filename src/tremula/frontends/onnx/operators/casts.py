"""Casts between element types, exact to the bit where ONNX defines them."""

from torch import Tensor

from tremula.frontends.onnx.context import NodeContext
from tremula.frontends.onnx.table import operator
from tremula.frontends.onnx.values import cast_to, parse_type_name


@operator("Cast", until=5)
def cast_before_6(x: Tensor, *, to: str) -> Tensor:
    """The type is named by a text."""
    return cast_to(x, parse_type_name(to))


@operator("Cast", since=6)
def cast(x: Tensor, *, to: int, saturate: int = 1, round_mode: str = "up") -> Tensor:
    """To another element type; 8-bit floats saturate unless `saturate` is 0."""
    return cast_to(x, to, saturate=bool(saturate), round_mode=round_mode)


@operator("CastLike", since=15)
def cast_like(
    x: Tensor, like: Tensor, *, saturate: int = 1, round_mode: str = "up", context: NodeContext
) -> Tensor:
    """To the element type of another tensor."""
    del like
    number = context.input_types[1]
    return cast_to(x, number, saturate=bool(saturate), round_mode=round_mode)
