"""Parameters of JAX's primitives that a `tile_map` may leave out, as programs for JAX 0.3 do."""

import jax
import numpy as np
import pytest
from jax import lax
from jax.lax import GatherDimensionNumbers, ScatterDimensionNumbers

import tessellate_ipu as ti
from tremula.frontends.jax.tessellate.parameters import DEFAULTS

TILES = (0, 1)
X = np.linspace(0.1, 0.9, 24, dtype=np.float32).reshape(2, 3, 4)
ROWS = GatherDimensionNumbers((1,), (0,), (0,))
INDICES = np.array([[[1], [0]], [[2], [2]]], np.uint32)
CALLS = {
    "argmax": {"axes": (0,)},
    "argmin": {"axes": (0,)},
    "broadcast_in_dim": {"shape": (3, 4, 2), "broadcast_dimensions": (0, 1)},
    "convert_element_type": {"new_dtype": np.float16},
    "cumlogsumexp": {},
    "reshape": {"new_sizes": [2, 6]},
    "slice": {"start_indices": (0, 0), "limit_indices": (2, 2)},
    "split": {"sizes": (1, 2)},
    "top_k": {"k": 2},
} | {f"reduce_{name}": {"axes": [1]} for name in "sum prod max min".split()}
SEPARATE = {"dot_general", "gather", "iota"}  # which take other operands: below


def mapped(name, *rows, **attributes):
    primitive = getattr(lax, f"{name}_p")
    operands = [ti.tile_put_sharded(one, TILES) for one in rows]
    return jax.tree_util.tree_leaves(ti.tile_map(primitive, *operands, **attributes))


@pytest.mark.parametrize("name", sorted({*DEFAULTS, *CALLS} - SEPARATE))
def test_every_default_is_a_parameter(name):
    """JAX takes each primitive with what is filled in."""
    results = jax.jit(lambda x: mapped(name, x, **CALLS.get(name, {})))(X)
    assert all(len(one) == len(TILES) for one in results)


def test_values():
    """What is filled in means what it meant: sums over axes, products, rows, counts, rounding."""
    (product,) = mapped("dot_general", X, X, dimension_numbers=(([1], [1]), ([], [])))
    np.testing.assert_allclose(product, X @ X.transpose(0, 2, 1), rtol=1e-6)
    (rows,) = mapped("gather", X, INDICES, dimension_numbers=ROWS, slice_sizes=(1, 4))
    np.testing.assert_array_equal(rows, np.take_along_axis(X, INDICES.astype(np.int64), 1))
    (count,) = mapped("iota", tiles=TILES, dtype=np.int32, shape=(3,))
    np.testing.assert_array_equal(count, [[0, 1, 2]] * 2)
    (rounded,) = mapped("round", np.float32([[0.5, 1.5], [-0.5, 2.5]]))
    np.testing.assert_array_equal(rounded, [[1, 2], [-1, 3]])
    np.testing.assert_array_equal(mapped("reduce_or", X > 0.8, axes=(1,))[0], (X > 0.8).any(2))


@pytest.mark.parametrize(
    ("name", "expected"),
    [("scatter_add", [1, 32, 3]), ("scatter_mul", [1, 400, 3]), ("scatter_max", [1, 20, 3])],
)
def test_scattered_updates_are_combined(name, expected):
    """Without `update_jaxpr`, updates of one element are combined as the primitive's name says."""
    data, updates = np.float32([[1, 2, 3]] * 2), np.float32([[10, 20]] * 2)
    indices = np.array([[[1], [1]]] * 2, np.uint32)
    numbers = ScatterDimensionNumbers((), (0,), (0,))
    options = {"dimension_numbers": numbers, "update_jaxpr": None, "update_consts": None}
    (result,) = jax.jit(lambda *rows: mapped(name, *rows, **options))(data, indices, updates)
    np.testing.assert_array_equal(result, [expected] * 2)
