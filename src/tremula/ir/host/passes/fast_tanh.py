"""The hyperbolic tangent of compiled programs: a quotient of polynomials, as other compilers take.

Inductor calls a library, which is several times slower. This is within 4 units in the last place.
"""

from functools import cache
from typing import Any

import torch
from torch import Tensor

from tremula.ir.step import CapturedStep

aten = torch.ops.aten

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
    """Take the quotient for tangents of float32."""
    _teach_inductor()
    for node in part.graph.nodes:
        if node.target is aten.tanh.default and node.meta["val"].dtype is torch.float32:
            node.target = torch.ops.tremula.fast_tanh.default
    return part


@cache
def _teach_inductor() -> None:
    from torch._inductor.lowering import make_pointwise, register_lowering

    register = register_lowering(torch.ops.tremula.fast_tanh.default, type_promotion_kind=None)
    register(make_pointwise(_quotient))


def _quotient(x: Any) -> Any:  # noqa: ANN401
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
