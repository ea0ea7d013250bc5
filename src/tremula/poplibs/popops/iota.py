"""iota: start, start + 1, … in the order of a tensor; and one-hot rows from indices."""

# Fields of codelets are annotated with values, which pyright cannot see as types.
# pyright: reportInvalidTypeForm=false

from collections.abc import Iterator
from typing import Any

import numpy as np

from tremula.base.source import user_source
from tremula.base.types import BOOL, FLOAT, HALF, INT, UNSIGNED_INT, Type
from tremula.codelets import Input, Output, Vector, Vertex
from tremula.codelets.flops import no_flops
from tremula.codelets.spec import CostView
from tremula.hardware import Chip
from tremula.poplar.graph import Graph
from tremula.poplar.programs import Sequence
from tremula.poplar.tensors.tensor import Tensor
from tremula.poplar.vertices.bulk import Slices
from tremula.poplibs.counts import ceil_div
from tremula.poplibs.families import family
from tremula.poplibs.popops.vertex_layout import worker_pieces
from tremula.poplibs.poputil import broadcast_view, pattern_of, replayed, tile_regions
from tremula.poplibs.poputil.steps import run_vertices
from tremula.poplibs.registry import ErrorCase, Op, PoplibsError, Sample, register

IOTA_TYPES = (INT, UNSIGNED_INT, FLOAT, HALF)
ONE_HOT_TYPES = (FLOAT, HALF, INT, UNSIGNED_INT, BOOL)
INDEX_TYPES = (UNSIGNED_INT, INT)
START_SLOTS = 20  # derived: same as a broadcast of a scalar


@replayed
def iota(
    graph: Graph, tensor: Tensor, sequence: Sequence, name: str = "", *, start: int = 0
) -> None:
    """Write start, start + 1, … to a vector, in place."""
    if tensor.rank != 1 or tensor.type not in IOTA_TYPES:
        raise PoplibsError(
            f"iota works on a vector of int, unsigned int, float or half, got {tensor.type} of "
            f"shape {list(tensor.shape)}.",
            source=user_source(),
            hint="flatten() the tensor",
        )
    if tensor.n_elems == 0:
        return
    work = worker_pieces(graph, tile_regions(graph, tensor), [], tensor.type)
    run_vertices(
        graph,
        iota_codelet(tensor.type),
        {"out": Slices(tensor, work.begin, work.end), "start": work.begin + start},
        work.tile_of_slice,
        sequence,
        name or "iota",
    )


@family
def iota_codelet(element: Type) -> type:
    class Iota(Vertex):
        name = f"popops::Iota<{element}>"
        provenance = "derived"
        out: Output[Vector[element]]
        start: INT

        def compute(self: Any) -> None:
            out = self.out
            start = self.start
            for i in range(len(out)):
                out[i] = element(start + i)

        @staticmethod
        def cycles(v: CostView, chip: Chip) -> np.ndarray:  # noqa: ARG004
            return START_SLOTS + 2 * v.sizes["out"]

        flops = no_flops

    return Iota


@replayed
def encode_one_hot(
    graph: Graph,
    indices: Tensor,
    encoded: Tensor,
    sequence: Sequence,
    name: str = "",
    *,
    on: float = 1,
    off: float = 0,
) -> None:
    """Write `on` at encoded[i, indices[i]], `off` elsewhere; rows of bad indices are all off."""
    if indices.type not in INDEX_TYPES or encoded.type not in ONE_HOT_TYPES:
        raise PoplibsError(
            f"encode_one_hot does not work on indices of {indices.type} and a result of "
            f"{encoded.type}.",
            source=user_source(),
            hint="indices are unsigned int or int; the result float, half, int, unsigned int, bool",
        )
    if encoded.rank != indices.rank + 1 or encoded.shape[:-1] != indices.shape:
        raise PoplibsError(
            f"indices of shape {list(indices.shape)} encode to [*shape, classes], got "
            f"{list(encoded.shape)}.",
            source=user_source(),
            hint="add one dimension for the classes at the end",
        )
    if encoded.n_elems:
        _add_one_hot(graph, indices, encoded, (on, off), sequence, name or "encodeOneHot")


