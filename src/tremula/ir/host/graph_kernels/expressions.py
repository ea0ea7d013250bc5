"""ATen's element-wise operations as expressions of Triton, each on one tile of rows."""

import math
from collections.abc import Callable

import torch
from torch._ops import OpOverload

aten = torch.ops.aten
Expression = Callable[..., str]  # the operands as text, in the order of the schema -> the result

TRITON_TYPES = {
    torch.float32: "tl.float32",
    torch.float16: "tl.float16",
    torch.bfloat16: "tl.bfloat16",
    torch.int64: "tl.int64",
    torch.int32: "tl.int32",
    torch.int16: "tl.int16",
    torch.int8: "tl.int8",
    torch.uint8: "tl.uint8",
    torch.bool: "tl.int1",
}


def number(value: object) -> str:
    """A number of the graph as Triton reads it."""
    if isinstance(value, bool):
        return str(value)
    if isinstance(value, float) and not math.isfinite(value):
        return f'float("{value}")'
    return repr(value)


def _of(template: str) -> Expression:
    return template.format


def _scaled(sign: str) -> Expression:
    def expression(a: str, b: str, alpha: str = "1") -> str:
        return f"({a} {sign} {b})" if alpha == "1" else f"({a} {sign} {b} * {alpha})"

    return expression


def _softplus(x: str, beta: str = "1", threshold: str = "20") -> str:
    """Past a threshold of 20 it is x by rounding; a lower one is a choice of the model."""
    if beta == "1" and threshold == "20":
        return f"_softplus({x})"
    return f"tl.where({x} * {beta} > {threshold}, {x}, _softplus({x} * {beta}) / {beta})"


def _softplus_backward(g: str, x: str, beta: str, threshold: str) -> str:
    if beta == "1" and threshold == "20":
        return f"({g} * tl.sigmoid({x}))"
    return f"tl.where({x} * {beta} > {threshold}, {g}, {g} * tl.sigmoid({x} * {beta}))"


def _elu(x: str, alpha: str = "1", scale: str = "1", input_scale: str = "1") -> str:
    below = f"libdevice.expm1({x} * {input_scale}) * ({alpha} * {scale})"
    return f"tl.where({x} > 0, {x} * {scale}, {below})"


def _elu_backward(g: str, alpha: str, scale: str, input_scale: str, is_result: str, x: str) -> str:
    inner = f"{alpha} * {scale}"
    if is_result == "True":
        below = f"{g} * {input_scale} * ({x} + {inner})"
    else:
        below = f"{g} * {input_scale} * {inner} * tl.exp({x} * {input_scale})"
    return f"tl.where({x} > 0, {g} * {scale}, {below})"


def _power(x: str, exponent: str) -> str:
    simple = {"2": f"({x} * {x})", "3": f"({x} * {x} * {x})", "1": x, "0.5": f"tl.sqrt({x})"}
    simple |= {"-1": f"(1.0 / {x})", "-0.5": f"(1.0 / tl.sqrt({x}))"}
    return simple.get(exponent.removesuffix(".0"), f"libdevice.pow({x}, {exponent})")


def _clamp(x: str, low: str = "None", high: str = "None") -> str:
    if low != "None":
        x = f"tl.where({x} < {low}, {low}, {x})"  # a NaN stays
    return x if high == "None" else f"tl.where({x} > {high}, {high}, {x})"


# Kernels compute floats in float32, whatever the type they are stored as.
ELEMENT_WISE: dict[OpOverload, Expression] = {
    aten.add.Tensor: _scaled("+"),
    aten.sub.Tensor: _scaled("-"),
    aten.rsub.Scalar: lambda a, b, alpha="1": _scaled("-")(b, a, alpha),
    aten.mul.Tensor: _of("({0} * {1})"),
    aten.div.Tensor: _of("({0} / {1})"),
    aten.add.Scalar: _scaled("+"),
    aten.sub.Scalar: _scaled("-"),
    aten.mul.Scalar: _of("({0} * {1})"),
    aten.div.Scalar: _of("({0} / {1})"),
    aten.neg.default: _of("(-{0})"),
    aten.reciprocal.default: _of("(1.0 / {0})"),
    aten.abs.default: _of("tl.abs({0})"),
    aten.exp.default: _of("tl.exp({0})"),
    aten.log.default: _of("tl.log({0})"),
    aten.log1p.default: _of("libdevice.log1p({0})"),
    aten.expm1.default: _of("libdevice.expm1({0})"),
    aten.sqrt.default: _of("tl.sqrt({0})"),
    aten.rsqrt.default: _of("(1.0 / tl.sqrt({0}))"),
    aten.sin.default: _of("tl.sin({0})"),
    aten.cos.default: _of("tl.cos({0})"),
    aten.tanh.default: _of("libdevice.tanh({0})"),
    aten.sigmoid.default: _of("tl.sigmoid({0})"),
    aten.relu.default: _of("tl.where({0} < 0, 0.0, {0})"),
    aten.leaky_relu.default: lambda x, slope="0.01": f"tl.where({x} > 0, {x}, {x} * {slope})",
    aten.silu.default: _of("({0} * tl.sigmoid({0}))"),
    aten.elu.default: _elu,
    aten.softplus.default: _softplus,
    aten.pow.Tensor_Scalar: _power,
    aten.maximum.default: _of("tl.maximum({0}, {1}, propagate_nan=tl.PropagateNan.ALL)"),
    aten.minimum.default: _of("tl.minimum({0}, {1}, propagate_nan=tl.PropagateNan.ALL)"),
    aten.clamp.default: _clamp,
    aten.clamp_min.default: _clamp,
    aten.where.self: _of("tl.where({0}, {1}, {2})"),
    aten.masked_fill.Scalar: _of("tl.where({1}, {2}, {0})"),
    aten.clone.default: _of("{0}"),
    aten._to_copy.default: _of("{0}"),
    # gradients
    aten.threshold_backward.default: _of("tl.where({1} > {2}, {0}, 0.0)"),
    aten.softplus_backward.default: _softplus_backward,
    aten.sigmoid_backward.default: _of("({0} * {1} * (1.0 - {1}))"),
    aten.tanh_backward.default: _of("({0} * (1.0 - {1} * {1}))"),
    aten.silu_backward.default: _of(
        "({0} * tl.sigmoid({1}) * (1.0 + {1} * (1.0 - tl.sigmoid({1}))))"
    ),
    aten.leaky_relu_backward.default: _of("tl.where({1} > 0, {0}, {0} * {2})"),
    aten.elu_backward.default: _elu_backward,
}
for _name, _sign in (
    ("eq", "=="),
    ("ne", "!="),
    ("lt", "<"),
    ("le", "<="),
    ("gt", ">"),
    ("ge", ">="),
):
    for _overload in ("Tensor", "Scalar"):
        ELEMENT_WISE[getattr(getattr(aten, _name), _overload)] = _of(f"({{0}} {_sign} {{1}})")
for _name, _sign in (("logical_and", "&"), ("logical_or", "|")):
    ELEMENT_WISE[getattr(aten, _name).default] = _of(f"({{0}} {_sign} {{1}})")
ELEMENT_WISE[aten.logical_not.default] = _of("({0} == 0)")
