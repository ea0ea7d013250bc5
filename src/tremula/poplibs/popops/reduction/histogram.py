"""popops.histogram: how many elements lie between given levels."""

# Fields of codelets are annotated with values, which pyright cannot see as types.
# pyright: reportInvalidTypeForm=false

from collections.abc import Iterator
from typing import Any

import numpy as np

from tremula.base.source import user_source
from tremula.base.types import BOOL, FLOAT, HALF, UNSIGNED_INT, Type, uint32, uint64
from tremula.codelets import Input, Output, Vector, Vertex
from tremula.codelets.spec import CostView
from tremula.hardware import Chip
from tremula.poplar.graph import Graph
from tremula.poplar.programs import Sequence
from tremula.poplar.tensors.tensor import Tensor
from tremula.poplar.vertices.bulk import Slices
from tremula.poplibs.families import family
from tremula.poplibs.popops.reduction.codelets import reduce_vertex
from tremula.poplibs.popops.reduction.reduce import reduce
from tremula.poplibs.popops.row_parts import mapped_by
from tremula.poplibs.poputil import in_memory_order, split_between_workers, tile_regions
from tremula.poplibs.poputil.steps import run_vertices
from tremula.poplibs.registry import ErrorCase, Op, PoplibsError, Sample, register

# Worker slots: entry; per level and vector of elements a compare and an add of the masks; the
# stores of a level's count.
START_SLOTS, LEVEL_SLOTS, VECTOR_SLOTS = 30, 8, 3


@family
def histogram_vertex(T: Type) -> type:  # noqa: N803
    """Counts of elements below each level and above the last, of one worker's share."""

    class Histogram(Vertex):
        name = f"popops::Histogram<{T}>"
        provenance = "derived"
        values: Vector[Input[Vector[T]]]
        levels: Input[Vector[T]]
        counts: Output[Vector[uint32]]
        is_absolute: BOOL

        def compute(self: Any) -> None:
            n_all = 0
            for s in range(len(self.values)):
                n_all += len(self.values[s])
            n_before = 0
            for k in range(len(self.levels)):
                level = self.levels[k]
                n_below = 0
                for s in range(len(self.values)):
                    part = self.values[s]
                    for i in range(len(part)):
                        value = part[uint64(i)]
                        if self.is_absolute:
                            value = abs(value)
                        n_below += 1 if value < level else 0
                self.counts[k] = uint32(n_below - n_before)
                n_before = n_below
            self.counts[len(self.levels)] = uint32(n_all - n_before)

        @staticmethod
        def cycles(v: CostView, chip: Chip) -> np.ndarray:
            n_vectors = -(-v.sizes["values"] // chip.vector_width(T))
            per_level = LEVEL_SLOTS + VECTOR_SLOTS * n_vectors
            return START_SLOTS + v.sizes["levels"] * per_level

        @staticmethod
        def flops(v: CostView, chip: Chip) -> np.ndarray:  # noqa: ARG004
            return v.sizes["levels"] * v.sizes["values"] * T.is_floating

    return Histogram


def histogram(
    graph: Graph, tensor: Tensor, levels: Tensor, sequence: Sequence, name: str = "", *,
    absolute: bool = False,
) -> Tensor:  # fmt: skip
    """UNSIGNED_INT counts, one more than levels: below the first, …, from the last on.

    Levels ascend. With `absolute`, the sizes of elements are counted, not their signed values.
    """
    _check(tensor, levels)
    name = name or "histogram"
    flat, _ = in_memory_order(tensor, [])
    regions = tile_regions(graph, flat)
    grain = graph.target.vector_width(tensor.type)
    work = split_between_workers(regions, graph.target.n_worker_contexts, grain)
    n_vertices, n_counts = len(work.tile), levels.n_elems + 1
    sizes = np.full(n_vertices, n_counts)
    flat_counts = mapped_by(graph, UNSIGNED_INT, sizes, work.tile, f"{name}/counts")
    counts = flat_counts.reshape((n_vertices, n_counts))
    zeros = np.zeros(n_vertices, np.int64)
    if n_vertices:
        fields = {
            "values": Slices(flat, work.begin, work.end, work.start),
            "levels": Slices(levels, zeros, zeros + levels.n_elems),
            "counts": counts,
            "is_absolute": absolute,
        }
        run_vertices(graph, histogram_vertex(tensor.type), fields, work.tile, sequence, name)
    return reduce(graph, counts, [0], "ADD", sequence, f"{name}/sum")


def _check(tensor: Tensor, levels: Tensor) -> None:
    if tensor.type not in (FLOAT, HALF) or levels.type is not tensor.type or levels.rank != 1:
        raise PoplibsError(
            f"histogram got {tensor.type} and levels of {levels.type} with shape "
            f"{list(levels.shape)}, expected float or half and a vector of the same type.",
            source=user_source(),
            hint="cast the elements, and give the levels as a vector",
        )


def _samples(type: Type, rng: np.random.Generator) -> Iterator[Sample]:
    levels = np.array([-0.5, 0, 0.25, 1], type.dtype)
    for shape in ((300,), (7, 9), (1,), (0,)):
        yield Sample((rng.normal(size=shape).astype(type.dtype), levels))
    values = rng.normal(size=50).astype(type.dtype)
    yield Sample((values, np.array([0.5], type.dtype)), {"absolute": True})


def _reference(values: np.ndarray, levels: np.ndarray, absolute: bool = False) -> np.ndarray:
    values = np.abs(values) if absolute else values
    place = np.searchsorted(levels, values.ravel(), side="right")
    return np.bincount(place, minlength=len(levels) + 1).astype(np.uint32)


register(
    Op(
        name="popops.histogram",
        function=histogram,
        about="how many elements lie between given levels",
        types=(FLOAT, HALF),
        samples=_samples,
        reference=_reference,
        codelets=(histogram_vertex, reduce_vertex),
        errors=(
            ErrorCase(
                Sample((np.ones(3, np.int32), np.ones(2, np.float32))),
                "expected float or half and a vector of the same type",
            ),
        ),
    )
)
