"""Scaled sums in place: A += s·B, A -= s·B, A = x·A + y·B; scales are numbers or scalar tensors."""

from collections.abc import Iterator
from functools import partial

import numpy as np

from tremula.base.source import user_source
from tremula.base.types import FLOAT, HALF, INT, UNSIGNED_INT, Type
from tremula.hardware import PUBLISHED_DATA_PATH_BYTES
from tremula.poplar.graph import Graph
from tremula.poplar.programs import Sequence
from tremula.poplar.tensors.tensor import Tensor
from tremula.poplibs.families import family
from tremula.poplibs.popops.elementwise.costs import LoopCost
from tremula.poplibs.popops.elementwise.flat_codelets import FlatCodelet, make_flat
from tremula.poplibs.popops.elementwise.fused import converter
from tremula.poplibs.popops.vertex_layout import Form, Operand, aligned, run_spread
from tremula.poplibs.poputil import is_writeable, replayed
from tremula.poplibs.registry import ErrorCase, Op, PoplibsError, Sample, register

Scale = Tensor | int | float
FLOATS, INTS = (FLOAT, HALF), (INT, UNSIGNED_INT)
# Published: supervisor cycles, more for two scales and for a difference; then worker slots.
LAUNCH_CYCLES, TWO_SCALES_CYCLES, SUBTRACT_CYCLES = 57, 12, 7
START_SLOTS = 24
INT_LAUNCH_CYCLES = 73


@replayed
def scaled_add_to(
    graph: Graph, a: Tensor, b: Tensor, scale: Scale, sequence: Sequence, name: str = ""
) -> None:
    """A += scale · B. Half sums are formed in float32 and rounded once."""
    _add_scaled(graph, (a, b), {"scale_b": scale}, "add", sequence, name or "scaled_add")


@replayed
def scaled_subtract_from(
    graph: Graph, a: Tensor, b: Tensor, scale: Scale, sequence: Sequence, name: str = ""
) -> None:
    """A -= scale · B."""
    scales = {"scale_b": scale}
    _add_scaled(graph, (a, b), scales, "subtract", sequence, name or "scaled_subtract")


@replayed
def scaled_sum_to(
    graph: Graph, a: Tensor, scale_a: Scale, b: Tensor, scale_b: Scale, sequence: Sequence,
    name: str = "",
) -> None:  # fmt: skip
    """A = scale_a · A + scale_b · B."""
    scales = {"scale_a": scale_a, "scale_b": scale_b}
    _add_scaled(graph, (a, b), scales, "sum", sequence, name or "scaled_sum")


def _add_scaled(
    graph: Graph, tensors: tuple[Tensor, Tensor], scales: dict[str, Scale], kind: str,
    sequence: Sequence, name: str,
) -> None:  # fmt: skip
    a, b = tensors
    _check(a, b, kind)
    if a.n_elems == 0:
        return
    flat, operands = aligned(a, {"b": b}, has_rows=False)
    state: dict[str, object] = {}
    forms: list[Type | None] = []
    for field, scale in scales.items():
        if isinstance(scale, Tensor):
            operands.append(Operand(field, Form.SCALAR, _checked_scale(scale, a, kind)))
            forms.append(scale.type)
        else:
            state[field] = scale
            forms.append(None)
    codelet = partial(scaled_codelet, a.type, b.type, kind, tuple(forms))
    run_spread(graph, codelet, "a", flat, operands, sequence, name, state=state)


def _check(a: Tensor, b: Tensor, kind: str) -> None:
    fits = (a.type in FLOATS and b.type in FLOATS) or (a.type in INTS and b.type is a.type)
    if not fits:
        raise PoplibsError(
            f"scaled {kind} does not work on {a.type} and {b.type}.",
            source=user_source(),
            hint="use float or half for both, or int or unsigned int for both",
        )
    if a.shape != b.shape:
        raise PoplibsError(
            f"scaled {kind} needs equal shapes, got {list(a.shape)} and {list(b.shape)}.",
            source=user_source(),
            hint="broadcast the second: poputil.broadcast_view(b, a.shape)",
        )
    if not is_writeable(a):
        raise PoplibsError(
            f"{a!r} cannot be written: it repeats an element or is constant.",
            source=user_source(),
            hint="the first operand must be a plain variable",
        )


def _checked_scale(scale: Tensor, a: Tensor, kind: str) -> Tensor:
    fits = scale.type in FLOATS if a.type in FLOATS else scale.type is a.type
    if scale.n_elems == 1 and fits:
        return scale.flatten()
    raise PoplibsError(
        f"the scale of a scaled {kind} to {a.type} must be one float, half or {a.type}, got "
        f"{scale.type} of shape {list(scale.shape)}.",
        source=user_source(),
        hint="index one element, or cast it",
    )


