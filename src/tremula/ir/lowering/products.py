"""Lowerings of matrix products: mm, bmm through poplin's planner."""

from torch import fx

from tremula.ir.lowering.table import lowers, wishes
from tremula.ir.lowering.tiles import Tiles
from tremula.poplar.tensor import Tensor
from tremula.poplibs import poplin


@lowers("mm", calls="poplin.mat_mul")
def mm(tiles: Tiles, a: Tensor, b: Tensor) -> Tensor:
    return poplin.mat_mul(tiles.graph, a, b, tiles.sequence, tiles.name)


@wishes("mm", 1)
def mm_rhs(tiles: Tiles, node: fx.Node) -> Tensor:
    shapes = tiles.shape_of(0), tiles.shape_of(1)
    return poplin.create_mat_mul_input_rhs(tiles.graph, tiles.type_of(1), *shapes, node.name)
