"""fill and zero: one value in every element."""

from collections.abc import Iterator

import numpy as np

from tremula.base.source import user_source
from tremula.base.types import BOOL, QUARTER, Type
from tremula.poplar.graph import Graph
from tremula.poplar.programs import Execute, Sequence
from tremula.poplar.tensors.tensor import Tensor
from tremula.poplar.vertices.compute_set import ComputeSet
from tremula.poplibs.families import family
from tremula.poplibs.popops.elementwise.costs import LoopCost
from tremula.poplibs.popops.elementwise.flat_codelets import FlatCodelet, make_flat
from tremula.poplibs.popops.elementwise.operations import ANY
from tremula.poplibs.popops.raw_words import as_words, word_type
from tremula.poplibs.popops.vertex_layout import aligned, spread_vertices
from tremula.poplibs.poputil import is_writeable, replayed
from tremula.poplibs.registry import ErrorCase, Op, PoplibsError, Sample, register

START_SLOTS = 26  # published: 23 to 26, then 64 bits per slot
LAUNCH_CYCLES = 11


@replayed
def fill(
    graph: Graph, tensor: Tensor, value: bool | int | float, sequence: Sequence, name: str = ""
) -> None:
    """Write a number to every element."""
    compute_set = graph.add_compute_set(name or "fill")
    fill_in(graph, tensor, value, compute_set)
    sequence.add(Execute(compute_set))


def zero(graph: Graph, tensor: Tensor, sequence: Sequence, name: str = "") -> None:
    """Write 0 to every element."""
    fill(graph, tensor, 0, sequence, name or "zero")


def fill_in(
    graph: Graph, tensor: Tensor, value: bool | int | float, compute_set: ComputeSet
) -> None:
    """The vertices of a fill, in a compute set that may hold others."""
    bits = bits_of(tensor.type, value)
    if not is_writeable(tensor):
        raise PoplibsError(
            f"{tensor!r} cannot be filled: it repeats an element or is constant.",
            source=user_source(),
            hint="fill a plain variable",
        )
    if tensor.n_elems == 0:
        return
    words = as_words(tensor)  # a fill copies bits, so types of one size share a codelet
    flat, _ = aligned(words, {})
    spread_vertices(
        graph, compute_set, lambda is_multi: fill_codelet(words.type, is_multi), "out", flat, [],
        {"value": bits},
    )  # fmt: skip


def bits_of(type: Type, value: bool | int | float) -> int:
    """The bits of a number in a type, as an unsigned integer; an error if it does not fit."""
    if type is QUARTER and value != 0:
        raise PoplibsError(
            f"an 8-bit float tensor can only be filled with 0, got {value}.",
            source=user_source(),
            hint="fill a half tensor and cast it",
        )
    is_whole = type.dtype.kind in "iu"
    limits = np.iinfo(type.dtype) if is_whole else None
    if limits and not (value == int(value) and limits.min <= value <= limits.max):
        raise PoplibsError(
            f"{value} is not a valid {type}.",
            source=user_source(),
            hint=f"use a whole number from {limits.min} to {limits.max}",
        )
    return np.array(value).astype(type.dtype).view(word_type(type).dtype).item()


@family
def fill_codelet(type: Type, is_multi: bool) -> type:
    return make_flat(
        FlatCodelet(
            name=f"Fill<{type}>",
            provenance="published",
            vectors=(("out", "Output", type),),
            state=(("value", type),),
            lines=("out[i] = value",),
            sized_by="out",
            cost=LoopCost(
                LAUNCH_CYCLES if is_multi else 0, START_SLOTS, 1, stored_bytes=type.n_bytes
            ),
            flops=0,
        ),
        is_multi,
    )


# -- registry ----------------------------------------------------------------------------------


def _reference(x: np.ndarray, value: float = 0) -> np.ndarray:
    return np.full_like(x, value)


def _samples(type: Type, random: np.random.Generator) -> Iterator[Sample]:
    for shape in ((33,), (4, 5), (1,), (0,)):
        x = np.asarray(random.integers(0, 2, shape)).astype(type.dtype)
        yield Sample((x,), {"value": 1 if type is BOOL else 3})
    if type.is_floating:
        yield Sample((np.zeros(7, type.dtype),), {"value": -0.625})


def _zero_samples(type: Type, random: np.random.Generator) -> Iterator[Sample]:
    return (Sample(s.inputs) for s in _samples(type, random))


register(
    Op(
        name="popops.fill",
        function=fill,
        about="A number in every element, in place.",
        types=ANY,
        samples=_samples,
        reference=_reference,
        codelets=(fill_codelet,),
        is_in_place=True,
        errors=(
            ErrorCase(Sample((np.ones(3, np.int32),), {"value": 0.5}), "0.5 is not a valid int"),
            ErrorCase(
                Sample((np.ones(3, np.uint8),), {"value": 256}), "256 is not a valid unsigned char"
            ),
        ),
    )
)
register(
    Op(
        name="popops.zero",
        function=zero,
        about="0 in every element, in place.",
        types=ANY,
        samples=_zero_samples,
        reference=_reference,
        codelets=(fill_codelet,),
        is_in_place=True,
    )
)
