"""Passes that replace operations by others, where a device has no kernel for them or a slow one."""

import platform
from collections.abc import Sequence
from functools import cache
from typing import Any

import torch
from torch import Tensor, fx

from tremula.ir.host.passes.memory_format import IMAGE_RANK
from tremula.ir.nodes import ints, operand, whole
from tremula.ir.step import CapturedStep

aten = torch.ops.aten

# -- gradients of convolutions on a CPU ------------------------------------------------------------


def differentiate_by_forward_kernels(step: CapturedStep) -> CapturedStep:
    """On 64-bit ARM only forward convolutions are tuned: gradients are computed by those."""
    if platform.machine() == "aarch64" and torch.backends.mkldnn.is_available():
        for node in step.graph.nodes:
            if node.target is aten.convolution_backward.default and _is_plain(node):
                node.target = plain_convolution_gradients
    return step


def _is_plain(node: fx.Node) -> bool:
    """Whether it is of float32 images, with a stride of one pixel."""
    _, _, _, _, stride, padding, dilation, transposed, _, groups, _ = node.args
    value: Tensor = operand(node, 2).meta["val"]
    kernel = value.shape[2:]
    return (
        value.dim() == IMAGE_RANK
        and value.dtype is torch.float32
        and not transposed
        and whole(groups) == 1
        and ints(stride) == ints(dilation) == [1, 1]
        and all(p < k for p, k in zip(ints(padding), kernel, strict=True))
    )


def plain_convolution_gradients(
    gradient: Tensor,
    image: Tensor,
    weight: Tensor,
    *rest: Any,  # noqa: ANN401
) -> tuple[Tensor | None, ...]:
    """The results of `aten::convolution_backward`, with the image's gradient as a convolution."""
    _, _, padding, *_, (of_image, of_weight, of_bias) = rest
    first = _gradient_of_image(gradient, weight, padding) if of_image else None
    if tuple(weight.shape[2:]) == (1, 1) and not of_bias:
        product = _pixels(gradient).t() @ _pixels(image)
        return first, product.view(weight.shape), None
    wanted = [False, of_weight, of_bias]
    result = aten.convolution_backward.default(gradient, image, weight, *rest[:-1], wanted)
    return first, *result[1:]


def _gradient_of_image(gradient: Tensor, weight: Tensor, padding: Sequence[int]) -> Tensor:
    flipped = weight.flip(2, 3).transpose(0, 1).contiguous(memory_format=torch.channels_last)
    padding_back = [k - 1 - p for k, p in zip(weight.shape[2:], padding, strict=True)]
    return torch.conv2d(gradient, flipped, None, padding=padding_back)


def _pixels(image: Tensor) -> Tensor:
    """A row of channels for each pixel."""
    return image.permute(0, 2, 3, 1).reshape(-1, image.shape[1])


# -- the hyperbolic tangent in Inductor ------------------------------------------------------------

# Inductor calls a library, which is several times slower than this quotient of polynomials, which
# other compilers use, too. It is within 4 units in the last place.
_LIMIT = 7.90531110763549805  # beyond it, the tangent is 1 in float32
# Of powers of x squared, the highest first; the numerator is multiplied by x.
_NUMERATOR = (
    -2.76076847742355e-16, 2.00018790482477e-13, -8.60467152213735e-11, 5.12229709037114e-08,
    1.48572235717979e-05, 6.37261928875436e-04, 4.89352455891786e-03,
)  # fmt: skip
_DENOMINATOR = (1.19825839466702e-06, 1.18534705686654e-04, 2.26843463243900e-03,
                4.89352518554385e-03)  # fmt: skip

_library = torch.library.Library("tremula", "FRAGMENT")
_library.define("fast_tanh(Tensor x) -> Tensor")
_library.impl("fast_tanh", torch.tanh, "CPU")


@torch.library.register_fake("tremula::fast_tanh", lib=_library)
def _fake(x: Tensor) -> Tensor:
    return torch.empty_like(x)


def use_fast_tanh(part: CapturedStep) -> CapturedStep:
    """Compute tangents of float32 values by the quotient."""
    _register_lowering()
    for node in part.graph.nodes:
        if node.target is aten.tanh.default and node.meta["val"].dtype is torch.float32:
            node.target = torch.ops.tremula.fast_tanh.default
    return part


@cache
def _register_lowering() -> None:
    from torch._inductor.lowering import make_pointwise, register_lowering

    register = register_lowering(torch.ops.tremula.fast_tanh.default, type_promotion_kind=None)
    register(make_pointwise(_tanh_quotient))


def _tanh_quotient(x: Any) -> Any:  # noqa: ANN401
    """The formula in Inductor's operations on one element."""
    from torch._inductor.virtualized import ops

    def polynomial(square: Any, factors: tuple[float, ...]) -> Any:  # noqa: ANN401
        total, *rest = (ops.constant(factor, torch.float32) for factor in factors)
        for factor in rest:
            total = ops.add(ops.mul(total, square), factor)
        return total

    limits = [ops.constant(limit, torch.float32) for limit in (_LIMIT, -_LIMIT)]
    x = ops.maximum(ops.minimum(x, limits[0]), limits[1])
    square = ops.mul(x, x)
    above = ops.mul(x, polynomial(square, _NUMERATOR))
    return ops.truediv(above, polynomial(square, _DENOMINATOR))
