"""D2Q9 lattice Boltzmann as a tile program: streaming is a view, collision a compute set.

Population k of a cell moves by its velocity E[k] in each step. A vertex reads it from where it
comes, through a shifted view of the whole grid, so that streaming needs no separate copy; what
comes from other tiles is the halo. Solid cells send populations back to where they came from.
"""

# Numbers of machine types compute, which pyright cannot see.
# pyright: reportOperatorIssue=false, reportArgumentType=false
from typing import Any

import numpy as np

import tremula as tr
from tremula import Input, Output, Vector, Vertex, float32
from tremula.garden.models.science.tile_grids import Band, TileGrid, wrapped

# Velocities (down, right): rest, four neighbours, four diagonals; OPPOSITE[k] is -E[k].
E = np.array([(0, 0), (0, 1), (1, 0), (0, -1), (-1, 0), (1, 1), (1, -1), (-1, -1), (-1, 1)])
OPPOSITE = np.array([0, 3, 4, 1, 2, 7, 8, 5, 6])
WEIGHTS = np.array([4 / 9] + [1 / 9] * 4 + [1 / 36] * 4, np.float32)
N_VELOCITIES = 9
W0, W1, W5 = float32(4 / 9), float32(1 / 9), float32(1 / 36)


class Collide(Vertex):
    """Streams into a band of cells and collides there (BGK); rows of all populations, k by k."""

    populations: Vector[Input[Vector[float32]]]
    solid: Vector[Input[Vector[float32]]]  # 1 where there is a wall, else 0
    out: Vector[Output[Vector[float32]]]
    omega: float32  # 1 / relaxation time  # pyright: ignore[reportInvalidTypeForm]
    force: float32  # to the right, per mass  # pyright: ignore[reportInvalidTypeForm]

    def compute(self: Any) -> None:
        n = len(self.solid)
        omega, keep = self.omega, float32(1) - self.omega
        push1, push5 = float32(3) * W1 * self.force, float32(3) * W5 * self.force
        for i in range(n):
            in0, in1, in2 = (
                self.populations[i],
                self.populations[n + i],
                self.populations[2 * n + i],
            )
            in3, in4 = self.populations[3 * n + i], self.populations[4 * n + i]
            in5, in6 = self.populations[5 * n + i], self.populations[6 * n + i]
            in7, in8 = self.populations[7 * n + i], self.populations[8 * n + i]
            out0, out1, out2 = self.out[i], self.out[n + i], self.out[2 * n + i]
            out3, out4, out5 = self.out[3 * n + i], self.out[4 * n + i], self.out[5 * n + i]
            out6, out7, out8 = self.out[6 * n + i], self.out[7 * n + i], self.out[8 * n + i]
            solid = self.solid[i]
            for j in range(len(solid)):
                f0, f1, f2, f3, f4 = in0[j], in1[j], in2[j], in3[j], in4[j]
                f5, f6, f7, f8 = in5[j], in6[j], in7[j], in8[j]
                mass = f0 + f1 + f2 + f3 + f4 + f5 + f6 + f7 + f8
                x = (f1 + f5 + f8 - f3 - f6 - f7) / mass
                y = (f2 + f5 + f6 - f4 - f7 - f8) / mass
                share = omega * mass
                rest = float32(1) - float32(1.5) * (x * x + y * y)
                x3, y3 = float32(3) * x, float32(3) * y
                xx, yy = float32(4.5) * x * x, float32(4.5) * y * y
                a, b = x3 + y3, x3 - y3
                aa, bb = float32(0.5) * a * a, float32(0.5) * b * b
                share1, share5 = share * W1, share * W5
                wall = solid[j] > float32(0.5)
                out0[j] = f0 if wall else keep * f0 + share * W0 * rest
                out1[j] = f3 if wall else keep * f1 + share1 * (rest + x3 + xx) + mass * push1
                out3[j] = f1 if wall else keep * f3 + share1 * (rest - x3 + xx) - mass * push1
                out2[j] = f4 if wall else keep * f2 + share1 * (rest + y3 + yy)
                out4[j] = f2 if wall else keep * f4 + share1 * (rest - y3 + yy)
                out5[j] = f7 if wall else keep * f5 + share5 * (rest + a + aa) + mass * push5
                out7[j] = f5 if wall else keep * f7 + share5 * (rest - a + aa) - mass * push5
                out8[j] = f6 if wall else keep * f8 + share5 * (rest + b + bb) + mass * push5
                out6[j] = f8 if wall else keep * f6 + share5 * (rest - b + bb) - mass * push5


def fluid_engine(
    grid: TileGrid, n_steps: int, viscosity: float, force: float = 0.0, chip: str = "bow"
) -> tr.Engine:
    """An even number of steps; edges wrap around. Handles: populations [9, rows, cols], solid."""
    assert n_steps % 2 == 0, "steps go to and fro between two buffers"
    graph = tr.Graph(tr.IPUModel(chip, tiles_per_ipu=grid.n_tiles).create_device())
    buffers = [[grid.add(graph, f"{name}{k}") for k in range(N_VELOCITIES)] for name in "ab"]
    solid = grid.add(graph, "solid")
    omega = 1 / (3 * viscosity + 0.5)
    to_and_fro = [
        tr.Execute(_step(graph, grid, source, target, solid, (omega, force)))
        for source, target in (buffers, buffers[::-1])
    ]
    everything = tr.concat([p.expand([0]) for p in buffers[0]], 0)
    graph.create_host_write("populations", everything)
    graph.create_host_read("populations", everything)
    graph.create_host_write("solid", solid)
    return tr.Engine(graph, tr.Repeat(n_steps // 2, tr.Sequence(to_and_fro)))


def _step(
    graph: tr.Graph,
    grid: TileGrid,
    source: list[tr.Tensor],
    target: list[tr.Tensor],
    solid: tr.Tensor,
    constants: tuple[float, float],
) -> tr.ComputeSet:
    compute_set = graph.add_compute_set("stream and collide")
    around = [wrapped(population) for population in source]
    for band in grid.bands(graph.target.n_worker_contexts):
        fields = {
            "populations": _streamed(around, band),
            "solid": band.of(solid),
            "out": tr.concat([band.of(population) for population in target], 0),
            "omega": constants[0],
            "force": constants[1],
        }
        graph.add_vertex(compute_set, Collide, fields, tile=band.tile)
    return compute_set


def _streamed(around: list[tr.Tensor], band: Band) -> tr.Tensor:
    """All populations where they come from; `around` has one cell more on each side."""
    views = [
        band.of(population, down=1 - int(E[k, 0]), right=1 - int(E[k, 1]))
        for k, population in enumerate(around)
    ]
    return tr.concat(views, 0)


def equilibrium(mass: np.ndarray, down: np.ndarray, right: np.ndarray) -> np.ndarray:
    """float32[9, rows, cols]: populations at rest in a frame that moves with the fluid."""
    along = E[:, 0, None, None] * down + E[:, 1, None, None] * right
    square = down**2 + right**2
    shape = 1 + 3 * along + 4.5 * along**2 - 1.5 * square
    return (WEIGHTS[:, None, None] * mass * shape).astype(np.float32)


def velocity(populations: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(down, right) of every cell."""
    mass = populations.sum(0)
    down, right = (np.tensordot(E[:, axis], populations, 1) / mass for axis in (0, 1))
    return down, right
