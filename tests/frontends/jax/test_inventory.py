"""Every name of TessellateIPU is there and works: primitives, helpers, seeds, vertices in full."""

from importlib import import_module
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.core import ShapedArray
from jax.extend.core import Primitive

import tessellate_ipu as ti
import tremula
import tremula.jax
from tessellate_ipu import core
from tessellate_ipu.lax.tile_random import tile_get_hw_seeds, tile_set_hw_seeds

TILES = (1, 2, 7)
ON_TILES = {"tiles": "run", "chip": "gc2"}
NAMES = {
    "tessellate_ipu": """TileShardedArray create_ipu_tile_primitive declare_ipu_tile_primitive
        ipu_cycle_count tile_constant_replicated tile_constant_sharded tile_data_barrier tile_gather
        tile_map tile_map_primitive tile_put_replicated tile_put_sharded IpuDevice IpuTargetType
        is_ipu_model __version__""",
    "tessellate_ipu.core": """tile_barrier create_ipu_tile_primitive_v2 register_ipu_tile_primitive
        get_ipu_tile_primitive_translation hw_cycle_count_p ipu_hw_cycle_count
        ipu_cycle_count_overhead IpuTileMapEquation IpuVertexIOType from_numpy_dtype_to_ipu_type
        from_ipu_type_to_numpy_dtype get_ipu_type_name make_ipu_shaped_array
        make_ipu_vertex_attributes make_ipu_vertex_constant_info make_ipu_vertex_in_info
        make_ipu_vertex_inout_info make_ipu_vertex_inputs make_ipu_vertex_io_info
        make_ipu_vertex_name_templated make_ipu_vertex_out_info make_ipu_vertex_outputs
        make_ipu_vector1d_worker_offsets make_ipu_vector1d_worker_offsets_and_sizes""",
    "tessellate_ipu.lax": """bitcast_convert_type_p clamp_p convert_element_type_p iota_p reshape_p
        select_n_p integer_pow_p reduce_sum_p reduce_max_p reduce_min_p reduce_prod_p reduce_and_p
        reduce_or_p cumsum_p cumprod_p cummax_p cummin_p dot_general_p gather_p scatter_p
        scatter_add_p scatter_max_p scatter_min_p scatter_mul_p scaled_add_p scaled_sub_p fill_p
        rotation2d_p tile_copy tile_fill tile_rotation2d tile_random_uniform tile_random_normal
        tile_get_hw_seeds tile_set_hw_seeds IpuConvVertexType tile_random""",
    "tessellate_ipu.linalg": "ipu_eigh ipu_qr ipu_hessenberg",
}
UNARY = """abs asin atan cbrt ceil cos erf exp expm1 floor is_finite log log1p neg round rsqrt sign
    sin sqrt tan tanh""".split()
OF_INTEGERS = "not population_count".split()
BINARY = "add atan2 div max min mul pow rem sub".split()
COMPARED = (
    "eq ge gt le lt ne and or xor shift_left shift_right_arithmetic shift_right_logical".split()
)
X = np.linspace(0.1, 0.9, 12, dtype=np.float32).reshape(3, 4)
I = np.arange(1, 13, dtype=np.int32).reshape(3, 4)


@pytest.mark.parametrize("module", NAMES)
def test_names(module):
    """The modules have the names that programs import."""
    result = import_module(module)
    assert not [name for name in NAMES[module].split() if not hasattr(result, name)]


@pytest.mark.slow
def test_every_primitive_maps():
    """Unary, binary, comparing and shifting primitives, plain and in place, are those of JAX."""

    def mapped(x, i):
        rows, whole = ti.tile_put_sharded(x, TILES), ti.tile_put_sharded(i, TILES)
        result = {}
        for name in UNARY + BINARY + OF_INTEGERS:
            operands = [whole if name in OF_INTEGERS else rows] * (1 + (name in BINARY))
            result[f"{name}_inplace"] = ti.tile_map(getattr(ti.lax, f"{name}_inplace_p"), *operands)
            function = getattr(jax.lax, {"not": "bitwise_not"}.get(name, name))
            options = {"round": {"rounding_method": jax.lax.RoundingMethod.AWAY_FROM_ZERO}}
            line = jax.make_jaxpr(function)(*(one.array[0] for one in operands)).eqns[0]
            params = {**line.params, **options.get(name, {})}
            result[name] = ti.tile_map(getattr(ti.lax, f"{name}_p"), *operands, **params)
        for name in COMPARED:
            result[name] = ti.tile_map(getattr(ti.lax, f"{name}_p"), whole, whole)
        return {name: one.array for name, one in result.items()}

    expected, ours = jax.jit(mapped)(X, I), tremula.jax.jit(mapped)(X, I)
    for name, theirs in expected.items():
        np.testing.assert_allclose(ours[name], theirs, rtol=1e-5, atol=1e-6, err_msg=name)
        if f"{name}_inplace" in expected:
            np.testing.assert_array_equal(ours[name], ours[f"{name}_inplace"], err_msg=name)


