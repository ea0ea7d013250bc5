"""fill and zero: one value in every element.

As a step of a program a fill is Poplar's copy of a constant, which becomes a memset of each
contiguous region, done by one worker. In a compute set with others it is PopLibs' Fill vertex: the
workers of a tile share its regions.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np

from tremula.base.source import user_source
from tremula.base.types import BOOL, QUARTER, Type
from tremula.codelets import Output, Vector, Vertex
from tremula.codelets.cost.slots import LAUNCH_CYCLES
from tremula.codelets.flops import no_flops
from tremula.codelets.spec import CostView
from tremula.hardware import Chip
from tremula.poplar.graph import Graph
from tremula.poplar.programs import Execute, Sequence
from tremula.poplar.tensors.tensor import Tensor
from tremula.poplar.vertices.bulk import Slices
from tremula.poplar.vertices.compute_set import ComputeSet
from tremula.poplibs.counts import ceil_div
from tremula.poplibs.families import family
from tremula.poplibs.popops.elementwise.costs import LoopCost
from tremula.poplibs.popops.elementwise.flat_codelets import FlatCodelet, make_flat
from tremula.poplibs.popops.elementwise.operations import ANY
from tremula.poplibs.popops.raw_words import as_words, word_type
from tremula.poplibs.popops.vertex_layout import aligned, spread_vertices
from tremula.poplibs.poputil import is_writeable, replayed, tile_regions
from tremula.poplibs.registry import ErrorCase, Op, PoplibsError, Sample, register

START_SLOTS = 26  # published: 23 to 26, then 64 bits per slot


@replayed
def fill(
    graph: Graph, tensor: Tensor, value: bool | int | float, sequence: Sequence, name: str = ""
) -> None:
    """Write a number to every element: PopLibs' Fill.cpp copies a constant."""
    words, bits = _words_to_fill(tensor, value)
    if not words.n_elems:
        return
    flat, _ = aligned(words, {})
    regions = tile_regions(graph, flat)
    compute_set = graph.add_compute_set(name or "fill")
    graph.add_vertices(
        compute_set,
        memset_codelet(words.type),
        {"out": Slices(flat, regions.begin, regions.end), "value": bits},
        tiles=regions.tile,
    )
    sequence.add(Execute(compute_set))


def zero(graph: Graph, tensor: Tensor, sequence: Sequence, name: str = "") -> None:
    """Write 0 to every element."""
    fill(graph, tensor, 0, sequence, name or "zero")


def zero_by_vertices(graph: Graph, tensor: Tensor, sequence: Sequence, name: str) -> None:
    """Write 0 to every element with vertices whose workers share it, as products zero partials."""
    compute_set = graph.add_compute_set(name)
    fill_in(graph, tensor, 0, compute_set)
    sequence.add(Execute(compute_set))


def fill_in(
    graph: Graph, tensor: Tensor, value: bool | int | float, compute_set: ComputeSet
) -> None:
    """The vertices of a fill, in a compute set that may hold others."""
    words, bits = _words_to_fill(tensor, value)
    if not words.n_elems:
        return
    flat, _ = aligned(words, {})
    spread_vertices(
        graph, compute_set, lambda is_multi: fill_codelet(words.type, is_multi), "out", flat, [],
        {"value": bits},
    )  # fmt: skip


def _words_to_fill(tensor: Tensor, value: bool | int | float) -> tuple[Tensor, int]:
    """A tensor as words, and the bits of each: types of one size share a codelet."""
    bits = bits_of(tensor.type, value)
    if not is_writeable(tensor):
        raise PoplibsError(
            f"{tensor!r} cannot be filled: it repeats an element or is constant.",
            source=user_source(),
            hint="fill a plain variable",
        )
    return as_words(tensor), bits


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


def memset_slots(n_elems: np.ndarray | int, n_bytes: int, chip: Chip) -> np.ndarray:
    """Slots of the one worker that fills a region: a copy without loads, one store in a slot.

    The first word takes as long as a copy of it does.
    """
    n_stores = ceil_div(n_elems, max(1, chip.store_bytes_per_cycle // n_bytes))
    return ceil_div(chip.one_word_copy_cycles, chip.n_workers) + n_stores - 1


@family
def memset_codelet(T: Type) -> type:  # noqa: N803
    """One value in a contiguous region."""

    class Memset(Vertex):
        name = f"poplar_rt::Memset<{T}>"
        provenance = "derived"
        out: Output[Vector[T]]  # pyright: ignore[reportInvalidTypeForm]
        value: T  # pyright: ignore[reportInvalidTypeForm]

        def compute(self: Any) -> None:
            for i in range(len(self.out)):
                self.out[i] = self.value

        @staticmethod
        def cycles(v: CostView, chip: Chip) -> np.ndarray:
            return memset_slots(v.sizes["out"], T.n_bytes, chip)

        flops = no_flops

    return Memset


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
        codelets=(memset_codelet,),
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
        codelets=(memset_codelet,),
        is_in_place=True,
    )
)