def _add_one_hot(
    graph: Graph, indices: Tensor, encoded: Tensor, values: tuple, sequence: Sequence, name: str
) -> None:
    n_classes = encoded.shape[-1]
    flat = encoded.flatten()
    pattern = pattern_of(broadcast_view(indices.expand([indices.rank]), encoded.shape))
    patterns = [pattern] if pattern is not None else []
    work = worker_pieces(graph, tile_regions(graph, flat), patterns, encoded.type)
    row = work.begin // n_classes
    n_rows = np.maximum(1, (work.end - work.begin) // n_classes)
    run_vertices(
        graph,
        one_hot_codelet(indices.type, encoded.type),
        {
            "indices": Slices(indices.flatten(), row, row + n_rows),
            "out": Slices(flat, work.begin, work.end),
            "first": work.begin % n_classes,
            "on": values[0],
            "off": values[1],
        },
        work.tile_of_slice,
        sequence,
        name,
    )


@family
def one_hot_codelet(index: Type, element: Type) -> type:
    class EncodeOneHot(Vertex):
        """Whole rows, or columns `first` … of one row."""

        name = f"popops::EncodeOneHot<{index},{element}>"
        provenance = "derived"
        indices: Input[Vector[index]]
        out: Output[Vector[element]]
        first: UNSIGNED_INT
        on: FLOAT
        off: FLOAT

        def compute(self: Any) -> None:
            out = self.out
            indices = self.indices
            on = element(self.on)
            off = element(self.off)
            n_cols = len(out) // len(indices)
            for row in range(len(indices)):
                hot = indices[row] - self.first
                for col in range(n_cols):
                    out[row * n_cols + col] = on if col == hot else off

        @staticmethod
        def cycles(v: CostView, chip: Chip) -> np.ndarray:
            # Derived: 64 bits of `off` per slot, then one store of `on` per row.
            n_vectors = ceil_div(v.sizes["out"] * element.n_bytes, chip.data_path_bytes)
            return START_SLOTS + n_vectors + 8 * v.sizes["indices"]

        flops = no_flops

    return EncodeOneHot


# -- registry ----------------------------------------------------------------------------------


def _iota_reference(x: np.ndarray, start: int = 0) -> np.ndarray:
    return (start + np.arange(x.size)).astype(x.dtype)


def _iota_samples(type: Type, random: np.random.Generator) -> Iterator[Sample]:  # noqa: ARG001
    for n in (33, 1, 0):
        yield Sample((np.zeros(n, type.dtype),), {"start": 5})
    yield Sample((np.zeros(100, type.dtype),))


def _one_hot(
    graph: Graph, encoded: Tensor, indices: Tensor, sequence: Sequence, *, on: float = 1,
    off: float = 0,
) -> None:  # fmt: skip
    encode_one_hot(graph, indices, encoded, sequence, on=on, off=off)


def _one_hot_reference(
    encoded: np.ndarray, indices: np.ndarray, on: float = 1, off: float = 0
) -> np.ndarray:
    is_on = indices[..., None] == np.arange(encoded.shape[-1])
    return np.where(is_on, on, off).astype(encoded.dtype)


def _one_hot_samples(type: Type, random: np.random.Generator) -> Iterator[Sample]:
    for shape, n_classes in (((7,), 5), ((2, 3), 9), ((1,), 1), ((0,), 4)):
        indices = random.integers(0, n_classes + 1, shape).astype(np.uint32)
        yield Sample((np.zeros((*shape, n_classes), type.dtype), indices))
    if type.is_floating:
        indices = np.array([2, -1, 0], np.int32)
        yield Sample((np.zeros((3, 4), type.dtype), indices), {"on": 0.75, "off": 0.125})


register(
    Op(
        name="popops.iota",
        function=iota,
        about="start, start + 1, … in a vector, in place.",
        types=IOTA_TYPES,
        samples=_iota_samples,
        reference=_iota_reference,
        codelets=(iota_codelet,),
        is_in_place=True,
        errors=(ErrorCase(Sample((np.zeros((2, 3), np.int32),)), "iota works on a vector"),),
    )
)
register(
    Op(
        name="popops.encode_one_hot",
        function=_one_hot,
        about="`on` where the last index is the given one, `off` elsewhere; to a given tensor.",
        types=ONE_HOT_TYPES,
        samples=_one_hot_samples,
        reference=_one_hot_reference,
        codelets=(one_hot_codelet,),
        is_in_place=True,
        errors=(
            ErrorCase(
                Sample((np.zeros((2, 3), np.float32), np.zeros(3, np.uint32))),
                "indices of shape [3] encode to",
            ),
            ErrorCase(
                Sample((np.zeros((2, 3), np.float32), np.zeros(2, np.float32))),
                "does not work on indices of float",
            ),
        ),
    )
)