@pytest.mark.slow
@pytest.mark.parametrize("choices", [{}, ON_TILES], ids=["host", "tiles"])
def test_seeds_of_the_hardware(choices):
    """Seeds that were set are read again, and equal seeds give equal numbers."""

    def drawn(seeds):
        kept = tile_set_hw_seeds(ti.tile_put_sharded(seeds, TILES))
        result = tile_get_hw_seeds(TILES)
        return kept, result, ti.lax.tile_random_uniform(TILES, 8, jnp.float32)

    seeds = np.random.default_rng(0).integers(1, 2**32, (3, 6, 4), dtype=np.uint32)
    with tremula.configured(**choices):
        function = tremula.jax.jit(drawn)
        (kept, result, first), (_, _, again) = function(seeds), function(seeds)
        other = function(seeds[::-1].copy())[2]
    assert result.dtype == np.uint32
    np.testing.assert_array_equal(kept.array, seeds)
    np.testing.assert_array_equal(result.array, seeds)
    np.testing.assert_array_equal(first.array, again.array)
    assert not np.array_equal(first.array, other.array)


def test_wrong_seeds():
    """A seed has four words of 32 bits for each worker."""
    rows = ti.TileShardedArray(jnp.zeros((3, 6, 3), jnp.uint32), TILES)
    with pytest.raises(ValueError, match=r"uint32 \(6, 4\), got uint32 \(6, 3\)"):
        tile_set_hw_seeds(rows)


demo_p = Primitive("demo_in_full")
demo_p.multiple_results = True


def demo_translation(p, tiles, inavals, attributes):
    (x,) = inavals
    half = ShapedArray((x.shape[0], x.shape[1] // 2), x.dtype)
    whole, others = core.make_ipu_vertex_attributes(scale_value=attributes["scale_value"])
    scale = np.full(x.shape, 0.5, x.dtype)
    return core.IpuTileMapEquation(
        vname=core.make_ipu_vertex_name_templated("DemoVertex", x.dtype),
        pname=p.name,
        tiles=tiles,
        inputs_info=[
            core.make_ipu_vertex_in_info("x", x),
            core.make_ipu_vertex_constant_info("constant_scale", scale),
        ],
        outputs_info=core.make_ipu_vertex_outputs({"out0": half, "out1": half}),
        attributes_i32=whole,
        attributes_f32=others,
        tmp_space_name="tmp",
        tmp_space_aval=core.make_ipu_shaped_array(x.shape, x.dtype),
        gp_filename=Path(__file__).with_name("demo_vertex.cpp"),
    )


core.register_ipu_tile_primitive(demo_p, demo_translation)


@pytest.mark.slow
def test_vertices_described_in_full(gxx):
    """A primitive runs as the vertex that its registered function describes."""

    def function(x):
        return ti.tile_map(demo_p, ti.tile_put_sharded(x, TILES), scale_value=3.0)

    x = np.arange(24, dtype=np.float32).reshape(3, 2, 4)
    for choices in ({}, ON_TILES):
        with tremula.configured(**choices):
            first, second = tremula.jax.jit(function)(x)
        np.testing.assert_allclose(first.array, (1.5 * x).reshape(3, -1)[:, 1::2].reshape(3, 2, 2))
        np.testing.assert_allclose(second.array, -first.array)
    assert core.get_ipu_tile_primitive_translation("demo_in_full")[0] is demo_p


def test_helpers_of_descriptions():
    """Types, names and attributes as C++ and NumPy have them; how workers share a vector."""
    assert core.get_ipu_type_name(np.float16) == "half"
    assert core.from_ipu_type_to_numpy_dtype(core.IpuType.UNSIGNED_SHORT) == np.uint16
    name = core.make_ipu_vertex_name_templated("V", np.dtype(np.int8), True, 3, "auto")
    assert name == "V<signed char,true,3,auto>"
    with pytest.raises(tremula.jax.JaxError, match="no elements of type float64"):
        core.from_numpy_dtype_to_ipu_type(np.float64)
    with pytest.raises(TypeError, match="attribute a is a number"):
        core.make_ipu_vertex_attributes(a="1")
    both = core.make_ipu_vertex_inputs({"x": ShapedArray((2,), np.float32)}, inout_names={"x"})
    assert both[0].iotype is core.IpuVertexIOType.InOut
    np.testing.assert_array_equal(core.make_num_elements_per_worker(16, 6), [3, 3, 3, 3, 2, 2])
    for n, expected in ((4, [0, 1, 2, 2, 2, 2, 2]), (128, [0, 11, 22, 33, 44, 55, 64])):
        np.testing.assert_array_equal(core.make_ipu_vector1d_worker_offsets(n), expected)
    shares = core.make_ipu_vector1d_worker_offsets_and_sizes(30, allow_overlap=True, grain_size=4)
    np.testing.assert_array_equal(shares[:, 0], [0, 4, 8, 11, 0, 0])
    np.testing.assert_array_equal(shares[:, 1], [4, 4, 4, 4, 0, 0])
    with pytest.raises(ValueError, match="cannot be split"):
        core.make_ipu_vector1d_worker_offsets(7)


def test_devices_say_what_they_are():
    """Programs size their tiles by the device."""
    with tremula.jax.ipu_backend(), tremula.configured(chip="gc2"):
        (device,) = jax.devices("ipu")
        assert (device.num_tiles, device.num_worker_contexts) == (1216, 6)
    assert ti.is_ipu_model(device)
    assert device.target_type is ti.IpuTargetType.IPU_MODEL
