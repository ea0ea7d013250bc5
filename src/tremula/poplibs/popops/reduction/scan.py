"""popops.scan: running sums and products along a dimension, each tile's share at once.

Where a row lies on several tiles, they first reduce their parts, one tile turns these totals into
what each part starts from, and then every tile scans its part.
"""

# Fields of codelets are annotated with values, which pyright cannot see as types.
# pyright: reportInvalidTypeForm=false

from collections.abc import Iterator
from typing import Any

import numpy as np

from tremula.base.errors import suggest
from tremula.base.source import user_source
from tremula.base.types import BOOL, FLOAT, HALF, INT, UNSIGNED_INT, Type
from tremula.codelets import Input, Output, Vector, Vertex
from tremula.codelets.flops import flops_per_element
from tremula.codelets.spec import CostView
from tremula.hardware import Chip
from tremula.poplar.graph import Graph
from tremula.poplar.programs import Sequence
from tremula.poplar.tensors.tensor import Tensor
from tremula.poplar.tensors.tile_map import TileMapping
from tremula.poplar.vertices.bulk import Slices
from tremula.poplibs.families import family
from tremula.poplibs.popops.reduction.codelets import (
    PLAIN,
    accumulator_type,
    reduce_vertex,
)
from tremula.poplibs.popops.reduction.operations import REDUCE_OPS
from tremula.poplibs.popops.row_parts import RowParts, as_rows, checked_dim, one_each, row_parts
from tremula.poplibs.poputil import clone_in_order, replayed
from tremula.poplibs.poputil.steps import run_vertices
from tremula.poplibs.registry import ErrorCase, Op, PoplibsError, Sample, register, sample_values

TYPES = (FLOAT, HALF, INT, UNSIGNED_INT)
# Worker slots: entry and exit; load, operation and store of each element, one after the other.
START_SLOTS, ELEMENT_SLOTS = 20, 3
Ints = np.ndarray


@family
def scan_vertex(operation: str, T: Type) -> type:  # noqa: N803
    """A running sum or product that starts from a given value."""
    Acc = accumulator_type(operation, T)  # noqa: N806
    is_sum = operation == "ADD"

    class Scan(Vertex):
        name = f"popops::Scan<{operation},{T}>"
        provenance = "derived"
        values: Input[Vector[T]]
        start: Input[Acc]
        out: Output[Vector[T]]
        is_exclusive: BOOL

        def compute(self: Any) -> None:
            total = self.start
            for i in range(len(self.out)):
                before = total
                value = Acc(self.values[i])
                total = total + value if is_sum else total * value
                self.out[i] = T(before if self.is_exclusive else total)

        @staticmethod
        def cycles(v: CostView, chip: Chip) -> np.ndarray:  # noqa: ARG004
            return START_SLOTS + ELEMENT_SLOTS * v.sizes["out"]

        flops = flops_per_element("out", 1, T)

    return Scan


@replayed
def scan(
    graph: Graph,
    tensor: Tensor,
    dim: int,
    operation: str,
    sequence: Sequence,
    name: str = "",
    *,
    exclusive: bool = False,
    reverse: bool = False,
) -> Tensor:
    """Running ADD or MUL along a dimension; `exclusive` leaves each element itself out.

    Halves are summed as floats and rounded when stored.
    """
    dim = checked_dim("scan", tensor, dim)
    if operation not in ("ADD", "MUL"):
        raise PoplibsError(
            f"scan has no operation {operation!r}.",
            source=user_source(),
            hint=suggest(str(operation), ["ADD", "MUL"]),
        )
    if tensor.type not in TYPES:
        raise PoplibsError(
            f"scan does not work on {tensor.type}.",
            source=user_source(),
            hint="it works on " + ", ".join(str(t) for t in TYPES),
        )
    name = name or "scan"
    out = clone_in_order(graph, tensor, f"{name}/out")
    if tensor.n_elems:
        values, results = (as_rows(t.reverse(dim) if reverse else t, dim) for t in (tensor, out))
        _scan_rows(graph, values, results, operation, exclusive, sequence, name)
    return out


def _scan_rows(
    graph: Graph, values: Tensor, out: Tensor, operation: str, is_exclusive: bool,
    sequence: Sequence, name: str,
) -> None:  # fmt: skip
    parts = row_parts(graph, out)
    is_cut = len(parts.row) > values.shape[0]
    acc = accumulator_type(operation, values.type)
    start = one_each(graph, acc, parts.tile, f"{name}/start") if is_cut else None
    if start is not None:
        _starts_of_parts(graph, values, parts, operation, start, sequence, name)
    else:
        identity = REDUCE_OPS[operation].identity_of(acc)
        start = graph.add_constant(acc, [len(parts.tile)], identity)
        at = np.arange(len(parts.tile))
        mapping = TileMapping(at, at + 1, parts.tile, graph.target.n_tiles)
        graph.set_tile_mapping(start, mapping)
    fields = {
        "values": Slices(values, parts.begin, parts.end),
        "start": start,
        "out": Slices(out, parts.begin, parts.end),
        "is_exclusive": is_exclusive,
    }
    run_vertices(graph, scan_vertex(operation, values.type), fields, parts.tile, sequence, name)


