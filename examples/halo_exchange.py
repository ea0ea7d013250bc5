"""Halo exchange: one stencil on a 2-D grid in five ways, and the illegal one that is refused.

Each tile owns a block of the grid and needs a ring of its neighbours' cells around it: the halo.
The grid wraps around at its edges. All ways give the same result; they differ in memory and copies:

    way                  buffers for blocks     halos
    views                2, copied back         none: a vertex's input brings them along
    double buffering     2, taking turns        the same
    explicit copies      2 with room for halos  copied in by a program
    in place             1                      in separate buffers
    two steps at once    2 and a margin         two cells deep, and half as many exchanges
"""

import numpy as np

import tremula as tr

N_TILES_SIDE = 4  # blocks per side
BLOCK = 8  # cells per side of a block
N_SIDE = N_TILES_SIDE * BLOCK
N_STEPS = 10


def mean_of_five(centre, north, south, west, east):
    return (centre + north + south + west + east) * tr.float32(0.2)


class Stencil(tr.Vertex):
    """`out` gets means of cells and their neighbours; `cells` is larger by one all round."""

    cells: tr.Vector[tr.Input[tr.Vector[tr.float32]]]
    out: tr.Vector[tr.Output[tr.Vector[tr.float32]]]

    def compute(self):
        for y in range(len(self.out)):
            for x in range(len(self.out[y])):
                self.out[y][x] = mean_of_five(
                    self.cells[y + 1][x + 1],
                    self.cells[y][x + 1],
                    self.cells[y + 2][x + 1],
                    self.cells[y + 1][x],
                    self.cells[y + 1][x + 2],
                )


class StencilInPlace(tr.Vertex):
    """A stencil step in `cells` itself: `above` remembers the old values of the row before."""

    cells: tr.Vector[tr.InOut[tr.Vector[tr.float32]]]
    north: tr.Input[tr.Vector[tr.float32]]
    south: tr.Input[tr.Vector[tr.float32]]
    west: tr.Input[tr.Vector[tr.float32]]
    east: tr.Input[tr.Vector[tr.float32]]
    above: tr.InOut[tr.Vector[tr.float32]]

    def compute(self):
        for x in range(len(self.north)):
            self.above[x] = self.north[x]
        for y in range(len(self.cells)):
            left = self.west[y]
            for x in range(len(self.north)):
                old = self.cells[y][x]
                below = self.cells[y + 1][x] if y + 1 < len(self.cells) else self.south[x]
                right = self.cells[y][x + 1] if x + 1 < len(self.north) else self.east[y]
                self.cells[y][x] = mean_of_five(old, self.above[x], below, left, right)
                self.above[x] = old
                left = old


def tile_of(row: int, col: int) -> int:
    """Rows and columns of blocks wrap around."""
    return row % N_TILES_SIDE * N_TILES_SIDE + col % N_TILES_SIDE


PLACES = [(row, col) for row in range(N_TILES_SIDE) for col in range(N_TILES_SIDE)]


def block(grid: tr.Tensor, row: int, col: int, margin: int = 0) -> tr.Tensor:
    """The view of a block; `grid` may be larger than the blocks by 2 * margin."""
    y, x = row * BLOCK, col * BLOCK
    return grid[y : y + BLOCK + 2 * margin, x : x + BLOCK + 2 * margin]


def wrapped(grid: tr.Tensor, margin: int) -> tr.Tensor:
    """The grid with a margin from the opposite sides: a view, so nothing is copied."""
    tall = tr.concat([grid[-margin:], grid, grid[:margin]], 0)
    return tr.concat([tall[:, -margin:], tall, tall[:, :margin]], 1)


def add_grid(graph: tr.Graph, name: str) -> tr.Tensor:
    grid = graph.add_variable(tr.FLOAT, [N_SIDE, N_SIDE], name)
    for row, col in PLACES:
        graph.set_tile_mapping(block(grid, row, col), tile_of(row, col))
    return grid


def add_blocks(graph: tr.Graph, name: str, shape: list[int]) -> list[tr.Tensor]:
    """A separate variable for each tile."""
    return [
        graph.add_variable(tr.FLOAT, shape, f"{name}{tile}", mapping=tile)
        for tile in range(len(PLACES))
    ]


def stencil_from(graph: tr.Graph, source: tr.Tensor, destination: tr.Tensor) -> tr.Program:
    """One step between whole grids; the halos are parts of the views the vertices read."""
    compute_set = graph.add_compute_set("stencil")
    for row, col in PLACES:
        fields = {
            "cells": block(wrapped(source, 1), row, col, margin=1),
            "out": block(destination, row, col),
        }
        graph.add_vertex(compute_set, Stencil, fields, tile=tile_of(row, col))
    return tr.Execute(compute_set)


def views(graph: tr.Graph) -> tuple[tr.Tensor, tr.Program]:
    """The simplest: read views of one grid, write another, copy it back."""
    grid, new = add_grid(graph, "grid"), add_grid(graph, "new")
    step = tr.Sequence(stencil_from(graph, grid, new), tr.Copy(new, grid))
    return grid, tr.Repeat(N_STEPS, step)


