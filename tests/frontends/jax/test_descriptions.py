"""Descriptions of vertices: types, fields, equations and their JSON, as TessellateIPU has them."""

import base64
from pathlib import Path

import jax
import numpy as np
import pytest
from jax import lax
from jax.core import ShapedArray
from jax.extend.core import Primitive

import tessellate_ipu as ti
import tremula.jax
from tessellate_ipu.core import tile_array_primitives as prims
from tessellate_ipu.core import tile_interpreter_primitives as tip
from tessellate_ipu.core.tile_array import check_tile_array_multi_slice
from tessellate_ipu.core.tile_interpreter import (
    check_in_out_arguments,
    get_ipu_tile_primitive_translation,
    register_ipu_tile_primitive,
)
from tessellate_ipu.lax import tile_lax_binary, tile_lax_dot, tile_lax_reduce, tile_lax_unary
from tessellate_ipu.lib.pytessellate_ipu_core import (
    Base64Data,
    IpuShapedArray,
    IpuTensorSlice,
    IpuTileMapEquation,
    IpuType,
    IpuVertexAttributeF32,
    IpuVertexAttributeI32,
    IpuVertexIOInfo,
    IpuVertexIOType,
)

TILES = (0, 1, 2)
FLOAT16 = ShapedArray((10, 12), np.dtype(np.float16))
FLOAT32 = ShapedArray((2, 8), np.dtype(np.float32))


def test_types_and_data():
    """Types have sizes; data is base 64, and empty data is null in JSON."""
    assert [t.bytesize for t in (IpuType.QUARTER, IpuType.HALF, IpuType.FLOAT)] == [1, 2, 4]
    assert IpuType.FLOAT == 12
    assert Base64Data(base64.b64encode(b"12345")).decoded_data == "12345"
    assert Base64Data.from_decoded_data("12345").encoded_data == "MTIzNDU="
    for text in ("{}", "null"):
        assert Base64Data.from_json_str(text).to_json_str() == "null"
    assert Base64Data.from_json_str('{"encoded_data":"1"}').to_json_str() == '{"encoded_data":"1"}'
    shaped = IpuShapedArray(shape=(1, 2, 3), dtype=IpuType.FLOAT)
    assert (shaped.shape, shaped.size, IpuShapedArray().size) == ([1, 2, 3], 6, 1)
    assert IpuTensorSlice(10, 15).to_json_str() == '{"begin":10,"end":15}'


def test_fields_and_equations():
    """Fields compare by name, kind and shape; they and equations go through JSON and back."""
    field = IpuVertexIOInfo("in0", IpuVertexIOType.InOut, [1, 2, 3], IpuType.FLOAT)
    text = field.to_json_str()
    assert text == (
        '{"aval":{"dtype":12,"shape":[1,2,3]},"constant_data":null,"iotype":2,"is_scalar":false,'
        '"name":"in0","slices2d":[]}'
    )
    assert IpuVertexIOInfo.from_json_str(text) == field
    constant = tip.make_ipu_vertex_constant_info("c", np.float32([1, 2, 3, 4]), vertex_dim2=2)
    assert (constant.is_constant_input, len(constant.slices2d)) == (True, 2)
    np.testing.assert_array_equal(constant.constant, [1, 2, 3, 4])
    equation = IpuTileMapEquation(
        tiles=[10], vname="V", pname="p", inputs_info=[field, constant], outputs_info=[field],
        attributes_f32=[IpuVertexAttributeF32("f", 2.5)],
        attributes_i32=[IpuVertexAttributeI32("i", 3)],
    )  # fmt: skip
    assert (equation.num_inputs, equation.num_outputs, equation.num_inouts) == (2, 1, 1)
    assert (equation.use_tmp_space, equation.tmp_space_aval.shape) == (False, [0])
    assert IpuTileMapEquation.from_json_str(equation.to_json_str()) == equation
    barrier = prims.TileDataBarrierParams("v", [[0, 1], [3]], 5)
    assert barrier.to_json_str() == '{"inputs_tiles":[[0,1],[3]],"max_tile":5,"vname":"v"}'


def test_vertices_of_primitives():
    """A primitive of JAX is described by the PopLibs vertex that TessellateIPU runs for it."""
    described = tile_lax_unary.ipu_unary_primitive_translation(lax.cos_p, (4, 5), [FLOAT16], {})
    name = "popops::UnaryOp1D<popops::expr::UnaryOpType::COS,half>"
    assert (described.vname, described.pname, described.tiles) == (name, "cos", [4, 5])
    assert described.outputs_info[0].shape == [10, 12]
    in_place = tile_lax_binary.add_inplace_p
    _, translation = get_ipu_tile_primitive_translation("add_inplace")
    described = translation(in_place, TILES, [FLOAT32, FLOAT32])
    assert described.vname == "popops::BinaryOp1DInPlace<popops::expr::BinaryOpType::ADD,float>"
    assert described.num_inouts == tip.primitive_num_inout_alias_args(in_place) == 1
    name = tile_lax_reduce.make_continuous_reduce_vertex_fullname(
        lax.reduce_prod_p, np.float32, np.float16
    )
    assert name == "popops::ContinuousReduce<popops::ReduceMul,float,half,false>"
    with pytest.raises(NotImplementedError, match="reduces the last axes"):
        tile_lax_reduce.ipu_reduce_primitive_translation(
            lax.reduce_sum_p, TILES, [FLOAT32], {"axes": (0,)}
        )


