"""A tour of tile_map: rows on tiles, primitives and a vertex of one's own, cycles."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import ShapedArray

import tremula
import tremula.jax
from tessellate_ipu import (
    declare_ipu_tile_primitive,
    ipu_cycle_count,
    tile_gather,
    tile_map,
    tile_put_replicated,
    tile_put_sharded,
)

TILES = tuple(range(100, 132))


class Horner(tremula.Vertex):
    """A polynomial of every element of x."""

    x: tremula.Input[tremula.Vector[tremula.FLOAT]]
    coefficients: tremula.Input[tremula.Vector[tremula.FLOAT]]
    y: tremula.Output[tremula.Vector[tremula.FLOAT]]

    def compute(self):
        for i in range(len(self.y)):
            value = self.coefficients[0]
            for k in range(1, len(self.coefficients)):
                value = value * self.x[i] + self.coefficients[k]
            self.y[i] = value


@declare_ipu_tile_primitive("Horner", Horner)
def horner_p(x: ShapedArray):
    return {"y": x}, {"coefficients": np.float32([2, -1, 0.5])}, {}, 0


@tremula.jax.jit
def program(x, shift):
    rows = tile_put_sharded(x, TILES)  # row i on tile TILES[i]
    shifts = tile_put_replicated(shift, TILES)
    rows, begin = ipu_cycle_count(rows)
    values = tile_map(horner_p, tile_map(jax.lax.add_p, rows, shifts))
    values, end = ipu_cycle_count(values)
    reversed_rows = tile_gather(values, range(len(TILES))[::-1], TILES)  # each row to another tile
    return values.array, reversed_rows.array, end.array[0] - begin.array[0]


def main():
    x = jnp.linspace(-1, 1, 32 * 60).reshape(32, 60)
    shift = jnp.full(60, 0.25)
    with tremula.configured(tiles="run"):  # every vertex on its tile
        values, reversed_rows, cycles = program(x, shift)
    expected = np.polyval([2, -1, 0.5], np.asarray(x) + 0.25)
    print(f"largest difference from NumPy: {np.abs(values - expected).max():.1e}")
    print(f"rows reversed between tiles: {bool((reversed_rows == values[::-1]).all())}")
    print(f"a sum and a polynomial on each of {len(TILES)} tiles: {int(cycles[0])} cycles")


if __name__ == "__main__":
    main()
