"""Lowerings of operations that say their tiles: rows placed, one vertex each, clock and seeds."""

from tremula.base.types import FLOAT, UNSIGNED_INT
from tremula.ir.lowering.pointwise.map import mapped
from tremula.ir.lowering.tiles import Tiles
from tremula.ir.op_table import lowers
from tremula.ir.ops import explicit_tiles
from tremula.ir.ops import tile_random as tile_random_ops  # noqa: F401  registers tremula::tile_seeds
from tremula.poplar.control import cycle_stamp, get_hw_seeds, set_hw_seeds
from tremula.poplar.tensors.tensor import Tensor, concat
from tremula.poplibs import poprand
from tremula.poplibs.popops.elementwise.expr import Expr


@lowers("tremula::on_tiles", calls="a copy, unless the rows are there")
def on_tiles(tiles: Tiles, x: Tensor, rows: list[int]) -> Tensor:
    return explicit_tiles.placed(tiles, x, rows)


@lowers("tremula::scaled_add", calls="popops.map")
def scaled_add(tiles: Tiles, x: Tensor, y: Tensor, scale: Tensor, sign: float) -> Tensor:
    def total(x: Expr, y: Expr, scale: Expr) -> Expr:
        return x + scale * y if sign > 0 else x - scale * y

    return mapped(tiles, total, x, y, scale)


@lowers("tremula::tile_vertices", calls="one vertex on each tile")
def tile_vertices(tiles: Tiles, inputs: list[Tensor], call: str) -> list[Tensor]:
    return explicit_tiles.add_vertices(tiles, inputs, explicit_tiles.call_of(call))


@lowers("tremula::tile_cycles", calls="cycle_stamp")
def tile_cycles(tiles: Tiles, arrays: list[Tensor], rows: list[int]) -> list[Tensor]:
    """Tiles are in step: the clock of one is that of all."""
    stamp = cycle_stamp(tiles.graph, tiles.sequence, int(rows[0]), name=f"{tiles.name}/cycles")
    count = stamp.reinterpret(tiles.result_type(len(arrays)))
    return [*arrays, count.expand([0]).broadcast(len(rows), 0)]


@lowers("tremula::tile_draws", calls="poprand.uniform, poprand.normal")
def tile_draws(tiles: Tiles, rows: list[int], size: int, is_normal: bool) -> Tensor:
    """Each tile draws its own row."""
    place = explicit_tiles.placed_rows(tiles, (len(rows), size), FLOAT, rows)
    draw = poprand.normal if is_normal else poprand.uniform
    return draw(tiles.graph, None, 0, place, FLOAT, 0.0, 1.0, tiles.sequence, tiles.name)


@lowers("tremula::tile_seeds", calls="get_hw_seeds")
def tile_seeds(tiles: Tiles, rows: list[int], _n_workers: int) -> Tensor:
    seeds = get_hw_seeds(tiles.graph, tiles.sequence, f"{tiles.name}/seeds")
    chosen = concat([seeds[row : row + 1] for row in rows]).reinterpret(tiles.out_type)
    return explicit_tiles.placed(tiles, chosen, rows)


@lowers("tremula::set_tile_seeds", calls="set_hw_seeds")
def set_tile_seeds(tiles: Tiles, seeds: Tensor, rows: list[int]) -> Tensor:
    """Workers of other tiles keep theirs."""
    all_seeds = get_hw_seeds(tiles.graph, tiles.sequence, f"{tiles.name}/seeds")
    new_seeds = explicit_tiles.placed(tiles, seeds, rows)
    for i, row in enumerate(rows):
        tiles.copy(new_seeds[i].reinterpret(UNSIGNED_INT), all_seeds[row])
    set_hw_seeds(tiles.graph, all_seeds, tiles.sequence)
    return new_seeds
