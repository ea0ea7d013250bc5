"""The element-wise non-linearities: value, slope, reference and cost of each.

The functions take and give float32 (halves are widened before and rounded once after) and are
compiled into the codelets that use them, so they have no annotations.
"""

# ruff: noqa: ANN001, ANN201
# pyright: reportOperatorIssue=false, reportArgumentType=false
import math
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

import numpy as np

from tremula.base.types import Type, float32
from tremula.poplibs.popops.elementwise.costs import LoopCost
from tremula.poplibs.popops.elementwise.element_op import VectorCost, costs

GELU_SCALE = math.sqrt(2 / math.pi)
GELU_CUBE = 0.044715
SQRT_HALF = math.sqrt(0.5)
INV_SQRT_TWO_PI = 1 / math.sqrt(2 * math.pi)
HARD_SLOPE = 0.2
# Published: supervisor cycles, and worker slots before the loop, forward and gradient.
LAUNCH_CYCLES, START_SLOTS, GRADIENT_START_SLOTS = 9, 25, 24


class NonLinearityType(Enum):
    """The non-linearities; those of softmax work along the innermost dimension."""

    SIGMOID = "SIGMOID"
    HARD_SIGMOID = "HARD_SIGMOID"
    RELU = "RELU"
    TANH = "TANH"
    GELU = "GELU"
    GELU_ERF = "GELU_ERF"
    SWISH = "SWISH"
    SOFTMAX = "SOFTMAX"
    SOFTMAX_STABLE = "SOFTMAX_STABLE"
    SOFTMAX_SCALED = "SOFTMAX_SCALED"

    @property
    def is_softmax(self) -> bool:
        return self.value.startswith("SOFTMAX")


def sigmoid_of(x):
    return float32(1) / (float32(1) + math.exp(-x))


def hard_sigmoid_of(x):
    return min(max(x * float32(HARD_SLOPE) + float32(0.5), float32(0)), float32(1))


def relu_of(x):
    return float32(0) if x < 0 else x


def tanh_of(x):
    return math.tanh(x)


def gelu_of(x):
    inner = float32(GELU_SCALE) * (x + float32(GELU_CUBE) * x * x * x)
    return float32(0.5) * x * (float32(1) + math.tanh(inner))


def gelu_erf_of(x):
    return float32(0.5) * x * (float32(1) + math.erf(x * float32(SQRT_HALF)))


def swish_of(x):
    return x / (float32(1) + math.exp(-x))


def sigmoid_slope(y):
    return y * (float32(1) - y)


def hard_sigmoid_slope(y):
    return float32(HARD_SLOPE) if y > 0 and y < 1 else float32(0)


def relu_slope(y):
    return float32(1) if y > 0 else float32(0)


def tanh_slope(y):
    return float32(1) - y * y


def gelu_slope(x):
    inner = float32(GELU_SCALE) * (x + float32(GELU_CUBE) * x * x * x)
    t = math.tanh(inner)
    steepness = float32(GELU_SCALE) * (float32(1) + float32(3 * GELU_CUBE) * x * x)
    return float32(0.5) * (float32(1) + t + x * (float32(1) - t * t) * steepness)


def gelu_erf_slope(x):
    below = float32(0.5) * (float32(1) + math.erf(x * float32(SQRT_HALF)))
    return below + x * float32(INV_SQRT_TWO_PI) * math.exp(float32(-0.5) * x * x)


def swish_slope(x):
    s = float32(1) / (float32(1) + math.exp(-x))
    return s + x * s * (float32(1) - s)


