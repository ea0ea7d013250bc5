"""Rotating shallow water as a tile program: Sadourny's scheme on a staggered grid, leapfrog steps.

Variables of a cell: `p`, the depth of the water times gravity, in its middle; `u` on its left edge,
to the right; `v` on its upper edge, downwards; vorticity on its upper left corner. Cells have side
1, edges of the plane wrap around. A step has two compute sets: `fluxes` from u, v and p with their
halos, then `update`, which reads the fluxes with their halos and changes u, v and p in place.
Before each, a copy renews the ends of rows, where the plane wraps around.

    R. Sadourny, The dynamics of finite-difference models of the shallow-water equations, 1975
"""

from typing import Any

import tremula as tr
from tremula import InOut, Input, Output, Vector, Vertex, float32
from tremula.garden.models.science.tile_grids import RingedGrid, TileGrid, close_rings

STATE = ("u", "v", "p")
FLUXES = ("across", "down", "spin", "head")
FILTER = 0.001  # Robert and Asselin's, which keeps odd and even steps together


class Fluxes(Vertex):
    """Mass fluxes, potential vorticity and Bernoulli's head of a band of cells."""

    u: Vector[Input[Vector[float32]]]  # with one cell more on each side, as v and p
    v: Vector[Input[Vector[float32]]]
    p: Vector[Input[Vector[float32]]]
    across: Vector[Output[Vector[float32]]]
    down: Vector[Output[Vector[float32]]]
    spin: Vector[Output[Vector[float32]]]
    head: Vector[Output[Vector[float32]]]
    coriolis: float32  # pyright: ignore[reportInvalidTypeForm]

    def compute(self: Any) -> None:
        half, quarter, four = float32(0.5), float32(0.25), float32(4)
        turning = self.coriolis
        for i in range(len(self.across)):
            u_above, u = self.u[i], self.u[i + 1]
            v, v_below = self.v[i + 1], self.v[i + 2]
            p_above, p = self.p[i], self.p[i + 1]
            across, down, spin, head = self.across[i], self.down[i], self.spin[i], self.head[i]
            for j in range(len(across)):
                here, left, above = p[j + 1], p[j], p_above[j + 1]
                across[j] = half * (here + left) * u[j + 1]
                down[j] = half * (here + above) * v[j + 1]
                turn = turning + v[j + 1] - v[j] - u[j + 1] + u_above[j + 1]
                spin[j] = four * turn / (here + left + above + p_above[j])
                squares = u[j + 2] * u[j + 2] + u[j + 1] * u[j + 1]
                head[j] = here + quarter * (
                    squares + v_below[j + 1] * v_below[j + 1] + v[j + 1] * v[j + 1]
                )


class Update(Vertex):
    """A leapfrog step of a band of cells, from fluxes with one cell more on each side."""

    across: Vector[Input[Vector[float32]]]
    down: Vector[Input[Vector[float32]]]
    spin: Vector[Input[Vector[float32]]]
    head: Vector[Input[Vector[float32]]]
    u: Vector[InOut[Vector[float32]]]
    v: Vector[InOut[Vector[float32]]]
    p: Vector[InOut[Vector[float32]]]
    u_old: Vector[InOut[Vector[float32]]]
    v_old: Vector[InOut[Vector[float32]]]
    p_old: Vector[InOut[Vector[float32]]]
    two_dt: float32  # pyright: ignore[reportInvalidTypeForm]
    blend: float32  # of the filter; 0 in the first step  # pyright: ignore[reportInvalidTypeForm]

    def compute(self: Any) -> None:
        dt, eighth, blend = self.two_dt, float32(0.125), self.blend
        keep = float32(1) - float32(2) * blend
        for i in range(len(self.u)):
            across_above, across = self.across[i], self.across[i + 1]
            down, down_below = self.down[i + 1], self.down[i + 2]
            spin, spin_below = self.spin[i + 1], self.spin[i + 2]
            head_above, head = self.head[i], self.head[i + 1]
            u, v, p = self.u[i], self.v[i], self.p[i]
            u_old, v_old, p_old = self.u_old[i], self.v_old[i], self.p_old[i]
            for j in range(len(u)):
                downs = down_below[j + 1] + down_below[j] + down[j] + down[j + 1]
                turned = eighth * (spin_below[j + 1] + spin[j + 1]) * downs
                u_new = u_old[j] + dt * (turned - head[j + 1] + head[j])
                acrosses = across[j + 2] + across[j + 1] + across_above[j + 1] + across_above[j + 2]
                turned = eighth * (spin[j + 2] + spin[j + 1]) * acrosses
                v_new = v_old[j] - dt * (turned + head[j + 1] - head_above[j + 1])
                outflow = across[j + 2] - across[j + 1] + down_below[j + 1] - down[j + 1]
                p_new = p_old[j] - dt * outflow
                u_old[j] = keep * u[j] + blend * (u_new + u_old[j])
                v_old[j] = keep * v[j] + blend * (v_new + v_old[j])
                p_old[j] = keep * p[j] + blend * (p_new + p_old[j])
                u[j] = u_new
                v[j] = v_new
                p[j] = p_new


