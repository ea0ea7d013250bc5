"""Registry entries of all element-wise functions: samples in each operation's domain, errors."""

from collections.abc import Callable, Iterator

import numpy as np

from tremula.base.types import BOOL, FLOAT, HALF, INT, Type
from tremula.poplibs.popops.elementwise import functions as elementwise
from tremula.poplibs.popops.elementwise.codelets import element_codelet
from tremula.poplibs.popops.elementwise.operations import ELEMENT_OPS, ElementOp
from tremula.poplibs.registry import ErrorCase, Op, Sample, register

Random = np.random.Generator
N_SAMPLE = 33  # odd, more than a vector, fewer than would take long

# Where a float operation is defined and not too steep for a comparison; the default is (-4, 4).
_DOMAINS: dict[str, tuple[float, float]] = {
    "log": (0.1, 20.0), "log1p": (-0.7, 20.0), "sqrt": (0.0, 20.0), "rsqrt": (0.1, 20.0),
    "inv": (0.2, 20.0), "asin": (-0.99, 0.99), "tan": (-1.2, 1.2), "pow": (0.2, 3.0),
    "rem": (0.5, 9.0), "div": (0.5, 9.0), "round": (-9.0, 9.0), "nearbyint": (-9.0, 9.0),
    "variance_to_inv_std_dev": (0.1, 3.0), "inv_std_dev_to_variance": (0.2, 0.9),
}  # fmt: skip
# Values where rounding, ties and infinities go wrong first.
_EDGES: dict[str, tuple[float, ...]] = {
    "round": (0.5, -0.5, 1.5, -2.5, 0.0), "nearbyint": (0.5, -0.5, 1.5, -2.5, 0.0),
    "is_nan": (np.nan, np.inf, 0.0), "is_inf": (np.nan, np.inf, -np.inf),
    "is_finite": (np.nan, np.inf, 1.0), "cbrt": (0.0, -8.0, 27.0), "signum": (0.0, -1.0),
    "maximum": (np.nan, 1.0, -np.inf), "minimum": (np.nan, 1.0, np.inf),
}  # fmt: skip
# gelu_erf adds 1 and erf(x), which nearly cancel far below zero.
_TOLERANCES: dict[str, dict[str, float]] = {"gelu_erf": {"FLOAT": 5e-4}}
_SHIFTS = ("shift_left", "shift_right", "shift_right_sign_extend")
_NEVER_ZERO = ("div", "rem")


def values(
    op: ElementOp, type: Type, index: int, shape: tuple[int, ...], random: Random
) -> np.ndarray:
    """Random values of a type for operand `index` of an operation."""
    if type is BOOL or (op.name == "select" and index == 2):
        return random.random(shape) < 0.5
    if type.is_floating:
        low, high = _DOMAINS.get(op.name, (-4.0, 4.0))
        found = random.uniform(low, high, shape)
        edges = np.roll(_EDGES.get(op.name, ()), index)[: found.size]
        found.reshape(-1)[: len(edges)] = edges
        return found.astype(type.dtype)
    if op.name in _SHIFTS and index == 1:
        return random.integers(0, 8 * type.n_bytes, shape).astype(type.dtype)
    if op.name == "pow":
        return random.integers(0, 5, shape).astype(type.dtype)
    limits = np.iinfo(type.dtype)
    found = random.integers(limits.min, limits.max, shape, dtype=type.dtype, endpoint=True)
    if op.name in _NEVER_ZERO and index == 1:
        found = random.integers(1, 100, shape).astype(type.dtype)
    return found


def _samples(op: ElementOp) -> Callable[[Type, Random], Iterator[Sample]]:
    def samples(type: Type, random: Random) -> Iterator[Sample]:
        for shape in ((N_SAMPLE,), (1,), (0, 3)):
            yield _sample(op, type, [shape] * op.n_operands, random)
        if op.name == "add" and type in (FLOAT, HALF, INT):
            for other in ((9,), (5, 1), (), (1, 9)):
                yield _sample(op, type, [(5, 9), other], random)
                yield _sample(op, type, [other, (5, 9)], random)
            yield _sample(op, type, [(2, 3, 4), (3, 1)], random)
            yield _sample(op, type, [(5, 1), (1, 9)], random)

    return samples


def _sample(op: ElementOp, type: Type, shapes: list[tuple[int, ...]], random: Random) -> Sample:
    return Sample(tuple(values(op, type, i, s, random) for i, s in enumerate(shapes)))


def _reference(op: ElementOp) -> Callable[..., np.ndarray]:
    """NumPy's result in the type that the operation gives; ours wraps and does not warn."""

    def reference(*operands: np.ndarray) -> np.ndarray:
        with np.errstate(all="ignore"):
            found = np.asarray(op.numpy(*operands))
        return found if op.gives_bool else found.astype(operands[0].dtype)

    return reference


def _errors(op: ElementOp) -> tuple[ErrorCase, ...]:
    wrong = next((t for t in (BOOL, FLOAT, INT) if t not in op.types), None)
    cases = []
    if wrong is not None:
        operands = (np.ones(3, wrong.dtype),) * op.n_operands
        cases.append(ErrorCase(Sample(operands), f"{op.name} does not work on {wrong}"))
    if op.n_operands == 2 and FLOAT in op.types:
        mixed = (np.ones(3, np.float32), np.ones(3, np.float16))
        cases.append(ErrorCase(Sample(mixed), "must have the same type, got float and half"))
        unequal = (np.ones((2, 3), np.float32), np.ones((2, 4), np.float32))
        cases.append(ErrorCase(Sample(unequal), "shapes [2, 3] and [2, 4] do not fit together"))
    return tuple(cases)


for _op in ELEMENT_OPS.values():
    register(
        Op(
            name=f"popops.{_op.name}",
            function=getattr(elementwise, _op.name),
            about=_op.about,
            types=_op.types,
            samples=_samples(_op),
            reference=_reference(_op),
            codelets=(element_codelet,),
            errors=_errors(_op),
            tolerance=_TOLERANCES.get(_op.name, {}),
        )
    )
