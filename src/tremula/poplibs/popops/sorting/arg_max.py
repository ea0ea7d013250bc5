"""popops.arg_max, arg_min, …: the largest or smallest element of each row, and where it is.

Every tile finds the best of the parts of rows it holds; where a row lies on several tiles, one of
them compares what they found, for each row another. Where it lies on many, groups of them do, then
one tile the groups. Of equal elements the first counts.
"""

# Fields of codelets are annotated with values, which pyright cannot see as types.
# pyright: reportInvalidTypeForm=false

from collections.abc import Iterator
from typing import Any

import numpy as np

from tremula.base.source import user_source
from tremula.base.types import BOOL, FLOAT, HALF, INT, UNSIGNED_INT, Type, uint32
from tremula.codelets import Input, Output, Vector, Vertex
from tremula.codelets.flops import flops_per_element
from tremula.codelets.spec import CostView
from tremula.hardware import Chip
from tremula.poplar.graph import Graph
from tremula.poplar.programs import Sequence
from tremula.poplar.tensors.tensor import Tensor
from tremula.poplar.vertices.bulk import Slices
from tremula.poplibs.families import family
from tremula.poplibs.popops.row_parts import as_rows, one_each, row_parts
from tremula.poplibs.poputil import replayed
from tremula.poplibs.poputil.steps import run_vertices
from tremula.poplibs.registry import ErrorCase, Op, PoplibsError, Sample, distinct_values, register

Ints = np.ndarray
TYPES = (FLOAT, HALF, INT, UNSIGNED_INT)
# Worker slots: entry and exit; per element load, compare, and select of value and place.
START_SLOTS, ELEMENT_SLOTS = 20, 4
# From here on a second gather stage, with its sync, is shorter than comparing all at once.
MOST_AT_ONCE = 64


@family
def extreme_vertex(T: Type) -> type:  # noqa: N803
    """The best of a part of a row, by value and place."""

    class Extreme(Vertex):
        name = f"popops::ArgExtreme<{T}>"
        provenance = "derived"
        values: Input[Vector[T]]
        best: Output[T]
        place: Output[uint32]
        first_place: uint32
        finds_smallest: BOOL

        def compute(self: Any) -> None:
            best, result = self.values[0], 0
            for i in range(1, len(self.values)):
                value = self.values[i]
                if (value < best) if self.finds_smallest else (best < value):
                    best, result = value, i
            self.best = best
            self.place = uint32(self.first_place + result)

        @staticmethod
        def cycles(v: CostView, chip: Chip) -> np.ndarray:  # noqa: ARG004
            return START_SLOTS + ELEMENT_SLOTS * v.sizes["values"]

        flops = flops_per_element("values", 1, T)

    return Extreme


@family
def best_vertex(T: Type) -> type:  # noqa: N803
    """The best of what several tiles found."""

    class BestOf(Vertex):
        name = f"popops::ArgExtremeOfParts<{T}>"
        provenance = "derived"
        values: Input[Vector[T]]
        places: Input[Vector[uint32]]
        best: Output[T]
        place: Output[uint32]
        finds_smallest: BOOL

        def compute(self: Any) -> None:
            best, result = self.values[0], 0
            for i in range(1, len(self.values)):
                value = self.values[i]
                if (value < best) if self.finds_smallest else (best < value):
                    best, result = value, i
            self.best = best
            self.place = self.places[result]

        @staticmethod
        def cycles(v: CostView, chip: Chip) -> np.ndarray:  # noqa: ARG004
            return START_SLOTS + ELEMENT_SLOTS * v.sizes["values"]

        flops = flops_per_element("values", 1, T)

    return BestOf


@replayed
def arg_max(graph: Graph, tensor: Tensor, sequence: Sequence, name: str = "") -> Tensor:
    """UNSIGNED_INT places of the largest elements of the last dimension."""
    return _extremes(graph, tensor, False, sequence, name or "arg_max")[1]


@replayed
def arg_min(graph: Graph, tensor: Tensor, sequence: Sequence, name: str = "") -> Tensor:
    """UNSIGNED_INT places of the smallest elements of the last dimension."""
    return _extremes(graph, tensor, True, sequence, name or "arg_min")[1]


@replayed
def max_and_arg_max(
    graph: Graph, tensor: Tensor, sequence: Sequence, name: str = ""
) -> tuple[Tensor, Tensor]:
    """The largest elements of the last dimension, and their places."""
    return _extremes(graph, tensor, False, sequence, name or "max_and_arg_max")


@replayed
def min_and_arg_min(
    graph: Graph, tensor: Tensor, sequence: Sequence, name: str = ""
) -> tuple[Tensor, Tensor]:
    """The smallest elements of the last dimension, and their places."""
    return _extremes(graph, tensor, True, sequence, name or "min_and_arg_min")


