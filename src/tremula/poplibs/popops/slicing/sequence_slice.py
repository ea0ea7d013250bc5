"""popops.sequence_slice: copy runs of rows whose places and lengths are known only at run time."""

# Fields of codelets are annotated with values, which pyright cannot see as types.
# pyright: reportInvalidTypeForm=false

from collections.abc import Iterator
from typing import Any

import numpy as np

from tremula.base.source import user_source
from tremula.base.types import BOOL, FLOAT, HALF, INT, UNSIGNED_INT, Type, uint32, uint64
from tremula.codelets import InOut, Input, Vector, Vertex
from tremula.codelets.flops import no_flops
from tremula.codelets.spec import CostView
from tremula.hardware import Chip
from tremula.poplar.graph import Graph
from tremula.poplar.programs import Sequence
from tremula.poplar.tensors.tensor import Tensor
from tremula.poplar.vertices.bulk import Slices
from tremula.poplibs.families import family
from tremula.poplibs.poputil.steps import run_vertices
from tremula.poplibs.registry import ErrorCase, Op, PoplibsError, Sample, distinct_values, register

TYPES = (FLOAT, HALF, INT, UNSIGNED_INT)
# Worker slots: entry; the numbers of a sequence and its loops; a load and a store per vector.
START_SLOTS, SEQUENCE_SLOTS, ROW_SLOTS, VECTOR_SLOTS = 30, 20, 8, 2


