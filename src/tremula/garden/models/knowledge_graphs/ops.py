"""Custom operations of knowledge-graph models: L1 distances of all pairs, rows swapped by replicas.

The measured models (graphcore-research/bess-kge) take both from poptorch-experimental-addons. Its
distance is a vertex for each result, on a grid of blocks over the tiles; here a tile's block is one
vertex with the same operands and the same work for its workers. Slots are counted from the loops of
its C++ codelets, one for each operation on 64 bits.
"""

# Fields of codelets are annotated with values, which pyright cannot see as types.
# pyright: reportInvalidTypeForm=false, reportOperatorIssue=false

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

import poptorch
from tremula.base.errors import RuntimeFailure
from tremula.base.types import FLOAT, Type, float32, uint32
from tremula.codelets import Input, MultiVertex, Output, Vector
from tremula.codelets.flops import no_flops
from tremula.codelets.spec import CostView
from tremula.hardware import Chip
from tremula.ir.lowering.tiles import Tiles
from tremula.ir.ops.custom import Attributes, custom_operation
from tremula.poplar.graph import Graph
from tremula.poplar.programs import Execute
from tremula.poplar.tensors.tensor import Tensor
from tremula.poplibs import gcl
from tremula.poplibs.counts import ceil_div
from tremula.poplibs.families import family

DOMAIN = "tremula.garden"
START_SLOTS = 20  # of each result: its operands' addresses, a loop, halves or pairs added, a store
DISTANCE_SLOTS = 5  # two loads, a difference, its absolute value, a sum
GRADIENT_SLOTS = 10  # two loads, a difference, a comparison, five for a sign times a factor, a sum


