"""The element-wise non-linearities: value, slope, reference and cost of each.

The functions take and return float32 (halves are widened before and rounded once after) and are
compiled into the codelets that use them, so they have no annotations.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum
from functools import partial

import numpy as np

from tremula.base.errors import suggest
from tremula.base.source import user_source
from tremula.base.types import FLOAT, HALF, Type, float32
from tremula.poplar.graph import Graph
from tremula.poplar.programs import Copy, Sequence
from tremula.poplar.tensors.tensor import Tensor
from tremula.poplibs.families import family
from tremula.poplibs.popnn.checks import check_float, check_same_shape
from tremula.poplibs.popnn.softmax import softmax, softmax_input_gradient
from tremula.poplibs.popops.elementwise.codelets import element_codelet
from tremula.poplibs.popops.elementwise.costs import LoopCost
from tremula.poplibs.popops.elementwise.element_op import VectorCost, costs
from tremula.poplibs.popops.elementwise.flat_codelets import FlatCodelet, make_flat
from tremula.poplibs.popops.elementwise.fused import converter
from tremula.poplibs.popops.elementwise.operations import gelu_by_erf
from tremula.poplibs.popops.vertex_layout import aligned, run_spread
from tremula.poplibs.poputil import clone_in_order, replayed
from tremula.poplibs.registry import ErrorCase, Op, PoplibsError, Sample, register

# ruff: noqa: ANN001, ANN201
# pyright: reportOperatorIssue=false, reportArgumentType=false


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


def swish_of(x):
    return x / (float32(1) + math.exp(-x))


def sigmoid_slope(y):
    return y * (float32(1) - y)


def hard_sigmoid_slope(y):
    return float32(HARD_SLOPE) if y > 0 and y < 1 else float32(0)


def relu_slope(y):
    return float32(1) if y > 0 else float32(0)


def relu_gradient(y, g):
    """The vertex masks the gradient: what it drops may be infinite."""
    return float32(0) if y <= 0 else g


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
    flops: int = 1  # of a value: transcendental functions count as one
    slope_flops: int = 1
    gradient: Callable | None = None  # (data, output's gradient), if no product by the slope

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
        _PLAIN_GRADIENT, gradient=relu_gradient),
    NonLinearityType.TANH: NonLinearityMath(
        tanh_of, tanh_slope, np.tanh, lambda y: 1 - y**2, costs(10, 2, 2, 4), _PLAIN_GRADIENT,
        slope_flops=2),
    NonLinearityType.GELU: NonLinearityMath(
        gelu_of, gelu_slope, _gelu, _gelu_slope, costs(10, 2, 5, 4), costs(10, 2, 5, 4),
        from_input=True),
    NonLinearityType.GELU_ERF: NonLinearityMath(
        gelu_by_erf, gelu_erf_slope, lambda x: 0.5 * x * (1 + _erf(x * SQRT_HALF)),
        _gelu_erf_slope, costs(22, 1, 16, 1), costs(28, 1, 20, 1), is_published=False,
        from_input=True),
    NonLinearityType.SWISH: NonLinearityMath(
        swish_of, swish_slope, lambda x: x * _sigmoid(x), _swish_slope, costs(11, 2, 5, 4),
        costs(15, 2, 9, 4), from_input=True),
}  # fmt: skip


# -- operations: element by element, or softmax along the last dimension ---------------------------
# A gradient takes the activations it can be computed from: the output of the non-linearity, or its
# input for GELU, GELU_ERF and SWISH.


Kind = NonLinearityType | str


@replayed
def non_linearity(
    graph: Graph, x: Tensor, sequence: Sequence, name: str = "", *, kind: Kind
) -> Tensor:
    """A new tensor, laid out like x, with the non-linearity of every element."""
    kind = as_kind(kind)
    check_float("non_linearity", x)
    name = name or kind.value.lower()
    if kind.is_softmax:
        return softmax(graph, x, sequence, name, **_softmax_options(kind))
    out = clone_in_order(graph, x, name)
    _add_vertices(graph, value_codelet, kind, out, {"data": x}, sequence, name)
    return out


@replayed
def non_linearity_in_place(
    graph: Graph, x: Tensor, sequence: Sequence, name: str = "", *, kind: Kind
) -> None:
    """The non-linearity of every element, in place."""
    kind = as_kind(kind)
    check_float("non_linearity_in_place", x)
    if not x.is_parallel_writeable:
        raise PoplibsError(
            f"{x!r} cannot be written in place: it repeats an element or is constant.",
            source=user_source(),
            hint="use non_linearity, which gives a new tensor",
        )
    name = name or kind.value.lower()
    if kind.is_softmax:
        sequence.add(Copy(softmax(graph, x, sequence, name, **_softmax_options(kind)), x))
    else:
        _add_vertices(graph, in_place_codelet, kind, x, {}, sequence, name)


@replayed
def non_linearity_input_gradient(
    graph: Graph, activations: Tensor, out_gradient: Tensor, sequence: Sequence, name: str = "",
    *, kind: Kind,
) -> Tensor:  # fmt: skip
    """The gradient of the input from that of the output.

    `activations` is the output of the non-linearity; for GELU, GELU_ERF and SWISH its input.
    """
    kind = as_kind(kind)
    check_float("non_linearity_input_gradient", activations)
    check_same_shape("non_linearity_input_gradient", activations, out_gradient)
    name = name or f"{kind.value.lower()}_gradient"
    if kind.is_softmax:
        is_scaled = kind is NonLinearityType.SOFTMAX_SCALED
        return softmax_input_gradient(
            graph, activations, out_gradient, sequence, name, is_scaled=is_scaled
        )
    out = clone_in_order(graph, activations, name)
    inputs = {"data": activations, "out_grad": out_gradient}
    _add_vertices(graph, gradient_codelet, kind, out, inputs, sequence, name)
    return out


def as_kind(kind: Kind) -> NonLinearityType:
    """A non-linearity or its name."""
    if isinstance(kind, NonLinearityType):
        return kind
    name = str(kind).upper()
    if name not in NonLinearityType.__members__:
        raise PoplibsError(
            f"there is no non-linearity {kind!r}.",
            source=user_source(),
            hint=suggest(name, NonLinearityType.__members__),
        )
    return NonLinearityType[name]


def _softmax_options(kind: NonLinearityType) -> dict[str, bool]:
    return {
        "is_stable": kind is not NonLinearityType.SOFTMAX,
        "is_scaled": kind is NonLinearityType.SOFTMAX_SCALED,
    }


def _add_vertices(
    graph: Graph, codelet: Callable[[NonLinearityType, Type, bool], type], kind: NonLinearityType,
    out: Tensor, inputs: dict[str, Tensor], sequence: Sequence, name: str,
) -> None:  # fmt: skip
    if out.n_elems == 0:
        return
    flat, operands = aligned(out, inputs, has_rows=False)
    run_spread(graph, partial(codelet, kind, out.type), "out", flat, operands, sequence, name)


# -- codelets ----------------------------------------------------------------------------------


@family
def value_codelet(kind: NonLinearityType, element: Type, is_multi: bool) -> type:
    """Every element of `data` to `out`."""
    vectors = (("data", "Input", element), ("out", "Output", element))
    line = "out[i] = {0}(value_of(as_float(data[i])))"
    return _codelet("NonLinearity", kind, element, is_multi, vectors, line)


@family
def in_place_codelet(kind: NonLinearityType, element: Type, is_multi: bool) -> type:
    """Every element of `out`, in place."""
    vectors = (("out", "InOut", element),)
    line = "out[i] = {0}(value_of(as_float(out[i])))"
    return _codelet("NonLinearityInPlace", kind, element, is_multi, vectors, line)


@family
def gradient_codelet(kind: NonLinearityType, element: Type, is_multi: bool) -> type:
    """The gradient of the output times the slope."""
    vectors = (
        ("data", "Input", element), ("out_grad", "Input", element), ("out", "Output", element),
    )  # fmt: skip
    line = "out[i] = {0}(as_float(out_grad[i]) * slope_of(as_float(data[i])))"
    if TABLE[kind].gradient is not None:
        line = "out[i] = {0}(gradient_of(as_float(data[i]), as_float(out_grad[i])))"
    return _codelet("NonLinearityGrad", kind, element, is_multi, vectors, line)


def _codelet(
    name: str, kind: NonLinearityType, element: Type, is_multi: bool,
    vectors: tuple[tuple[str, str, Type], ...], line: str,
) -> type:  # fmt: skip
    entry = TABLE[kind]
    is_gradient = name.endswith("Grad")
    helpers = {"value_of": entry.value}
    if is_gradient:
        by_slope = {"slope_of": entry.slope}
        helpers = by_slope if entry.gradient is None else {"gradient_of": entry.gradient}
    return make_flat(
        FlatCodelet(
            name=f"popnn::{name}<{element},{kind.value}>",
            provenance="published" if entry.is_published and is_multi else "derived",
            vectors=vectors,
            lines=(line.format(converter(element)),),
            sized_by="out",
            cost=entry.loop_cost(element, is_gradient, is_multi),
            flops=1 + entry.slope_flops if is_gradient else entry.flops,
            helpers=helpers,
        ),
        is_multi,
    )


# -- shorthands --------------------------------------------------------------------------------


def _shorthand(kind: NonLinearityType) -> Callable[..., Tensor]:
    def function(graph: Graph, x: Tensor, sequence: Sequence, name: str = "") -> Tensor:
        return non_linearity(graph, x, sequence, name, kind=kind)

    function.__name__ = function.__qualname__ = kind.value.lower()
    function.__doc__ = f"non_linearity with kind {kind.value}."
    return function


def _shorthand_in_place(kind: NonLinearityType) -> Callable[..., None]:
    def function(graph: Graph, x: Tensor, sequence: Sequence, name: str = "") -> None:
        non_linearity_in_place(graph, x, sequence, name, kind=kind)

    function.__name__ = function.__qualname__ = f"{kind.value.lower()}_in_place"
    function.__doc__ = f"non_linearity_in_place with kind {kind.value}."
    return function


sigmoid, hard_sigmoid, relu, tanh, gelu, gelu_erf, swish = (
    _shorthand(NonLinearityType[kind])
    for kind in "SIGMOID HARD_SIGMOID RELU TANH GELU GELU_ERF SWISH".split()
)
sigmoid_in_place, hard_sigmoid_in_place, relu_in_place, tanh_in_place, gelu_in_place = (
    _shorthand_in_place(NonLinearityType[kind])
    for kind in "SIGMOID HARD_SIGMOID RELU TANH GELU".split()
)
gelu_erf_in_place, swish_in_place = (
    _shorthand_in_place(NonLinearityType[kind]) for kind in ("GELU_ERF", "SWISH")
)


# -- registry ----------------------------------------------------------------------------------


def _reference(x: np.ndarray, *, kind: str) -> np.ndarray:
    return TABLE[NonLinearityType[kind]].reference(x.astype(np.float64)).astype(x.dtype)


def _gradient_reference(x: np.ndarray, gradient: np.ndarray, *, kind: str) -> np.ndarray:
    slope = TABLE[NonLinearityType[kind]].reference_slope(x.astype(np.float64))
    return (gradient.astype(np.float64) * slope).astype(x.dtype)


def _samples(element: Type, rng: np.random.Generator) -> Iterator[Sample]:
    shapes = [(3, 41), (1,), (2, 3, 5), (128,), (2, 9), (64, 2), (7,)]
    for kind, shape in zip(TABLE, shapes, strict=True):
        x = rng.normal(0, 2, shape).astype(element.dtype)
        yield Sample((x,), {"kind": kind.value})
    yield Sample((np.zeros((0, 3), element.dtype),), {"kind": "RELU"})


def _in_place_samples(element: Type, rng: np.random.Generator) -> Iterator[Sample]:
    for kind, shape in (("RELU", (5, 33)), ("TANH", (1,))):
        yield Sample((rng.normal(0, 2, shape).astype(element.dtype),), {"kind": kind})


def _gradient_samples(element: Type, rng: np.random.Generator) -> Iterator[Sample]:
    for sample in _samples(element, rng):
        x, kind = sample.inputs[0], str(sample.options["kind"])
        if not TABLE[NonLinearityType[kind]].from_input:
            x = _reference(x, kind=kind)
        yield Sample((x, rng.normal(0, 1, x.shape).astype(element.dtype)), {"kind": kind})


_X = np.ones((2, 3), np.float32)
TOLERANCE = {"FLOAT": 2e-5, "HALF": 2e-3}

register(Op(
    name="popnn.non_linearity",
    function=non_linearity,
    about="SIGMOID, HARD_SIGMOID, RELU, TANH, GELU, GELU_ERF or SWISH of every element.",
    types=(FLOAT, HALF), samples=_samples, reference=_reference, codelets=(value_codelet,),
    errors=(
        ErrorCase(Sample((_X,), {"kind": "RELUX"}), "there is no non-linearity 'RELUX'"),
        ErrorCase(Sample((_X.astype(np.int32),), {"kind": "RELU"}), "does not work on int"),
    ),
    tolerance=TOLERANCE,
))  # fmt: skip
register(Op(
    name="popnn.non_linearity_in_place",
    function=non_linearity_in_place,
    about="The same, written over the operand.",
    types=(FLOAT, HALF), samples=_in_place_samples, reference=_reference,
    codelets=(in_place_codelet,), tolerance=TOLERANCE, is_in_place=True,
))  # fmt: skip
register(Op(
    name="popnn.non_linearity_input_gradient",
    function=non_linearity_input_gradient,
    about="The gradient of a non-linearity's input from its activations and output gradient.",
    types=(FLOAT, HALF), samples=_gradient_samples, reference=_gradient_reference,
    codelets=(gradient_codelet, element_codelet),
    errors=(
        ErrorCase(Sample((_X, _X[:1]), {"kind": "RELU"}), "must have one shape and type"),
    ),
    tolerance=TOLERANCE,
))  # fmt: skip
