"""TessellateIPU: arrays over tiles, primitives and vertices mapped over them, linear algebra."""

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.core import ShapedArray

import tessellate_ipu as ti
import tremula
import tremula.jax
from tessellate_ipu.lax import IN_PLACE, scaled_add_p
from tessellate_ipu.linalg import ipu_eigh, ipu_hessenberg, ipu_qr

TILES = (0, 2, 5)
X = np.arange(48, dtype=np.float32).reshape(3, 4, 4) / 10
ON_TILES = {"tiles": "run", "chip": "gc2"}


@ti.declare_ipu_tile_primitive(
    "DemoVertex<{x}>", gp_filename=Path(__file__).with_name("demo_vertex.cpp")
)
def demo_p(x):
    """Half as many columns, scaled by a constant and an attribute."""
    rows, columns = x.shape
    half = ShapedArray((rows, columns // 2), x.dtype)
    constants = {"constant_scale": np.full((rows, columns), 0.5, x.dtype)}
    return {"out0": half, "out1": half}, constants, {"tmp": x}, 100


def demo_in_jax(x, scale_value):
    taken = (0.5 * scale_value * x.ravel())[1::2].reshape(x.shape[0], -1)
    return taken, -taken


demo_p.def_impl(demo_in_jax)


class Doubled(tremula.Vertex):
    """A vertex in Python."""

    x: tremula.Input[tremula.Vector[tremula.FLOAT]]
    out: tremula.Output[tremula.Vector[tremula.FLOAT]]

    def compute(self):
        for i in range(len(self.out)):
            self.out[i] = self.x[i] * 2


def everywhere(function, *operands):
    """What JAX, the host and tiles give."""
    expected = jax.jit(function)(*operands)
    result = [tremula.jax.jit(function)(*operands)]
    with tremula.configured(**ON_TILES):
        result.append(tremula.jax.jit(function)(*operands))
    return expected, result


def assert_same(function, *operands):
    expected, result = everywhere(function, *operands)
    for got in result:
        pairs = zip(*map(jax.tree_util.tree_leaves, (got, expected)), strict=True)
        for ours, theirs in pairs:
            np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)


@pytest.mark.slow
def test_vertices_of_a_file(gxx):
    """A C++ vertex on each tile: constants, temporary space, an attribute, two results."""

    def function(x):
        rows = ti.tile_put_sharded(x, TILES)
        first, second = ti.tile_map(demo_p, rows, scale_value=1.5)
        again = ti.tile_gather(first, [2, 0], (7, 8))
        return ti.tile_map(jax.lax.add_p, first, second), first, again

    assert_same(function, X)
    _, first, again = tremula.jax.jit(function)(X)
    assert (first.tiles, first.shape, first.tile_shape) == (TILES, (3, 4, 2), (4, 2))
    assert again.tiles == (7, 8)


@pytest.mark.slow
def test_vertices_in_python():
    """A class may stand for the file; without an implementation in JAX it runs here only."""
    describe = lambda x: ({"out": x}, {}, {}, 1)  # noqa: E731
    doubled = ti.create_ipu_tile_primitive_v2("doubled", "Doubled", describe, Doubled)
    function = lambda x: ti.tile_map(doubled, ti.tile_put_sharded(x, TILES))  # noqa: E731
    for choices in ({}, ON_TILES):
        with tremula.configured(**choices):
            np.testing.assert_array_equal(tremula.jax.jit(function)(X).array, 2 * X)
    with pytest.raises(NotImplementedError, match="runs on tiles only"):
        jax.jit(function)(X)


@pytest.mark.slow
def test_primitives_of_jax_on_tiles():
    """lax primitives with their parameters, in place or scaled, and copies on every tile."""

    def function(x):
        rows, same = ti.tile_put_sharded(x, TILES), ti.tile_put_replicated(x[0], TILES)
        two = ti.tile_constant_replicated(np.float32(2), TILES)
        return (
            ti.tile_map(jax.lax.neg_p, rows),
            ti.tile_map(IN_PLACE["exp_inplace_p"], rows),
            ti.tile_map(scaled_add_p, rows, same, two),
            ti.tile_map(jax.lax.reduce_sum_p, rows, axes=(0,), out_sharding=None),
            *ti.tile_data_barrier(rows, same),
            ti.lax.tile_fill((4,), 3.0, jnp.float32, TILES),
            ti.lax.tile_rotation2d(ti.tile_constant_replicated(np.float32([0.6, 0.8]), TILES),
                                   rows, same),
        )  # fmt: skip

    assert_same(function, X)


@pytest.mark.slow
def test_rows_are_where_they_should_be():
    """Work on rows of three tiles takes as long as on one, and the clock says so."""

    def cycles(tiles):
        def function(x):
            rows, begin = ti.ipu_cycle_count(ti.tile_put_sharded(x, tiles))
            rows, end = ti.ipu_cycle_count(ti.tile_map(jax.lax.exp_p, rows, accuracy=None))
            return rows, begin, end

        x = jnp.ones((len(tiles), 600))
        with tremula.configured(**ON_TILES):
            _, begin, end = tremula.jax.jit(function)(x)
        assert begin.shape == (len(tiles), 2)
        return int(end.array[0, 0]) - int(begin.array[0, 0])

    spread, together = cycles((3, 4, 5)), cycles((3, 3, 3))
    assert 0 < spread < together


@pytest.mark.slow
def test_random_numbers_of_the_machine():
    """Uniform floats are around their offset, integers from it; normal numbers have their mean."""

    def function():
        return (ti.lax.tile_random_uniform(TILES, 2000, jnp.float32, 1.0, 2.0),
                ti.lax.tile_random_uniform(TILES, 2000, jnp.int32, 10, 256),
                ti.lax.tile_random_normal(TILES, 2000, jnp.float32, 3.0, 0.5))  # fmt: skip

    on_tiles = tremula.jax.jit(function)
    with tremula.configured(**ON_TILES):
        on_tiles = on_tiles()
    for uniform, whole, normal in (jax.jit(function)(), tremula.jax.jit(function)(), on_tiles):
        assert abs(uniform.array.mean() - 1) < 0.05
        assert 0 <= uniform.array.min() < 0.1
        assert 1.9 < uniform.array.max() <= 2
        assert (whole.array.min(), whole.array.max()) == (10, 265)
        assert abs(normal.array.mean() - 3) < 0.05
        assert abs(normal.array.std() - 0.5) < 0.05


@pytest.mark.slow
@pytest.mark.parametrize("n", [pytest.param(6, marks=pytest.mark.wide), 7])
def test_factors_over_tiles(n):
    """Eigenvectors, QR and Hessenberg forms multiply to the matrix, on the host and on tiles."""
    random = np.random.default_rng(n)
    x = random.standard_normal((n, n)).astype(np.float32)
    symmetric = x + x.T
    for choices in ({}, ON_TILES):
        with tremula.configured(**choices):
            vectors, values = tremula.jax.jit(ipu_eigh)(symmetric)
            q, r = map(np.asarray, tremula.jax.jit(ipu_qr)(x))
            base, form = map(np.asarray, tremula.jax.jit(ipu_hessenberg)(x))
        np.testing.assert_allclose(values, np.linalg.eigvalsh(symmetric), atol=1e-5)
        np.testing.assert_allclose(symmetric @ vectors, vectors * values, atol=1e-5)
        np.testing.assert_allclose(q @ r.T, x, atol=1e-5)
        np.testing.assert_allclose(np.tril(r.T, -1), 0, atol=1e-5)
        np.testing.assert_allclose(base @ form @ base.T, x, atol=1e-5)
        np.testing.assert_allclose(np.tril(form, -2), 0, atol=1e-5)


def test_slices_and_shapes_of_tile_arrays():
    """Rows can be sliced, contiguous parts of tiles, too; the first axis stays."""
    rows = ti.TileShardedArray(jnp.asarray(X), TILES)
    assert rows[1:].tiles == (2, 5)
    assert rows[-1].shape == (1, 4, 4)
    assert rows[0, 2, 1:3].shape == (1, 2)
    assert rows.tile_reshape((16,)).shape == rows.reshape((-1, 16)).shape == (3, 16)
    joined = ti.TileShardedArray.concatenate([rows[:1], rows])
    assert (joined.tiles, len(joined), joined.num_tiles) == ((0, *TILES), 4, 4)
    (leaf,) = jax.tree_util.tree_leaves(rows)
    assert leaf is rows.array


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda x: ti.tile_put_sharded(x, (1, 2)), ValueError, "Inconsistent IPU sharded array"),
        (lambda x: ti.tile_put_sharded(x, (-1, 2, 3)), ValueError, "numbered from 0"),
        (lambda x: ti.TileShardedArray(x, (1,)), ValueError, "Inconsistent IPU sharded array"),
        (lambda x: ti.TileShardedArray(x, TILES)[:, :, 1:], ValueError, "not be contiguous"),
        (lambda x: ti.TileShardedArray(x, TILES)[:, ::2], ValueError, "Unsupported slicing"),
        (lambda x: ti.TileShardedArray(x, TILES).reshape((1, 48)), ValueError, "Can not reshape"),
        (lambda x: ti.tile_gather(x, [0, 3], (1, 2)), ValueError, "indices from 0 to 2"),
        (lambda x: ti.tile_gather(x, [0], (1, 2)), ValueError, "1 indices, but 2 tiles"),
        (lambda x: ti.tile_map(jax.lax.neg_p, x), TypeError, "must be `TileShardedArray`"),
        (lambda _: ti.tile_map(jax.lax.neg_p), ValueError, "needs tiles="),
        (lambda x: ti.tile_map(jax.lax.add_p, ti.TileShardedArray(x, TILES),
                               ti.TileShardedArray(x, (1, 2, 3))), ValueError, "Inconsistent tile"),
        (ipu_eigh, ValueError, "takes a square matrix"),
        (lambda _: ti.lax.tile_random_normal(TILES, 3, np.int32), ValueError, "float16, float32"),
    ],
)  # fmt: skip
def test_wrong_calls(call, error, text):
    """Each wrong call is refused with TessellateIPU's kind of error and a reason."""
    with pytest.raises(error, match=text):
        call(X)


def test_wrong_tiles_and_files(tmp_path):
    """Tiles that the chip does not have, and a codelet file that is not there."""
    function = lambda x: ti.tile_put_sharded(x, (0, 1, 5000))  # noqa: E731
    wrong = pytest.raises(tremula.errors.PoplarError, match="no tile 5000")
    with tremula.configured(**ON_TILES), wrong:
        tremula.jax.jit(function)(X)
    with pytest.raises(FileNotFoundError, match="does not exist"):
        ti.create_ipu_tile_primitive("gone", "Gone", ["x"], {"y": 0}, gp_filename=tmp_path / "x")
