"""has_nan, has_nan_or_inf: one bool for a whole tensor."""

# Fields of codelets are annotated with values, which pyright cannot see as types.
# pyright: reportInvalidTypeForm=false

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from tremula.base.source import user_source
from tremula.base.types import BOOL, FLOAT, HALF, Type
from tremula.codelets import Input, Output, Vector, Vertex
from tremula.codelets.flops import flops_per_element
from tremula.codelets.spec import CostView
from tremula.hardware import Chip
from tremula.poplar.graph import Graph
from tremula.poplar.programs import Sequence
from tremula.poplar.tensors.tensor import Tensor
from tremula.poplar.tensors.tile_map import TileMapping
from tremula.poplar.vertices.bulk import Slices
from tremula.poplibs.counts import ceil_div
from tremula.poplibs.families import family
from tremula.poplibs.popops.elementwise.fill import fill
from tremula.poplibs.popops.reduction.reduce import reduce
from tremula.poplibs.popops.vertex_layout import worker_pieces
from tremula.poplibs.poputil import in_memory_order, tile_regions
from tremula.poplibs.poputil.steps import run_vertices
from tremula.poplibs.registry import ErrorCase, Op, PoplibsError, Sample, register

FLOATS = (FLOAT, HALF)
START_SLOTS, SUB_VECTOR_SLOTS = 17, 11  # derived: as a reduction of contiguous input


def has_nan(graph: Graph, tensor: Tensor, sequence: Sequence, name: str = "") -> Tensor:
    """A BOOL scalar: true if some element is NaN."""
    return _has(graph, tensor, sequence, name or "hasNaN", with_inf=False)


def has_nan_or_inf(graph: Graph, tensor: Tensor, sequence: Sequence, name: str = "") -> Tensor:
    """A BOOL scalar: true if some element is NaN or infinite."""
    return _has(graph, tensor, sequence, name or "hasNaNOrInf", with_inf=True)


def _has(graph: Graph, tensor: Tensor, sequence: Sequence, name: str, *, with_inf: bool) -> Tensor:
    if tensor.type not in FLOATS:
        raise PoplibsError(
            f"{name} does not work on {tensor.type}.",
            source=user_source(),
            hint="only float and half can be NaN",
        )
    if tensor.n_elems == 0:
        out = graph.add_variable(BOOL, [], name, mapping=0)
        fill(graph, out, False, sequence, name)
        return out
    flat, _ = in_memory_order(tensor, [])
    work = worker_pieces(graph, tile_regions(graph, flat), [], tensor.type)
    n = len(work.tile)
    flags = graph.add_variable(BOOL, [n], f"{name}/flags")
    place = np.arange(n)
    graph.set_tile_mapping(flags, TileMapping(place, place + 1, work.tile, graph.target.n_tiles))
    run_vertices(
        graph,
        nan_codelet(tensor.type, with_inf),
        {"x": Slices(flat, work.begin, work.end, work.start), "out": flags},
        work.tile,
        sequence,
        name,
    )
    return reduce(graph, flags, [0], "LOGICAL_OR", sequence, name)


@family
def nan_codelet(element: Type, with_inf: bool) -> type:
    class HasNaN(Vertex):
        """Sums x - x, which is 0 for numbers and NaN for the rest; or tests each for NaN."""

        name = f"popops::HasNaN{'OrInf' if with_inf else ''}<{element}>"
        provenance = "derived"
        x: Vector[Input[Vector[element]]]
        out: Output[BOOL]

        def compute(self: Any) -> None:
            n_found = 0
            for region in range(len(self.x)):
                x = self.x[region]
                for i in range(len(x)):
                    value = x[i]
                    if with_inf:
                        n_found += int(not math.isfinite(value))
                    else:
                        n_found += int(math.isnan(value))
            self.out = n_found > 0

        @staticmethod
        def cycles(v: CostView, chip: Chip) -> np.ndarray:
            n_vectors = ceil_div(v.sizes["x"] * element.n_bytes, chip.data_path_bytes)
            return START_SLOTS + SUB_VECTOR_SLOTS * v.n_subs["x"] + 2 * n_vectors

        flops = flops_per_element("x", 1, element)

    return HasNaN


# -- registry ----------------------------------------------------------------------------------


def _samples(type: Type, random: np.random.Generator) -> Iterator[Sample]:
    plain = random.standard_normal(40).astype(type.dtype)
    yield Sample((plain,))
    yield Sample((plain[:0],))
    for value in (np.nan, np.inf, -np.inf):
        spoilt = plain.reshape(5, 8).copy()
        spoilt[3, 2] = value
        yield Sample((spoilt,))


def _nan_reference(x: np.ndarray) -> np.ndarray:
    return np.asarray(np.isnan(x).any())


def _inf_reference(x: np.ndarray) -> np.ndarray:
    return np.asarray(not np.isfinite(x).all())


for _function, _about, _reference in (
    (has_nan, "Whether some element is NaN.", _nan_reference),
    (has_nan_or_inf, "Whether some element is NaN or infinite.", _inf_reference),
):
    register(
        Op(
            name=f"popops.{_function.__name__}",
            function=_function,
            about=_about,
            types=FLOATS,
            samples=_samples,
            reference=_reference,
            codelets=(nan_codelet,),
            errors=(ErrorCase(Sample((np.ones(3, np.int32),)), "does not work on int"),),
        )
    )
