"""Lowerings of views: rearranged tensors that cost nothing, and the copies that must be made."""

import operator

from tremula.ir.lowering.table import lowers
from tremula.ir.lowering.tiles import Tiles
from tremula.poplar.tensor import Tensor


@lowers("getitem", calls="")
def getitem(_tiles: Tiles, items: tuple, index: int) -> object:
    return operator.getitem(items, index)


@lowers("view", "_unsafe_view", "reshape", calls="Tensor.reshape")
def view(tiles: Tiles, x: Tensor, _shape: object) -> Tensor:
    return x.reshape(list(tiles.out_shape))


@lowers("t", calls="Tensor.transpose")
def t(_tiles: Tiles, x: Tensor) -> Tensor:
    return x.transpose() if x.rank == 2 else x