def water_engine(
    grid: TileGrid, n_steps: int, dt: float, coriolis: float, chip: str = "bow"
) -> tr.Engine:
    """The first step is Euler's, the others leap. Handles to write and read: u, v, p."""
    graph = tr.Graph(tr.IPUModel(chip, tiles_per_ipu=grid.n_tiles).create_device())
    state = {name: grid.add_ringed(graph, name) for name in STATE}
    old = {name: grid.add(graph, f"{name}_old") for name in STATE}
    fluxes = {name: grid.add_ringed(graph, name) for name in FLUXES}
    for name, field in state.items():
        graph.create_host_write(name, field.cells)
        graph.create_host_read(name, field.cells)
    cells = {name: field.cells for name, field in state.items()}
    changed = cells | {f"{name}_old": tensor for name, tensor in old.items()}
    find_fluxes = _fluxes(graph, grid, state, fluxes, coriolis)
    first, later = (
        _update(graph, grid, fluxes, changed, step) for step in ((dt, 0.0), (2 * dt, FILTER))
    )
    remember = [tr.Copy(cells[name], old[name]) for name in STATE]
    leaps = tr.Repeat(n_steps - 1, tr.Sequence([find_fluxes, later]))
    return tr.Engine(graph, tr.Sequence([*remember, find_fluxes, first, leaps]))


def _fluxes(
    graph: tr.Graph,
    grid: TileGrid,
    state: dict[str, RingedGrid],
    fluxes: dict[str, RingedGrid],
    coriolis: float,
) -> tr.Sequence:
    compute_set = graph.add_compute_set("fluxes")
    around = {name: field.around for name, field in state.items()}
    for band in grid.bands(graph.target.n_worker_contexts):
        fields: dict[str, Any] = {n: band.of(tensor, halo=1) for n, tensor in around.items()}
        fields |= {name: band.of(field.cells) for name, field in fluxes.items()}
        fields["coriolis"] = coriolis
        graph.add_vertex(compute_set, Fluxes, fields, tile=band.tile)
    return tr.Sequence([close_rings(list(state.values())), tr.Execute(compute_set)])


def _update(
    graph: tr.Graph,
    grid: TileGrid,
    fluxes: dict[str, RingedGrid],
    state: dict[str, tr.Tensor],
    step: tuple[float, float],
) -> tr.Sequence:
    compute_set = graph.add_compute_set("update")
    around = {name: field.around for name, field in fluxes.items()}
    for band in grid.bands(graph.target.n_worker_contexts):
        fields: dict[str, Any] = {n: band.of(tensor, halo=1) for n, tensor in around.items()}
        fields |= {name: band.of(tensor) for name, tensor in state.items()}
        fields |= {"two_dt": step[0], "blend": step[1]}
        graph.add_vertex(compute_set, Update, fields, tile=band.tile)
    return tr.Sequence([close_rings(list(fluxes.values())), tr.Execute(compute_set)])