@family
def sequence_slice_vertex(T: Type) -> type:  # noqa: N803
    """Copies the same columns of all runs of rows."""

    class SequenceSlice(Vertex):
        name = f"popops::SequenceSlice<{T}>"
        provenance = "derived"
        source: Vector[Input[Vector[T]]]
        out: Vector[InOut[Vector[T]]]
        n_rows: Input[Vector[uint32]]
        source_row: Input[Vector[uint32]]
        out_row: Input[Vector[uint32]]
        zeroes_rest: BOOL

        def compute(self: Any) -> None:
            if self.zeroes_rest:
                for r in range(len(self.out)):
                    row = self.out[r]
                    for i in range(len(row)):
                        row[i] = T(0)
            for s in range(len(self.n_rows)):
                for k in range(self.n_rows[s]):
                    first, to = self.source_row[s] + k, self.out_row[s] + k
                    if first < len(self.source) and to < len(self.out):
                        values, row = self.source[first], self.out[to]
                        for i in range(len(row)):
                            row[uint64(i)] = values[uint64(i)]

        @staticmethod
        def cycles(v: CostView, chip: Chip) -> np.ndarray:
            # Lengths are data: all rows of the output count as written once.
            n_vectors = -(-v.sizes["out"] // chip.vector_width(T))
            passes = 1 + v.state["zeroes_rest"].astype(np.int64) / 2
            rows = ROW_SLOTS * v.n_subs["out"] + VECTOR_SLOTS * n_vectors
            return START_SLOTS + SEQUENCE_SLOTS * v.sizes["n_rows"] + rows * passes

        flops = no_flops

    return SequenceSlice


def sequence_slice(  # noqa: PLR0917 - what PopLibs takes
    graph: Graph, source: Tensor, out: Tensor, n_rows: Tensor, source_row: Tensor, out_row: Tensor,
    sequence: Sequence, name: str = "", *, zero_unused: bool = False,
) -> None:  # fmt: skip
    """For each s, copy n_rows[s] rows of `source` from source_row[s] on to `out` at out_row[s].

    Rows outside either matrix are left out. `zero_unused` first clears `out`.
    """
    _check(source, out, (n_rows, source_row, out_row))
    if not out.n_elems:
        return
    n_cols, n_tiles = out.shape[1], graph.target.n_tiles
    grain = graph.target.vector_width(out.type)
    n_parts = min(n_tiles, -(-n_cols // grain))
    cuts = np.minimum(np.arange(n_parts + 1) * -(-n_cols // n_parts), n_cols)
    low, high = cuts[:-1][np.diff(cuts) > 0], cuts[1:][np.diff(cuts) > 0]
    indices = {"n_rows": n_rows, "source_row": source_row, "out_row": out_row}
    fields: dict[str, Any] = {
        "source": _columns(source, low, high),
        "out": _columns(out, low, high),
        "zeroes_rest": zero_unused,
    }
    for field, tensor in indices.items():
        fields[field] = Slices(tensor, np.zeros_like(low), np.zeros_like(low) + tensor.n_elems)
    vertex = sequence_slice_vertex(out.type)
    run_vertices(graph, vertex, fields, np.arange(len(low)), sequence, name or "sequence_slice")


def _columns(matrix: Tensor, low: np.ndarray, high: np.ndarray) -> Slices:
    """Columns [low, high) of every row, for each vertex."""
    n_rows, n_cols = matrix.shape
    base = np.arange(n_rows) * n_cols
    begin, end = ((base + cut[:, None]).ravel() for cut in (low, high))
    return Slices(matrix, begin, end, np.arange(len(low) + 1) * n_rows)


def _check(source: Tensor, out: Tensor, indices: tuple[Tensor, ...]) -> None:
    is_matrix = source.rank == out.rank == 2 and source.shape[1] == out.shape[1]
    if not is_matrix or source.type is not out.type or source.type not in TYPES:
        raise PoplibsError(
            f"sequence_slice got {source.type} of shape {list(source.shape)} and {out.type} of "
            f"shape {list(out.shape)}.",
            source=user_source(),
            hint="give two matrices of one type and with as many columns",
        )
    shapes = {t.shape for t in indices}
    if len(shapes) > 1 or any(t.type is not UNSIGNED_INT or t.rank != 1 for t in indices):
        raise PoplibsError(
            "sequence_slice needs lengths and places as three equally long vectors of unsigned "
            f"int, got {', '.join(f'{t.type} {list(t.shape)}' for t in indices)}.",
            source=user_source(),
            hint="reinterpret or cast them to UNSIGNED_INT",
        )


# -- registry --------------------------------------------------------------------------------------


def _on_out(  # noqa: PLR0917
    graph: Graph, source: Tensor, out: Tensor, n_rows: Tensor, source_row: Tensor, out_row: Tensor,
    sequence: Sequence, zero_unused: bool = False,
) -> Tensor:  # fmt: skip
    places = (n_rows, source_row, out_row)
    sequence_slice(graph, source, out, *places, sequence, zero_unused=zero_unused)
    return out


def _samples(type: Type, rng: np.random.Generator) -> Iterator[Sample]:
    def u32(*values: int) -> np.ndarray:
        return np.array(values, np.uint32)

    source, out = (distinct_values(type, shape, rng) for shape in ((12, 10), (9, 10)))
    places = (u32(3, 2), u32(5, 0), u32(0, 4))
    yield Sample((source, out, *places))
    yield Sample((source, out, *places), {"zero_unused": True})
    one = np.ones((1, 1), type.dtype)
    yield Sample((one, one * 2, u32(1), u32(0), u32(0)))
    yield Sample((source, out, u32(5), u32(10), u32(7)))


def _reference(
    source: np.ndarray, out: np.ndarray, n_rows: np.ndarray, source_row: np.ndarray,
    out_row: np.ndarray, zero_unused: bool = False,
) -> np.ndarray:  # fmt: skip
    result = np.zeros_like(out) if zero_unused else out.copy()
    for n, first, to in zip(n_rows.tolist(), source_row.tolist(), out_row.tolist(), strict=True):
        for k in range(n):
            if first + k < len(source) and to + k < len(out):
                result[to + k] = source[first + k]
    return result


_U = np.ones(2, np.uint32)
register(
    Op(
        name="popops.sequence_slice",
        function=_on_out,
        about="copy runs of rows whose places and lengths are data",
        types=TYPES,
        samples=_samples,
        reference=_reference,
        codelets=(sequence_slice_vertex,),
        errors=(
            ErrorCase(
                Sample((np.ones((2, 3), np.float32), np.ones((2, 4), np.float32), _U, _U, _U)),
                "two matrices of one type and with as many columns",
            ),
            ErrorCase(
                Sample((np.ones((2, 3), np.int32),) * 2 + (_U, _U, np.ones(3, np.uint32))),
                "three equally long vectors of unsigned int",
            ),
        ),
    )
)