@family
def scaled_codelet(
    a_type: Type, b_type: Type, kind: str, scales: tuple[Type | None, ...], is_multi: bool
) -> type:
    """`scales`: the type of each scale tensor, None for a number."""
    wide = FLOAT if a_type.is_floating else a_type
    names = ("scale_a", "scale_b")[-len(scales) :]
    as_wide = converter(wide)
    first = f"{as_wide}(a[i]) * scale_a" if kind == "sum" else f"{as_wide}(a[i])"
    sign = "-" if kind == "subtract" else "+"
    return make_flat(
        FlatCodelet(
            name=f"ScaledAdd<{a_type},{b_type},{kind},{','.join(str(s) for s in scales)}>",
            provenance="published",
            vectors=(("a", "InOut", a_type), ("b", "Input", b_type)),
            scalars=[(n, "Input", t) for n, t in zip(names, scales, strict=True) if t],
            state=[(n, wide) for n, t in zip(names, scales, strict=True) if t is None],
            before=[f"{n} = {as_wide}({n})" for n, t in zip(names, scales, strict=True) if t],
            lines=(
                f"a[i] = {converter(a_type)}({first} {sign} {as_wide}(b[i]) * scale_b)",
            ),
            sized_by="a",
            cost=_cost(a_type, b_type, kind, is_multi),
            flops=(1 + len(scales)) * a_type.is_floating,
        ),
        is_multi,
    )  # fmt: skip


def _cost(a_type: Type, b_type: Type, kind: str, is_multi: bool) -> LoopCost:
    if not a_type.is_floating:  # published: 26 slots for three elements
        return LoopCost(INT_LAUNCH_CYCLES if is_multi else 0, 0, 26, 3, is_vector=False)
    more = {"add": 0, "sum": TWO_SCALES_CYCLES, "subtract": SUBTRACT_CYCLES}[kind]
    slots, width = (3, PUBLISHED_DATA_PATH_BYTES // a_type.n_bytes) if a_type is b_type else (5, 4)
    return LoopCost(LAUNCH_CYCLES + more if is_multi else 0, START_SLOTS, slots, width)


# -- registry ----------------------------------------------------------------------------------


def _with_tensor_scale(
    graph: Graph, a: Tensor, b: Tensor, scale: Tensor, sequence: Sequence
) -> None:
    scaled_add_to(graph, a, b, scale, sequence)


def _sum(
    graph: Graph, a: Tensor, b: Tensor, sequence: Sequence, *, scale_a: float, scale_b: float
) -> None:
    scaled_sum_to(graph, a, scale_a, b, scale_b, sequence)


def _reference(a: np.ndarray, b: np.ndarray, scale: np.ndarray | float) -> np.ndarray:
    wide = np.float64 if a.dtype.kind == "f" else np.int64
    return (a.astype(wide) + np.asarray(scale).astype(wide) * b.astype(wide)).astype(a.dtype)


def _subtract_reference(a: np.ndarray, b: np.ndarray, scale: float) -> np.ndarray:
    return _reference(a, b, -scale)


def _sum_reference(a: np.ndarray, b: np.ndarray, scale_a: float, scale_b: float) -> np.ndarray:
    wide = np.float64 if a.dtype.kind == "f" else np.int64
    return (a.astype(wide) * scale_a + b.astype(wide) * scale_b).astype(a.dtype)


def _values(type: Type, n: int, random: np.random.Generator) -> np.ndarray:
    if type.is_floating:
        return random.uniform(-2, 2, n).astype(type.dtype)
    return random.integers(0, 50, n).astype(type.dtype)


def _pairs(type: Type, random: np.random.Generator) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    for n in (33, 1, 0):
        yield _values(type, n, random), _values(type, n, random)
    if type.is_floating:
        other = HALF if type is FLOAT else FLOAT
        yield _values(type, 20, random), _values(other, 20, random)


def _samples(type: Type, random: np.random.Generator) -> Iterator[Sample]:
    scale = 0.75 if type.is_floating else 3
    return (Sample(pair, {"scale": scale}) for pair in _pairs(type, random))


def _tensor_samples(type: Type, random: np.random.Generator) -> Iterator[Sample]:
    return (Sample((*pair, _values(type, 1, random))) for pair in _pairs(type, random))


def _sum_samples(type: Type, random: np.random.Generator) -> Iterator[Sample]:
    scales = (0.75, -0.5) if type.is_floating else (2, 3)
    options: dict[str, object] = {"scale_a": scales[0], "scale_b": scales[1]}
    return (Sample(pair, options) for pair in _pairs(type, random))


_FLOAT_AND_INT = (np.ones(3, np.float32), np.ones(3, np.int32))
_UNEQUAL = (np.ones(3, np.float32), np.ones(4, np.float32))

for _name, _function, _about, _draw, _right in (
    ("scaled_add_to", scaled_add_to, "A += scale · B.", _samples, _reference),
    ("scaled_subtract_from", scaled_subtract_from, "A -= scale · B.", _samples,
     _subtract_reference),
    ("scaled_sum_to", _sum, "A = scale_a · A + scale_b · B.", _sum_samples,
     _sum_reference),
    ("scaled_add_to (tensor scale)", _with_tensor_scale, "A += scale · B, scale a tensor.",
     _tensor_samples, _reference),
):  # fmt: skip
    _options: dict[str, float] | None = {
        "scaled_sum_to": {"scale_a": 1.0, "scale_b": 1.0}, "scaled_add_to (tensor scale)": None,
    }.get(_name, {"scale": 1.0})  # fmt: skip
    _scale = (np.ones(1, np.float32),) if _options is None else ()
    register(
        Op(
            name=f"popops.{_name}",
            function=_function,
            about=_about,
            types=(*FLOATS, *INTS),
            samples=_draw,
            reference=_right,
            codelets=(scaled_codelet,),
            is_in_place=True,
            errors=(
                ErrorCase(
                    Sample((*_FLOAT_AND_INT, *_scale), _options or {}),
                    "does not work on float and int",
                ),
                ErrorCase(Sample((*_UNEQUAL, *_scale), _options or {}), "needs equal shapes"),
            ),
        )
    )
