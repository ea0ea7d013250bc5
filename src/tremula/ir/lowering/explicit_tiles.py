"""Lowerings of operations that say their tiles: rows placed, one vertex each, the clock read."""

from tremula.ir.lowering.tiles import Tiles
from tremula.ir.op_table import lowers
from tremula.ir.ops import explicit_tiles
from tremula.poplar.control import cycle_stamp
from tremula.poplar.tensors.tensor import Tensor


@lowers("tremula::on_tiles", calls="a copy, unless the rows are there")
def on_tiles(tiles: Tiles, x: Tensor, rows: list[int]) -> Tensor:
    return explicit_tiles.placed(tiles, x, rows)


@lowers("tremula::tile_vertices", calls="one vertex on each tile")
def tile_vertices(tiles: Tiles, inputs: list[Tensor], call: str) -> list[Tensor]:
    return explicit_tiles.add_vertices(tiles, inputs, explicit_tiles.call_of(call))


@lowers("tremula::tile_cycles", calls="cycle_stamp")
def tile_cycles(tiles: Tiles, arrays: list[Tensor], rows: list[int]) -> list[Tensor]:
    """Tiles are in step: the clock of one is that of all."""
    stamp = cycle_stamp(tiles.graph, tiles.sequence, int(rows[0]), name=f"{tiles.name}/cycles")
    count = stamp.reinterpret(tiles.result_type(len(arrays)))
    return [*arrays, count.expand([0]).broadcast(len(rows), 0)]
