"""The programs that the core figures measure, and the same loops written by hand in Numba."""

from typing import Any

import numba
import numpy as np

import tremula as tr
from tremula import FLOAT, Input, Output, Vector, Vertex, float32

N_TILES = 1472
ADDER_LENGTH = 4  # elements each Adder sums


class Adder(Vertex):
    """z = x + bias + sum(y): the Adder of the first slides."""

    x: Input[float32]
    y: Input[Vector[float32]]
    z: Output[float32]
    bias: float32  # pyright: ignore[reportInvalidTypeForm] - a machine type

    def compute(self: Any) -> None:
        total = self.x + self.bias
        for value in self.y:
            total += value
        self.z = total


def adder_variables(graph: tr.Graph, n: int) -> tuple[tr.Tensor, tr.Tensor, tr.Tensor]:
    x = graph.add_variable(FLOAT, [n], "x", mapping="linear")
    y = graph.add_variable(FLOAT, [n, ADDER_LENGTH], "y", mapping="linear")
    z = graph.add_variable(FLOAT, [n], "z", mapping="linear")
    return x, y, z


def adder_tiles(n: int) -> np.ndarray:
    return np.arange(n) * N_TILES // n


def adder_engine(n: int) -> tr.Engine:
    """`n` Adders over all tiles, added in bulk and compiled."""
    graph = tr.Graph(tr.IPUModel("bow").create_device())
    x, y, z = adder_variables(graph, n)
    adders = graph.add_compute_set("adders")
    fields = {"x": x, "y": y, "z": z, "bias": np.arange(n, dtype=np.float32)}
    graph.add_vertices(adders, Adder, fields, tiles=adder_tiles(n))
    graph.create_host_write("x", x)
    graph.create_host_write("y", y)
    graph.create_host_read("z", z)
    return tr.Engine(graph, tr.Execute(adders))


@numba.njit(parallel=True)
def adders_by_hand(x, y, z, x_place, y_place, y_length, z_place, bias):  # noqa: ANN001, ANN201, PLR0917
    """The loop of the tile program over its columns, without Tremula."""
    for i in numba.prange(len(x_place)):
        total = x[x_place[i]] + bias[i]
        for k in range(y_place[i], y_place[i] + y_length[i]):
            total += y[k]
        z[z_place[i]] = total


@numba.njit(parallel=True)
def heat_by_hand(a, b, n_steps):  # noqa: ANN001, ANN201
    """The heat equation in plain parallel Numba, over whole rows."""
    n = a.shape[0]
    tenth, four = np.float32(0.1), np.float32(4.0)
    for _ in range(n_steps // 2):
        for i in numba.prange(1, n - 1):
            for j in range(1, n - 1):
                b[i, j] = a[i, j] + tenth * (
                    a[i - 1, j] + a[i + 1, j] + a[i, j - 1] + a[i, j + 1] - four * a[i, j]
                )
        for i in numba.prange(1, n - 1):
            for j in range(1, n - 1):
                a[i, j] = b[i, j] + tenth * (
                    b[i - 1, j] + b[i + 1, j] + b[i, j - 1] + b[i, j + 1] - four * b[i, j]
                )


class Increment(Vertex):
    """x += y, one element."""

    x: tr.InOut[float32]
    y: Input[float32]

    def compute(self: Any) -> None:
        self.x = self.x * float32(0.5) + self.y


def repeat_engine(n_repeats: int) -> tr.Engine:
    graph = tr.Graph(tr.IPUModel("bow").create_device())
    x = graph.add_variable(FLOAT, [N_TILES], "x")
    y = graph.add_variable(FLOAT, [N_TILES], "y")
    tiles = np.arange(N_TILES)
    for tensor in (x, y):
        for tile in range(N_TILES):
            graph.set_tile_mapping(tensor[tile], tile)
    increments = graph.add_compute_set("increments")
    graph.add_vertices(increments, Increment, {"x": x, "y": y}, tiles=tiles)
    graph.create_host_write("x", x)
    graph.create_host_write("y", y)
    graph.create_host_read("x", x)
    return tr.Engine(graph, tr.Repeat(n_repeats, tr.Execute(increments)))


@numba.njit
def repeat_by_hand(x, y, x_place, y_place, n_repeats):  # noqa: ANN001, ANN201
    """The loop of the tile program over its columns, without Tremula."""
    half = np.float32(0.5)
    for _ in range(n_repeats):
        for i in range(len(x_place)):
            x[x_place[i]] = x[x_place[i]] * half + y[y_place[i]]