def _extremes(
    graph: Graph, tensor: Tensor, finds_smallest: bool, sequence: Sequence, name: str
) -> tuple[Tensor, Tensor]:
    _check(tensor, name)
    shape = tensor.shape[:-1]
    if 0 in shape:
        return graph.add_variable(tensor.type, shape), graph.add_variable(UNSIGNED_INT, shape)
    rows = as_rows(tensor, tensor.rank - 1)
    parts = row_parts(graph, rows)
    best = one_each(graph, tensor.type, parts.tile, f"{name}/best")
    place = one_each(graph, UNSIGNED_INT, parts.tile, f"{name}/place")
    fields: dict[str, Any] = {
        "values": Slices(rows, parts.begin, parts.end), "best": best, "place": place,
        "first_place": parts.begin - parts.row * rows.shape[1], "finds_smallest": finds_smallest,
    }  # fmt: skip
    run_vertices(graph, extreme_vertex(tensor.type), fields, parts.tile, sequence, name)
    row, tile = parts.row, parts.tile
    while len(row) > rows.shape[0]:
        first = _meetings(row)
        row, tile = row[first[:-1]], _meeting_tiles(tile, first)
        best, place = _best_of(graph, (best, place), first, tile, finds_smallest, sequence, name)
    return best.reshape(shape), place.reshape(shape)


def _meetings(row: Ints) -> Ints:
    """int64[n + 1]: where the parts begin, of rows in order, that are gathered on one tile.

    Those of a row, or groups of them if they are many: a row of a wide output layer is on all
    tiles, and one of them would spend most of the time, and much code, to receive from all others.
    """
    begin = np.searchsorted(row, row)
    n_parts = np.searchsorted(row, row, side="right") - begin
    size = np.where(n_parts > MOST_AT_ONCE, np.ceil(np.sqrt(n_parts)).astype(np.int64), n_parts)
    starts = (np.arange(len(row)) - begin) % size == 0
    return np.append(np.flatnonzero(starts), len(row))


def _best_of(
    graph: Graph, bests: tuple[Tensor, Tensor], first: Ints, tiles: Ints, finds_smallest: bool,
    sequence: Sequence, name: str,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """The results of several tiles are gathered on one of them."""
    best, place = bests
    results = (
        one_each(graph, best.type, tiles, f"{name}/best"),
        one_each(graph, UNSIGNED_INT, tiles, f"{name}/place"),
    )
    fields = {
        "values": Slices(best, first[:-1], first[1:]),
        "places": Slices(place, first[:-1], first[1:]),
        "best": results[0], "place": results[1], "finds_smallest": finds_smallest,
    }  # fmt: skip
    run_vertices(graph, best_vertex(best.type), fields, tiles, sequence, f"{name}/parts")
    return results


def _meeting_tiles(tile_of_part: Ints, first: Ints) -> Ints:
    """int64[n_rows]: rows that begin on one tile are gathered on their first, second, … in turn.

    On one tile, the code to receive the parts of all rows of a wide output layer would fill it.
    """
    begins = tile_of_part[first[:-1]]
    order = np.argsort(begins, kind="stable")
    same = begins[order]
    turn = np.empty(len(begins), np.int64)
    turn[order] = np.arange(len(begins)) - np.searchsorted(same, same)
    return tile_of_part[first[:-1] + turn % np.diff(first)]


def _check(tensor: Tensor, name: str) -> None:
    if tensor.type not in TYPES:
        raise PoplibsError(
            f"{name} does not work on {tensor.type}.",
            source=user_source(),
            hint="it works on " + ", ".join(str(t) for t in TYPES),
        )
    if not tensor.rank or not tensor.shape[-1]:
        raise PoplibsError(
            f"{name} got shape {list(tensor.shape)}: there is no element to find.",
            source=user_source(),
            hint="give a tensor whose last dimension has elements",
        )


# -- registry --------------------------------------------------------------------------------------


def _samples(type: Type, rng: np.random.Generator) -> Iterator[Sample]:
    for shape in ((200,), (7, 40), (3, 4, 5), (6, 1), (0, 3)):
        yield Sample((distinct_values(type, shape, rng),))
    yield Sample((rng.integers(0, 3, (4, 60)).astype(type.dtype),))


def _reference(is_min: bool, has_values: bool):  # noqa: ANN202
    def reference(values: np.ndarray) -> np.ndarray | tuple[np.ndarray, np.ndarray]:
        places = (np.argmin if is_min else np.argmax)(values, axis=-1).astype(np.uint32)
        return (values.min(-1) if is_min else values.max(-1), places) if has_values else places

    return reference


_ERRORS = (
    ErrorCase(Sample((np.ones((2, 0), np.float32),)), "there is no element to find"),
    ErrorCase(Sample((np.ones(3, bool),)), "does not work on bool"),
)

for _function, _is_min, _has_values in (
    (arg_max, False, False),
    (arg_min, True, False),
    (max_and_arg_max, False, True),
    (min_and_arg_min, True, True),
):
    register(
        Op(
            name=f"popops.{_function.__name__}",
            function=_function,
            about=(_function.__doc__ or "").strip().rstrip(".").lower(),
            types=TYPES,
            samples=_samples,
            reference=_reference(_is_min, _has_values),
            codelets=(extreme_vertex, best_vertex),
            errors=_ERRORS,
        )
    )
