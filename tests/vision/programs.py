"""Small programs that tests of reports share."""

import numpy as np

import tremula as tr
from tremula import FLOAT, Input, Output, Vector, Vertex, float32


class RowSum(Vertex):
    row: Input[Vector[float32]]
    total: Output[float32]

    def compute(self):
        total = float32(0)
        for value in self.row:
            total += value
        self.total = total

    @staticmethod
    def cycles(v, chip):
        return 17 + v.sizes["row"] // 2

    @staticmethod
    def flops(v, chip):
        return v.sizes["row"] - 1


class CountedSum(Vertex):
    """Its cycles depend on its data."""

    row: Input[Vector[float32]]
    total: Output[float32]

    def compute(self):
        total = float32(0)
        for value in self.row:
            if value > float32(0):
                total += value
        self.total = total


def summing_engine(
    n_tiles: int = 8,
    n_rows: int = 24,
    n_columns: int = 16,
    n_times: int = 3,
    options: dict | None = None,
    vertex: type = RowSum,
    n_ipus: int = 1,
) -> tr.Engine:
    """Sums of rows, three times over, and a copy of the sums to one tile, under names."""
    graph = tr.Graph(tr.IPUModel("bow", n_ipus=n_ipus, tiles_per_ipu=n_tiles).create_device())
    n_tiles = graph.target.n_tiles
    matrix = graph.add_variable(FLOAT, [n_rows, n_columns], "weights/matrix")
    totals = graph.add_variable(FLOAT, [n_rows], "layer1/totals")
    gathered = graph.add_variable(FLOAT, [n_rows], "layer1/gathered")
    graph.set_initial_value(matrix, np.arange(n_rows * n_columns, dtype=np.float32))
    tiles = np.arange(n_rows) % n_tiles
    for row, tile in enumerate(tiles.tolist()):
        graph.set_tile_mapping(matrix[row], tile)
        graph.set_tile_mapping(totals[row], (tile + 1) % n_tiles)
    graph.set_tile_mapping(gathered, 0)
    graph.create_host_read("gathered", gathered)
    sums = graph.add_compute_set("layer1/sums/rows")
    graph.add_vertices(sums, vertex, {"row": matrix, "total": totals}, tiles=tiles)
    body = tr.Sequence([tr.Execute(sums), tr.Copy(totals, gathered, name="layer1/gather")])
    program = tr.Sequence([tr.Repeat(n_times, body)], name="main")
    return tr.Engine(graph, [program], {"tremula.threads": 1, **(options or {})})
