"""cast: every element as another type, 8-bit floats included."""

from collections.abc import Iterator
from functools import partial

import numpy as np

from tremula.base.floats import (
    QuarterFormat,
    float32_to_quarter,
    pack_metadata,
    quarter_to_float32,
    unpack_metadata,
)
from tremula.base.source import user_source
from tremula.base.types import (
    BOOL,
    CHAR,
    FLOAT,
    HALF,
    INT,
    LONGLONG,
    QUARTER,
    SHORT,
    SIGNED_CHAR,
    UNSIGNED_CHAR,
    UNSIGNED_INT,
    UNSIGNED_LONGLONG,
    UNSIGNED_SHORT,
    Type,
    as_type,
)
from tremula.poplar.graph import Graph
from tremula.poplar.programs import Sequence
from tremula.poplar.tensors.tensor import Tensor
from tremula.poplibs.families import family
from tremula.poplibs.popops.elementwise.costs import LoopCost
from tremula.poplibs.popops.elementwise.flat_codelets import FlatCodelet, make_flat
from tremula.poplibs.popops.elementwise.fused import converter
from tremula.poplibs.popops.vertex_layout import aligned, run_spread
from tremula.poplibs.poputil import clone_in_order, repeats_elements, replayed
from tremula.poplibs.registry import ErrorCase, Op, PoplibsError, Sample, register

TYPES = (
    FLOAT, HALF, QUARTER, INT, UNSIGNED_INT, SHORT, UNSIGNED_SHORT, SIGNED_CHAR, UNSIGNED_CHAR,
    CHAR, LONGLONG, UNSIGNED_LONGLONG, BOOL,
)  # fmt: skip
LAUNCH_CYCLES, START_SLOTS = 12, 37  # published, for the multi-worker casts
_BYTES = ("UNSIGNED_CHAR", "SIGNED_CHAR", "CHAR")
# Published: (slots, elements) per loop of the vectorised casts.
_LOOPS = {("FLOAT", "HALF"): (2, 4), ("HALF", "FLOAT"): (1, 2)}
_LOOPS |= {(byte, "HALF"): (9, 4) for byte in _BYTES} | {("HALF", byte): (16, 4) for byte in _BYTES}
# Published: 8-bit floats to and from half are as half to and from float; bytes take longer.
_LOOPS |= {
    ("QUARTER", "HALF"): (1, 2),
    ("HALF", "QUARTER"): (2, 4),
    ("QUARTER", "QUARTER"): (13, 8),
}
_LOOPS |= {("QUARTER", byte): (28, 8) for byte in _BYTES}
_LOOPS |= {(byte, "QUARTER"): (37, 8) for byte in _BYTES}
# Derived: to and from float they go through half.
_THROUGH_HALF = {("QUARTER", "FLOAT"): (4, 4), ("FLOAT", "QUARTER"): (4, 4)}
# What 8-bit floats are cast to and from.
_WITH_QUARTER = (FLOAT, HALF, QUARTER, UNSIGNED_CHAR, SIGNED_CHAR, CHAR)