@dataclass(frozen=True, slots=True)
class NonLinearityMath:
    """One element-wise non-linearity. Its slope takes the output, or the input if `from_input`."""

    value: Callable
    slope: Callable
    reference: Callable[[np.ndarray], np.ndarray]  # in float64
    reference_slope: Callable[[np.ndarray], np.ndarray]
    cost: dict[str, VectorCost]
    gradient_cost: dict[str, VectorCost]
    is_published: bool = True
    from_input: bool = False
    flops: int = 1  # of a value: functions that are no polynomials count as one
    slope_flops: int = 1

    def loop_cost(self, type: Type, is_gradient: bool, is_multi: bool) -> LoopCost:
        vector = (self.gradient_cost if is_gradient else self.cost)[type.name]
        start = GRADIENT_START_SLOTS if is_gradient else START_SLOTS
        return LoopCost(LAUNCH_CYCLES if is_multi else 0, start, vector.slots, vector.width)


# -- NumPy references --------------------------------------------------------------------------

_erf = np.vectorize(math.erf, otypes=[np.float64])


def _sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def _gelu(x: np.ndarray) -> np.ndarray:
    return 0.5 * x * (1 + np.tanh(GELU_SCALE * (x + GELU_CUBE * x**3)))


def _gelu_slope(x: np.ndarray) -> np.ndarray:
    t = np.tanh(GELU_SCALE * (x + GELU_CUBE * x**3))
    return 0.5 * (1 + t) + 0.5 * x * (1 - t**2) * GELU_SCALE * (1 + 3 * GELU_CUBE * x**2)


def _gelu_erf_slope(x: np.ndarray) -> np.ndarray:
    return 0.5 * (1 + _erf(x * SQRT_HALF)) + x * np.exp(-(x**2) / 2) * INV_SQRT_TWO_PI


def _swish_slope(x: np.ndarray) -> np.ndarray:
    return _sigmoid(x) + x * _sigmoid(x) * (1 - _sigmoid(x))


# Published per vector: relu 1, sigmoid 10 / 4, tanh 10 / 2, gelu 10 / 5, swish 11 / 5; gradients 3,
# gelu 10 / 5, swish 15 / 9. The error function is popops', per element; its gradient adds an exp.
# A hard sigmoid is a multiply, an add, a clamp of two, and a load and store beside them.
_PLAIN_GRADIENT = costs(3, 2, 3, 4)
TABLE: dict[NonLinearityType, NonLinearityMath] = {
    NonLinearityType.SIGMOID: NonLinearityMath(
        sigmoid_of, sigmoid_slope, _sigmoid, lambda y: y * (1 - y), costs(10, 2, 4, 4),
        _PLAIN_GRADIENT, slope_flops=2),
    NonLinearityType.HARD_SIGMOID: NonLinearityMath(
        hard_sigmoid_of, hard_sigmoid_slope, lambda x: np.clip(HARD_SLOPE * x + 0.5, 0, 1),
        lambda y: HARD_SLOPE * ((y > 0) & (y < 1)), costs(5, 2, 5, 4), costs(5, 2, 5, 4),
        is_published=False, flops=4, slope_flops=2),
    NonLinearityType.RELU: NonLinearityMath(
        relu_of, relu_slope, lambda x: np.maximum(x, 0), lambda y: y > 0, costs(1, 2, 1, 4),
        _PLAIN_GRADIENT),
    NonLinearityType.TANH: NonLinearityMath(
        tanh_of, tanh_slope, np.tanh, lambda y: 1 - y**2, costs(10, 2, 2, 4), _PLAIN_GRADIENT,
        slope_flops=2),
    NonLinearityType.GELU: NonLinearityMath(
        gelu_of, gelu_slope, _gelu, _gelu_slope, costs(10, 2, 5, 4), costs(10, 2, 5, 4),
        from_input=True),
    NonLinearityType.GELU_ERF: NonLinearityMath(
        gelu_erf_of, gelu_erf_slope, lambda x: 0.5 * x * (1 + _erf(x * SQRT_HALF)),
        _gelu_erf_slope, costs(22, 1, 16, 1), costs(28, 1, 20, 1), is_published=False,
        from_input=True),
    NonLinearityType.SWISH: NonLinearityMath(
        swish_of, swish_slope, lambda x: x * _sigmoid(x), _swish_slope, costs(11, 2, 5, 4),
        costs(15, 2, 9, 4), from_input=True),
}  # fmt: skip