def l1_distances(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """[m, n]: of all rows of a [m, k] to all rows of b [n, k]."""
    like = a.new_empty((a.shape[0], b.shape[0]))
    (result,) = poptorch.custom_op([a, b], "L1Distance", DOMAIN, 1, example_outputs=[like])
    return result


def swapped(x: torch.Tensor) -> torch.Tensor:
    """Row m goes to replica m, and row m of the result came from there."""
    (result,) = poptorch.custom_op([x], "AllToAll", DOMAIN, 1, example_outputs=[x])
    return result


def _gradient_of(a: torch.Tensor, b: torch.Tensor, gradient: torch.Tensor) -> torch.Tensor:
    (result,) = poptorch.custom_op(
        [a, b, gradient], "L1DistanceGradient", DOMAIN, 1, example_outputs=[a]
    )
    return result


# -- on tiles --------------------------------------------------------------------------------------


def _distances(tiles: Tiles, inputs: list[Tensor], _attributes: Attributes) -> list[Tensor]:
    a, b = inputs

    def fields(rows: slice, columns: slice) -> dict[str, Tensor]:
        return {"a": a[rows], "b": b[columns]}

    result = _on_grid(tiles, (a.shape[0], b.shape[0]), l1_codelet(a.type), fields)
    return [tiles.cast(result, a.type)]


def _gradient(tiles: Tiles, inputs: list[Tensor], _attributes: Attributes) -> list[Tensor]:
    a, b, gradient = inputs
    turned = b.transpose()

    def fields(rows: slice, columns: slice) -> dict[str, Tensor]:
        return {"a": a[rows][:, columns], "b": turned[columns], "factors": gradient[rows]}

    result = _on_grid(tiles, a.shape, l1_gradient_codelet(a.type), fields)
    return [tiles.cast(result, a.type)]


def _on_grid(
    tiles: Tiles,
    shape: tuple[int, ...],
    codelet: type,
    fields: Callable[[slice, slice], dict[str, Tensor]],
) -> Tensor:
    """FLOAT: a matrix of results in blocks, one for each tile."""
    graph, name = tiles.graph, tiles.name
    result = graph.add_variable(FLOAT, list(shape), name)
    compute_set = graph.add_compute_set(name)
    for tile, (rows, columns) in enumerate(_blocks(graph, shape)):
        if rows.start < rows.stop and columns.start < columns.stop:
            part = result[rows][:, columns]
            graph.set_tile_mapping(part, tile)
            edges = {field: edge.flatten() for field, edge in fields(rows, columns).items()}
            states = {"n_columns": part.shape[1]}
            edges["out"] = part.flatten()
            graph.add_vertex(compute_set, codelet, {**edges, **states}, tile=tile)
    tiles.sequence.add(Execute(compute_set))
    return result


def _blocks(graph: Graph, shape: tuple[int, ...]) -> list[tuple[slice, slice]]:
    """About square blocks of a matrix, one for each tile."""
    n_tiles, (m, n) = graph.target.tiles_per_ipu, shape
    height = max(m // n_tiles, math.ceil(math.sqrt(m * n / n_tiles)))
    n_high = ceil_div(m, height)
    n_wide = max(1, n_tiles // n_high)
    width = ceil_div(n, n_wide)
    return [
        (
            slice(min(i * height, m), min((i + 1) * height, m)),
            slice(min(j * width, n), min((j + 1) * width, n)),
        )
        for i in range(n_high)
        for j in range(n_wide)
    ]


def _cycles(v: CostView, chip: Chip, field: str, slots: int, element: Type) -> np.ndarray:
    """Workers take results in turn, each of them a loop over 64 bits at a time."""
    n_results, n_columns = v.sizes["out"], np.asarray(v.state["n_columns"], np.int64)
    length = v.sizes[field] // n_columns
    per_result = START_SLOTS + slots * ceil_div(length * element.n_bytes, chip.data_path_bytes)
    return chip.n_workers * ceil_div(n_results, chip.n_workers) * per_result


@family
def l1_codelet(element: Type) -> type:
    class L1Distance(MultiVertex):
        name = f"garden::L1Distance<{element}>"
        provenance = "derived"
        a: Input[Vector[element]]
        b: Input[Vector[element]]
        out: Output[Vector[float32]]
        n_columns: uint32

        def compute(self: Any, worker_id: int) -> None:
            n = int(self.n_columns)
            k = len(self.b) // n
            for at in range(worker_id, len(self.out), self.n_workers):
                total = float32(0)
                for i in range(k):
                    total += abs(float32(self.a[at // n * k + i]) - float32(self.b[at % n * k + i]))
                self.out[at] = total

        @staticmethod
        def cycles(v: CostView, chip: Chip) -> np.ndarray:
            return _cycles(v, chip, "b", DISTANCE_SLOTS, element)

        flops = no_flops

    return L1Distance


@family
def l1_gradient_codelet(element: Type) -> type:
    class L1DistanceGradient(MultiVertex):
        name = f"garden::L1DistanceGradient<{element}>"
        provenance = "derived"
        a: Input[Vector[element]]
        b: Input[Vector[element]]
        factors: Input[Vector[element]]
        out: Output[Vector[float32]]
        n_columns: uint32

        def compute(self: Any, worker_id: int) -> None:
            n = int(self.n_columns)
            k = len(self.b) // n
            for at in range(worker_id, len(self.out), self.n_workers):
                own, total = float32(self.a[at]), float32(0)
                for i in range(k):
                    other = float32(self.b[at % n * k + i])
                    sign = float32(own > other) - float32(own < other)
                    total += float32(self.factors[at // n * k + i]) * sign
                self.out[at] = total

        @staticmethod
        def cycles(v: CostView, chip: Chip) -> np.ndarray:
            return _cycles(v, chip, "b", GRADIENT_SLOTS, element)

        flops = no_flops

    return L1DistanceGradient


def _swapped(tiles: Tiles, inputs: list[Tensor], _attributes: Attributes) -> list[Tensor]:
    return [gcl.all_to_all(tiles.graph, inputs[0], tiles.sequence, tiles.name)]


# -- on the host, and gradients --------------------------------------------------------------------


def _gradient_on_host(inputs: list[torch.Tensor], _attributes: Attributes) -> list[torch.Tensor]:
    a, b, gradient = inputs
    signs = (a.unsqueeze(1) - b.unsqueeze(0)).sign()
    return [(gradient.unsqueeze(2) * signs).sum(1)]


def _refused(_inputs: list[torch.Tensor], _attributes: Attributes) -> list[torch.Tensor]:
    raise RuntimeFailure(
        "rows are swapped between replicas on tiles only.",
        hint="compile the model, and read its report",
    )


custom_operation(
    "L1Distance",
    DOMAIN,
    host=lambda inputs, _: [torch.cdist(inputs[0], inputs[1], p=1)],
    tiles=_distances,
    gradient=lambda inputs, _outputs, gradients, _: [
        _gradient_of(inputs[0], inputs[1], gradients[0]),
        _gradient_of(inputs[1], inputs[0], gradients[0].t()),
    ],
)
custom_operation("L1DistanceGradient", DOMAIN, host=_gradient_on_host, tiles=_gradient)
custom_operation(
    "AllToAll",
    DOMAIN,
    host=_refused,
    tiles=_swapped,
    gradient=lambda _inputs, _outputs, gradients, _: [swapped(gradients[0])],
)