@replayed
def cast(
    graph: Graph, tensor: Tensor, type: Type | str, sequence: Sequence, name: str = "",
    *, metadata: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """A new tensor of another type, mapped as the old one; QUARTER needs its metadata."""
    type = as_type(type)
    out = clone_as(graph, tensor, type, name or "cast", metadata)
    cast_with_output(graph, tensor, out, sequence, name)
    return out


def clone_as(
    graph: Graph, tensor: Tensor, type: Type, name: str, metadata: Tensor | None = None
) -> Tensor:
    """A tensor like another, of another type; a view that repeats elements becomes linear."""
    if (type is QUARTER) != (metadata is not None):
        need = "needs the metadata of its 8-bit floats" if type is QUARTER else "takes no metadata"
        raise PoplibsError(
            f"cast to {type} {need}.",
            source=user_source(),
            hint="give metadata=, a QUARTER_METADATA scalar, for QUARTER only",
        )
    if repeats_elements(tensor):
        return graph.add_variable(type, tensor.shape, name, mapping="linear", metadata=metadata)
    if metadata is None:
        return clone_in_order(graph, tensor, name, type=type)
    out = graph.add_variable(type, tensor.shape, name, metadata=metadata)
    graph.set_tile_mapping(out, graph.get_tile_mapping(tensor))
    return out


@replayed
def cast_with_output(
    graph: Graph, tensor: Tensor, out: Tensor, sequence: Sequence, name: str = ""
) -> None:
    """Write a tensor, converted, to another of its shape."""
    if tensor.shape != out.shape:
        raise PoplibsError(
            f"cast of shape {list(tensor.shape)} to an output of shape {list(out.shape)}.",
            source=user_source(),
            hint="both must have the same shape",
        )
    for type in (tensor.type, out.type):
        if type not in TYPES:
            raise PoplibsError(
                f"cast does not work on {type}.",
                source=user_source(),
                hint="it works on " + ", ".join(str(t) for t in TYPES),
            )
    if QUARTER in (tensor.type, out.type) and not {tensor.type, out.type} <= set(_WITH_QUARTER):
        raise PoplibsError(
            f"casting from {tensor.type} to {out.type} is not supported.",
            source=user_source(),
            hint="8-bit floats are cast from and to float, half, bytes and each other: cast twice",
        )
    if out.n_elems == 0:
        return
    flat, operands = aligned(out, {"x": tensor}, has_rows=False)
    codelet = partial(cast_codelet, tensor.type, out.type)
    run_spread(graph, codelet, "out", flat, operands, sequence, name or "cast")


@family
def cast_codelet(source: Type, target: Type, is_multi: bool) -> type:
    """Conversion as C does it: floats lose their fraction, integers wrap, bool is not 0."""
    names = source.name, target.name
    slots, width = (_LOOPS | _THROUGH_HALF).get(names, (2, 1))
    is_plain = QUARTER not in (source, target)
    line = f"out[i] = {converter(target)}(x[i])" if is_plain else "out[i] = x[i]"
    return make_flat(
        FlatCodelet(
            name=f"Cast<{source},{target}>",
            provenance="published" if names in _LOOPS else "derived",
            vectors=(("x", "Input", source), ("out", "Output", target)),
            lines=(line,),
            sized_by="out",
            cost=LoopCost(LAUNCH_CYCLES if is_multi else 0, START_SLOTS, slots, width),
            flops=0,
        ),
        is_multi,
    )


# -- registry ----------------------------------------------------------------------------------

_F143 = pack_metadata(QuarterFormat.F143, 0)
_F152 = pack_metadata(QuarterFormat.F152, 1)


def _cast_there(
    graph: Graph, tensor: Tensor, sequence: Sequence, *, to: Type, metadata: int = _F143
) -> Tensor:
    """Cast to `to`, and from an 8-bit float on to float, so that the metadata takes effect."""
    if to is not QUARTER:
        return cast(graph, tensor, to, sequence)
    byte = graph.add_constant("quarter_metadata", [], metadata, "metadata")
    small = cast(graph, tensor, QUARTER, sequence, metadata=byte)
    return cast(graph, small, FLOAT, sequence)


def _reference(x: np.ndarray, *, to: Type, metadata: int = _F143) -> np.ndarray:
    if to is QUARTER:
        form = unpack_metadata(metadata)
        return quarter_to_float32(float32_to_quarter(x.astype(np.float32), *form), *form)
    with np.errstate(all="ignore"):
        return x.astype(to.dtype)


def _samples(type: Type, random: np.random.Generator) -> Iterator[Sample]:
    x = (random.integers(0, 100, 33) if type is not BOOL else random.integers(0, 2, 33)).astype(
        type.dtype
    )
    if type.is_floating:
        x = random.uniform(-100, 100, 33).astype(type.dtype)
    signed = (FLOAT, HALF, INT) if type.is_floating or type is INT else (FLOAT, HALF, UNSIGNED_INT)
    for to in (*signed, BOOL, SHORT):
        yield Sample((x,), {"to": to})
    yield Sample((x[:0],), {"to": FLOAT})
    if type.is_floating:
        yield Sample((x.reshape(3, 11),), {"to": QUARTER, "metadata": _F143})
        yield Sample((x,), {"to": QUARTER, "metadata": _F152})


register(
    Op(
        name="popops.cast",
        function=_cast_there,
        about="Every element as another type.",
        types=tuple(t for t in TYPES if t not in (QUARTER, CHAR)),
        samples=_samples,
        reference=_reference,
        codelets=(cast_codelet,),
        errors=(
            ErrorCase(Sample((np.ones(3, np.float32),), {"to": as_type("quarter_metadata")}),
                      "cast does not work on quarter_metadata"),
        ),
    )
)  # fmt: skip
