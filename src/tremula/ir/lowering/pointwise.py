"""Lowerings of element-wise operations: one popops expression each."""

from tremula.base.types import BOOL, Type
from tremula.ir.lowering.table import lowers
from tremula.ir.lowering.tiles import Tiles
from tremula.poplar.tensor import Tensor
from tremula.poplibs import popops

Operand = Tensor | float | int | bool


def operands(tiles: Tiles, type: Type, *values: Operand) -> list[Tensor]:
    """All operands as tensors of one type; numbers become constants."""
    return [
        tiles.cast(value, type) if isinstance(value, Tensor) else tiles.constant(value, type)
        for value in values
    ]


@lowers("add.Tensor", "add.Scalar", calls="popops.add")
def add(tiles: Tiles, a: Operand, b: Operand, alpha: float = 1) -> Tensor:
    a, b = operands(tiles, tiles.out_type, a, b)
    if alpha != 1:
        b = popops.mul(tiles.graph, b, tiles.constant(alpha, b.type), tiles.sequence, tiles.name)
    return popops.add(tiles.graph, a, b, tiles.sequence, tiles.name)


@lowers("relu", calls="popops.maximum")
def relu(tiles: Tiles, x: Tensor) -> Tensor:
    return popops.maximum(tiles.graph, x, tiles.constant(0, x.type), tiles.sequence, tiles.name)


@lowers("bitwise_not", "logical_not", calls="popops.logical_not, popops.bitwise_not")
def logical_not(tiles: Tiles, x: Tensor) -> Tensor:
    op = popops.logical_not if x.type == BOOL else popops.bitwise_not
    return op(tiles.graph, x, tiles.sequence, tiles.name)
