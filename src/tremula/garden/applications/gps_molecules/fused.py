"""Messages along edges as one operation: gathered, weighted and summed where they arrive.

On tiles each tile has a few columns of all nodes, and walks over all edges: nothing is stored per
edge, and no tile needs another's sums.
"""

# Fields of codelets are annotated with values, which pyright cannot see as types.
# pyright: reportInvalidTypeForm=false, reportOperatorIssue=false

from typing import Any

import torch
from torch import Tensor

import poptorch
from tremula.base.types import FLOAT, float32, int32
from tremula.codelets import Input, Output, Vector, Vertex
from tremula.ir.lowering.tiles import Tiles
from tremula.ir.ops.custom import Attributes, custom_operation
from tremula.poplar.programs import Execute
from tremula.poplar.tensors.tensor import Tensor as TileTensor

NAME, DOMAIN = "GatherScatter", "tremula.garden"


def gather_scatter(x: Tensor, edges: Tensor, weights: Tensor) -> Tensor:
    """[n, width]: for each node the sum of x · weight over the edges that end there.

    x is [n, width]; edges `int32[2, m]` lead from nodes to nodes, and weights [m] are theirs.
    """
    (result,) = poptorch.custom_op([x, edges, weights], NAME, DOMAIN, 1, example_outputs=[x])
    return result


def gathered_and_summed(x: Tensor, edges: Tensor, weights: Tensor) -> Tensor:
    """What the fused operation computes, in three operations of PyTorch."""
    sent = x.index_select(0, edges[0]) * weights.unsqueeze(1)
    return torch.zeros_like(x).index_add(0, edges[1], sent)


class WalkEdges(Vertex):
    """Some columns of all nodes: walk over the edges, add what each carries."""

    name = "garden::GatherScatter"
    x: Input[Vector[float32]]  # node by node
    sources: Input[Vector[int32]]
    targets: Input[Vector[int32]]
    weights: Input[Vector[float32]]
    out: Output[Vector[float32]]
    n_columns: int32

    def compute(self: Any) -> None:
        n = self.n_columns
        for i in range(len(self.out)):
            self.out[i] = float32(0)
        for edge in range(len(self.sources)):
            source, target = self.sources[edge] * n, self.targets[edge] * n
            weight = self.weights[edge]
            for column in range(n):
                self.out[target + column] += self.x[source + column] * weight


def _on_tiles(tiles: Tiles, inputs: list[TileTensor], _attributes: Attributes) -> list[TileTensor]:
    """A vertex for each column, on tiles far from each other."""
    x, edges, weights = inputs
    graph, (n_nodes, width) = tiles.graph, x.shape
    out = graph.add_variable(FLOAT, [width, n_nodes], tiles.name)
    compute_set = graph.add_compute_set(tiles.name)
    shared = {"sources": edges[0], "targets": edges[1], "weights": weights}
    for column in range(width):
        tile = column * graph.target.tiles_per_ipu // width
        graph.set_tile_mapping(out[column], tile)
        fields = {"x": x.transpose()[column], "out": out[column], "n_columns": 1, **shared}
        graph.add_vertex(compute_set, WalkEdges, fields, tile=tile)
    tiles.sequence.add(Execute(compute_set))
    return [out.transpose()]


def _gradient(
    inputs: list[Tensor], _outputs: list[Tensor], gradients: list[Tensor], _: Attributes
) -> list[Tensor | None]:
    """Messages back along the edges; a weight's is the product of what it joins."""
    x, edges, weights = inputs
    (slope,) = gradients
    of_x = gather_scatter(slope, edges.flip(0), weights)
    of_weights = (x.index_select(0, edges[0]) * slope.index_select(0, edges[1])).sum(1)
    return [of_x, None, of_weights]


custom_operation(
    NAME,
    DOMAIN,
    1,
    host=lambda inputs, _: [gathered_and_summed(*inputs)],
    tiles=_on_tiles,
    gradient=_gradient,
)