def test_products_of_matrices():
    """The vertices of products have TessellateIPU's names, fields and encoded strides."""
    static = tile_lax_dot.IpuConvPartial1x1StaticArgs(np.float32, np.float32, True, False)
    assert static.vertex_name == "poplin::ConvPartial1x1Out<float,float,true,false,8,2,false>"
    args = tile_lax_dot.IpuConvPartial1x1Args(1, 2, 3, 1, 1, 32, 8, True)
    fields = {
        one.name: one.value for one in tile_lax_dot.make_conv_partial1x1_attributes(static, args)
    }
    assert (fields["numOutGroupsM1"], fields["numInGroups"], len(fields)) == (1, 3, 7)
    stride = tile_lax_dot.ipuGetTransformedOutStride(4, 8, 16, True, True)
    assert tile_lax_dot.ipuReverseTransformedOutStride(stride, True, 16, 8) == (True, 4)
    described = tile_lax_dot.ipu_dot_general_primitive_translation(
        lax.dot_general_p, TILES, [FLOAT32, ShapedArray((16, 8), np.dtype(np.float32))],
        {"dimension_numbers": (([1], [1]), ([], [])), "ipu_vertex_type": 1},
    )  # fmt: skip
    assert described.outputs_info[0].shape == [2, 16]
    assert described.inputs_info[2].constant.shape == (18,)
    with pytest.raises(ValueError, match="no narrower type"):
        tile_lax_dot.IpuConvPartialHMACStaticArgs(np.float32, np.float16)


def test_primitives_under_their_names():
    """Registered primitives are called by name, cloned, and registered once."""
    rows = np.ones((3, 4), np.float32)
    once = tip.tile_map_equation_call_single_out([rows], "neg", TILES, "{}")
    np.testing.assert_array_equal(once, -rows)
    assert tip.tile_map_equation_call_abstract_eval(
        FLOAT32, pname="neg", tiles=(0, 1), tile_map_eqn_json=""
    ).shape == (2, 8)
    clone = tip.primitive_clone(lax.add_p, "add_again")
    assert tip.primitive_has_batching(clone)
    assert not tip.primitive_has_impl(Primitive("empty"))
    with pytest.raises(KeyError, match="already registered"):
        register_ipu_tile_primitive(lax.add_p, lambda *_: None)
    with pytest.raises(KeyError, match=r"Did you mean|neg"):
        get_ipu_tile_primitive_translation("negg")
    assert check_tile_array_multi_slice((slice(None), 3, slice(0, 2)), (3, 5, 7))
    check_in_out_arguments(["x", "y"], ["x", "out"])
    with pytest.raises(IndexError, match="Inconsistent"):
        check_in_out_arguments(["x", "y"], ["out", "x"])
    with pytest.raises(ValueError, match="first vertex arguments"):
        check_in_out_arguments(["y", "x"], ["out", "x"])


def test_declared_vertices_are_described():
    """A declared vertex can be looked up by its name, with its types filled in."""
    codelets = Path(__file__).with_name("demo_vertex.cpp")
    primitive = ti.create_ipu_tile_primitive(
        "looked_up", "V<{x}>", ["x"], {"x": 0, "y": FLOAT32}, {"c": lambda *_: np.zeros(3)},
        0, codelets, 7,
    )  # fmt: skip
    found, translation = get_ipu_tile_primitive_translation("looked_up")
    assert found is primitive
    with pytest.raises(tremula.jax.JaxError, match="no elements of type float64"):
        translation(primitive, TILES, [FLOAT16])
    with pytest.raises(NotImplementedError, match="runs on tiles only"):
        primitive.impl(np.ones(2))


def test_rows_outside_of_programs():
    """Nothing is copied where nothing is traced; a wrong number of tiles is an error."""
    rows = np.arange(3, dtype=np.float32)
    assert prims.tile_put_sharded_prim(rows, TILES) is rows
    assert ti.tile_constant_replicated(rows, TILES).array.shape == (3, 3)
    assert isinstance(ti.tile_constant_sharded(rows, TILES).array, np.ndarray)
    for error in (AssertionError, ValueError):
        with pytest.raises(error, match="Inconsistent"):
            jax.jit(lambda x: prims.tile_put_sharded_prim(x, (1, 2)))(rows)
    with pytest.raises(TypeError, match="same size"):
        tremula.jax.jit(
            lambda x: ti.tile_data_barrier(
                ti.tile_put_sharded(x, TILES), ti.tile_put_sharded(x.astype(np.float16), TILES)
            )
        )(rows)