def _starts_of_parts(
    graph: Graph, values: Tensor, parts: RowParts, operation: str, start: Tensor,
    sequence: Sequence, name: str,
) -> None:  # fmt: skip
    """What each part of a row starts from: the scan, without itself, of the parts' totals."""
    acc = start.type
    n = len(parts.tile)
    totals = one_each(graph, acc, parts.tile, f"{name}/totals")
    fields = {
        "parts": Slices(values, parts.begin, parts.end, np.arange(n + 1)),
        "out": totals.reshape((n, 1)),
        "is_inner": True,
    }
    vertex = reduce_vertex(operation, values.type, acc, False, PLAIN)
    run_vertices(graph, vertex, fields, parts.tile, sequence, f"{name}/totals")
    first = np.searchsorted(parts.row, np.arange(values.shape[0] + 1))
    n_rows = values.shape[0]
    identity = graph.add_constant(acc, [], REDUCE_OPS[operation].identity_of(acc))
    fields = {
        "values": Slices(totals, first[:-1], first[1:]),
        "start": identity.reshape((1,)).broadcast(n_rows),
        "out": Slices(start, first[:-1], first[1:]),
        "is_exclusive": True,
    }
    tiles = parts.tile[first[:-1]]
    run_vertices(graph, scan_vertex(operation, acc), fields, tiles, sequence, f"{name}/starts")


def cumulative_sum(
    graph: Graph, tensor: Tensor, dim: int, sequence: Sequence, name: str = "", *,
    exclusive: bool = False, reverse: bool = False,
) -> Tensor:  # fmt: skip
    """Running sums along a dimension."""
    return scan(
        graph, tensor, dim, "ADD", sequence, name, exclusive=exclusive, reverse=reverse
    )  # fmt: skip


def cumulative_product(
    graph: Graph, tensor: Tensor, dim: int, sequence: Sequence, name: str = "", *,
    exclusive: bool = False, reverse: bool = False,
) -> Tensor:  # fmt: skip
    """Running products along a dimension."""
    return scan(
        graph, tensor, dim, "MUL", sequence, name, exclusive=exclusive, reverse=reverse
    )  # fmt: skip


# -- registry --------------------------------------------------------------------------------------


def _samples(type: Type, rng: np.random.Generator) -> Iterator[Sample]:
    shapes = (((40,), 0), ((3, 50), 1), ((50, 3), 0), ((2, 5, 4), 1), ((1,), 0), ((2, 0), 1))
    for number, (shape, dim) in enumerate(shapes):
        operation = ("ADD", "MUL")[number % 2] if shape[dim] < 10 else "ADD"
        options: dict[str, object] = {"dim": dim, "operation": operation}
        options |= {"exclusive": bool(number & 1), "reverse": bool(number & 2)}
        yield Sample((sample_values(type, shape, rng),), options)


def _reference(
    values: np.ndarray, dim: int, operation: str, exclusive: bool, reverse: bool
) -> np.ndarray:
    wide = values.astype(np.float64 if values.dtype.kind == "f" else np.int64)
    wide = np.flip(wide, dim) if reverse else wide
    ufunc, identity = (np.add, 0) if operation == "ADD" else (np.multiply, 1)
    result = ufunc.accumulate(wide, axis=dim)
    if exclusive and values.size:
        head = np.full_like(np.take(result, [0], dim), identity)
        result = np.concatenate((head, np.delete(result, -1, dim)), dim)
    return (np.flip(result, dim) if reverse else result).astype(values.dtype)


register(
    Op(
        name="popops.scan",
        function=scan,
        about="running sums and products along a dimension",
        types=TYPES,
        samples=_samples,
        reference=_reference,
        codelets=(scan_vertex, reduce_vertex),
        errors=(
            ErrorCase(
                Sample((np.ones(3, np.float32),), {"dim": 1, "operation": "ADD"}),
                "scan got dimension 1 of a tensor of shape [3]",
            ),
            ErrorCase(
                Sample((np.ones(3, np.float32),), {"dim": 0, "operation": "MAX"}),
                "scan has no operation 'MAX'",
            ),
            ErrorCase(
                Sample((np.ones(3, bool),), {"dim": 0, "operation": "ADD"}),
                "scan does not work on bool",
            ),
        ),
        tolerance={"FLOAT": 1e-5, "HALF": 2e-3},
    )
)
