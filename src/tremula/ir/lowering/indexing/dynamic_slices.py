"""Lowerings of slices and updates at an index that is known only while the program runs."""

from tremula.base.types import UNSIGNED_INT
from tremula.ir.lowering.tiles import Tiles
from tremula.ir.op_table import lowers
from tremula.poplar.tensors.tensor import Tensor
from tremula.poplibs import popops


def _offset(tiles: Tiles, start: Tensor) -> Tensor:
    return tiles.cast(start.reshape([1]), UNSIGNED_INT)


@lowers("tremula::dynamic_slice", calls="popops.dynamic_slice")
def dynamic_slice(tiles: Tiles, x: Tensor, start: Tensor, dim: int, size: int) -> Tensor:
    dims, sizes = (dim % x.rank,), (size,)
    offset = _offset(tiles, start)
    return popops.dynamic_slice(
        tiles.graph, x, offset, tiles.sequence, tiles.name, dims=dims, sizes=sizes
    )


@lowers("tremula::dynamic_update", calls="popops.dynamic_update")
def dynamic_update(tiles: Tiles, x: Tensor, update: Tensor, start: Tensor, dim: int) -> Tensor:
    dim %= x.rank
    result, offset = tiles.writeable_copy(x), _offset(tiles, start)
    popops.dynamic_update(
        tiles.graph, result, update, offset, tiles.sequence, tiles.name,
        dims=(dim,), sizes=(update.shape[dim],),
    )  # fmt: skip
    return result