def double_buffering(graph: tr.Graph) -> tuple[tr.Tensor, tr.Program]:
    """A → B, then B → A: nothing is copied back, for a second compute set's code."""
    a, b = add_grid(graph, "a"), add_grid(graph, "b")
    two_steps = tr.Sequence(stencil_from(graph, a, b), stencil_from(graph, b, a))
    return a, tr.Repeat(N_STEPS // 2, two_steps)


def explicit_copies(graph: tr.Graph) -> tuple[tr.Tensor, tr.Program]:
    """Blocks with room for a halo; one program copies all edges into the neighbours' halos."""
    padded = add_blocks(graph, "padded", [BLOCK + 2, BLOCK + 2])
    new = add_blocks(graph, "new", [BLOCK, BLOCK])
    edges, halos = [], []
    for row, col in PLACES:
        mine = padded[tile_of(row, col)]
        north, south = padded[tile_of(row - 1, col)], padded[tile_of(row + 1, col)]
        west, east = padded[tile_of(row, col - 1)], padded[tile_of(row, col + 1)]
        edges += [north[-2, 1:-1], south[1, 1:-1], west[1:-1, -2], east[1:-1, 1]]
        halos += [mine[0, 1:-1], mine[-1, 1:-1], mine[1:-1, 0], mine[1:-1, -1]]
    compute_set = graph.add_compute_set("stencil")
    for tile in range(len(PLACES)):
        graph.add_vertex(compute_set, Stencil, {"cells": padded[tile], "out": new[tile]}, tile=tile)
    inner = [tensor[1:-1, 1:-1] for tensor in padded]
    step = tr.Sequence(
        tr.Copy(tr.concat(edges), tr.concat(halos)),
        tr.Execute(compute_set),
        tr.Copy(tr.concat(new), tr.concat(inner)),
    )
    return assembled(inner), tr.Repeat(N_STEPS, step)


def in_place(graph: tr.Graph) -> tuple[tr.Tensor, tr.Program]:
    """One buffer: the old edges are copied first, so no vertex reads what another one writes."""
    blocks = add_blocks(graph, "block", [BLOCK, BLOCK])
    halos = add_blocks(graph, "halo", [4, BLOCK])
    above = add_blocks(graph, "above", [BLOCK])
    compute_set = graph.add_compute_set("stencil in place")
    edges = []
    for row, col in PLACES:
        tile = tile_of(row, col)
        edges += [blocks[tile_of(row - 1, col)][-1], blocks[tile_of(row + 1, col)][0]]
        edges += [blocks[tile_of(row, col - 1)][:, -1], blocks[tile_of(row, col + 1)][:, 0]]
        sides = dict(zip(("north", "south", "west", "east"), halos[tile], strict=True))
        fields = {"cells": blocks[tile], **sides, "above": above[tile]}
        graph.add_vertex(compute_set, StencilInPlace, fields, tile=tile)
    copy = tr.Copy(tr.concat(edges), tr.concat(halos).flatten())
    return assembled(blocks), tr.Repeat(N_STEPS, tr.Sequence(copy, tr.Execute(compute_set)))


def two_steps_at_once(graph: tr.Graph) -> tuple[tr.Tensor, tr.Program]:
    """Fetch a halo two cells deep, then do two steps: the first one also on the margin."""
    grid = add_grid(graph, "grid")
    larger = add_blocks(graph, "larger", [BLOCK + 2, BLOCK + 2])
    first, second = graph.add_compute_set("first"), graph.add_compute_set("second")
    for row, col in PLACES:
        tile = tile_of(row, col)
        cells = block(wrapped(grid, 2), row, col, margin=2)
        graph.add_vertex(first, Stencil, {"cells": cells, "out": larger[tile]}, tile=tile)
        fields = {"cells": larger[tile], "out": block(grid, row, col)}
        graph.add_vertex(second, Stencil, fields, tile=tile)
    return grid, tr.Repeat(N_STEPS // 2, tr.Sequence(tr.Execute(first), tr.Execute(second)))


def illegal(graph: tr.Graph) -> tuple[tr.Tensor, tr.Program]:
    """In place without buffers: a vertex may read an edge its neighbour has already changed."""
    grid = add_grid(graph, "grid")
    return grid, tr.Repeat(N_STEPS, stencil_from(graph, grid, grid))


def assembled(blocks: list[tr.Tensor]) -> tr.Tensor:
    """The whole grid as a view of all blocks."""
    rows = [blocks[i : i + N_TILES_SIDE] for i in range(0, len(blocks), N_TILES_SIDE)]
    return tr.concat([tr.concat(row, 1) for row in rows], 0)


def run(way, start: np.ndarray) -> tuple[np.ndarray, int]:
    """The grid after all steps, and the modelled cycles."""
    device = tr.IPUModel("bow", tiles_per_ipu=len(PLACES)).create_device()
    graph = tr.Graph(device)
    grid, steps = way(graph)
    program = tr.Sequence(steps)
    graph.create_host_write("grid", grid)
    graph.create_host_read("grid", grid)
    graph.create_host_read("cycles", tr.cycle_count(graph, program, 0))
    engine = tr.Engine(graph, program).load(device)
    engine.write_tensor("grid", start)
    engine.run()
    cycles = int(engine.read_tensor("cycles").view(np.uint64)[0])
    return engine.read_tensor("grid"), cycles


start = np.random.default_rng(16).random((N_SIDE, N_SIDE), np.float32)
expected = start
for _ in range(N_STEPS):
    north, south = np.roll(expected, 1, 0), np.roll(expected, -1, 0)
    west, east = np.roll(expected, 1, 1), np.roll(expected, -1, 1)
    expected = (expected + north + south + west + east) * np.float32(0.2)

for way in (views, double_buffering, explicit_copies, in_place, two_steps_at_once):
    result, cycles = run(way, start)
    assert np.array_equal(result, expected), way.__name__
    print(f"{way.__name__}: the same result, {cycles / N_STEPS:.0f} cycles per step")

try:
    run(illegal, start)
except tr.errors.GraphCycleError as error:
    print(f"illegal: GraphCycleError: {error}")
else:
    raise AssertionError("a data race went unnoticed")
print("Program complete")
