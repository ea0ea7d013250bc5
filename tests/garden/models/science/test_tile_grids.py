"""Grids over tiles: every cell has one block and one band, halos wrap around."""

import numpy as np
import pytest

import tremula as tr
from tremula.garden.models.science.tile_grids import TileGrid, blocks_for, close_rings, wrapped


@pytest.mark.parametrize("blocks", [(1, 1), (3, 2), (7, 5)])
def test_bands_cover_every_cell_once(blocks):
    """Bands of all tiles cover the grid without overlap, at most one for each worker."""
    grid = TileGrid(7, 11, blocks)
    seen = np.zeros((7, 11), int)
    bands = grid.bands(3)
    for band in bands:
        seen[band.top : band.bottom, band.left : band.right] += 1
    assert (seen == 1).all()
    assert np.bincount([band.tile for band in bands]).max() <= 3


def test_blocks_live_on_their_tiles():
    """A variable's block lies on the tile that updates it."""
    grid = TileGrid(6, 8, (3, 2))
    graph = tr.Graph(tr.IPUModel("bow", tiles_per_ipu=6).create_device())
    cells = grid.add(graph, "cells")
    for band in grid.bands(2):
        tiles = [t for t, result in enumerate(graph.get_tile_mapping(band.of(cells))) if result]
        assert tiles == [band.tile]


def test_wrapped_grids_have_the_opposite_side_around_them():
    """`wrapped` is np.pad's wrap, as a view."""
    graph = tr.Graph(tr.IPUModel("bow", tiles_per_ipu=2).create_device())
    cells = graph.add_variable(tr.FLOAT, [3, 4], "cells", mapping="linear")
    graph.create_host_write("cells", cells)
    graph.create_host_read("around", wrapped(cells))
    engine = tr.Engine(graph, tr.Sequence()).load()
    values = np.arange(12, dtype=np.float32).reshape(3, 4)
    engine.write_tensor("cells", values)
    assert np.array_equal(engine.read_tensor("around"), np.pad(values, 1, mode="wrap"))


def test_ringed_grids_have_the_opposite_side_around_them_once_closed():
    """Rows of `around` are np.pad's wrap after `close_rings`; ends live with their block."""
    grid = TileGrid(3, 4, (1, 2))
    graph = tr.Graph(tr.IPUModel("bow", tiles_per_ipu=2).create_device())
    fields = [grid.add_ringed(graph, name) for name in ("a", "b")]
    for name, field in zip("ab", fields, strict=True):
        graph.create_host_write(name, field.cells)
        graph.create_host_read(f"around {name}", field.around)
    engine = tr.Engine(graph, close_rings(fields)).load()
    values = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    for name, of_field in zip("ab", values, strict=True):
        engine.write_tensor(name, of_field)
    engine.run()
    for name, of_field in zip("ab", values, strict=True):
        result = engine.read_tensor(f"around {name}")
        assert np.array_equal(result, np.pad(of_field, 1, mode="wrap"))
    tiles = graph.get_tile_mapping(fields[0].whole[:1])
    assert [[(i.begin, i.end) for i in result] for result in tiles] == [[(0, 3)], [(3, 6)]]


def test_more_blocks_than_cells_are_refused():
    """The message names rows, what was asked for and what is possible."""
    with pytest.raises(tr.errors.InvalidOption, match="5 rows cannot be cut into 6 blocks"):
        TileGrid(5, 9, (6, 1))
    with pytest.raises(
        tr.errors.InvalidOption, match="1472 tiles are too many for a grid of 4 × 4"
    ):
        blocks_for(1472, 4, 4)


def test_blocks_are_wide():
    """Of all ways to cut a square grid, the one with blocks about eight times as wide as high."""
    assert blocks_for(32, 256, 256) == (16, 2)
    assert blocks_for(1472, 4096, 4096) == (92, 16)
