"""Where TessellateIPU's public names are: the table that its modules are made from.

A row is a module of `tessellate_ipu` and, for each file here, the names it takes from there. Not in
the table: files of C++ vertices (`get_…_gp_filename`), and lowerings for the IPU's fork of JAX
(`…_mlir_lowering_ipu`), which the compiler replaces.
"""

from tremula.frontends.jax.tessellate.lax import IN_PLACE

_HERE = "tremula.frontends.jax.tessellate"
_ARRAYS = f"""{_HERE}.arrays: TileShardedArray tile_barrier tile_constant_replicated
    tile_constant_sharded tile_data_barrier tile_gather tile_put_replicated tile_put_sharded"""
_MAPPING = f"""{_HERE}.mapping: create_ipu_tile_primitive create_ipu_tile_primitive_v2
    declare_ipu_tile_primitive tile_map tile_map_primitive"""
_CHECKS = f"{_HERE}.mapping: check_in_out_arguments check_tile_mapping_consistency"
_REGISTRY = f"{_HERE}.registry: get_ipu_tile_primitive_translation register_ipu_tile_primitive"
_OF_PRIMITIVES = f"""{_HERE}.registry: primitive_clone primitive_has_batching primitive_has_impl
    primitive_num_inout_alias_args"""
_CLOCK = f"""{_HERE}.mapping: hw_cycle_count hw_cycle_count_abstract_eval
    hw_cycle_count_numpy_impl hw_cycle_count_p hw_cycle_count_tile_translation_ipu ipu_cycle_count
    ipu_cycle_count_overhead ipu_hw_cycle_count"""
_TYPES = f"""{_HERE}.ipu_types: Base64Data IpuShapedArray IpuType from_ipu_type_to_numpy_dtype
    from_numpy_dtype_to_ipu_type get_ipu_type_name make_ipu_shaped_array"""
_DESCRIPTIONS = f"""{_HERE}.equations: IpuTileMapEquation IpuVertexAttributeF32
    IpuVertexAttributeI32 IpuVertexIOInfo IpuVertexIOType make_ipu_vertex_attributes
    make_ipu_vertex_constant_info make_ipu_vertex_in_info make_ipu_vertex_inout_info
    make_ipu_vertex_inputs make_ipu_vertex_io_info make_ipu_vertex_name_templated
    make_ipu_vertex_out_info make_ipu_vertex_outputs"""
_WORKERS = f"""{_HERE}.workers: make_ipu_vector1d_worker_offsets
    make_ipu_vector1d_worker_offsets_and_sizes make_num_elements_per_worker"""
_PARAMS = f"{_HERE}.prims: TileConstantParams TileDataBarrierParams TileGatherParams"
_STRIDES = f"""{_HERE}.dot: ipuGetTransformedInRowStride ipuGetTransformedInStride
    ipuGetTransformedOutStride ipuReverseTransformedInRowStride ipuReverseTransformedInStride
    ipuReverseTransformedOutStride"""
_DEVICES = "tremula.frontends.jax.device: IpuDevice IpuTargetType is_ipu_model"
_ENV = f"{_HERE}.env: env_append_path env_cpath_append env_path_append"
_TYPING = f"{_HERE}.typing: ArrayLike DType DTypeLike NDArray Shape"

_CUMULATIVE = "jax.lax: cummax_p cummin_p cumprod_p cumsum_p"
_SCATTERS = "jax.lax: scatter_add_p scatter_max_p scatter_min_p scatter_mul_p scatter_p"
_REDUCED = """jax.lax: reduce_and_p reduce_max_p reduce_min_p reduce_or_p reduce_prod_p
    reduce_sum_p"""
_OF_JAX = """jax.lax: abs_p acos_p add_p and_p argmax_p argmin_p asin_p atan2_p atan_p
    bitcast_convert_type_p cbrt_p ceil_p clamp_p convert_element_type_p copy_p cos_p div_p
    dot_general_p eq_p erf_p exp_p expm1_p floor_p gather_p ge_p gt_p integer_pow_p iota_p
    is_finite_p le_p log1p_p log_p lt_p max_p min_p mul_p ne_p neg_p not_p or_p population_count_p
    pow_p rem_p reshape_p round_p rsqrt_p select_n_p shift_left_p shift_right_arithmetic_p
    shift_right_logical_p sign_p sin_p sqrt_p sub_p tan_p tanh_p transpose_p xor_p"""
_IN_PLACE = f"{_HERE}.lax: IN_PLACE {' '.join(IN_PLACE)}"
_FILLED = f"{_HERE}.lax: fill fill_p tile_fill tile_sharded_identity"
_SCALED = f"{_HERE}.lax: scaled_add scaled_add_p scaled_sub scaled_sub_p"
_ROTATED = f"{_HERE}.lax: rotation2d_p tile_rotation2d"
_RANDOM = f"""{_HERE}.random: tile_get_hw_seeds tile_random_normal tile_random_uniform
    tile_set_hw_seeds"""
_RANDOM_BEFORE = f"""{_HERE}.random: ipu_get_hw_seeds_tmap=tile_get_hw_seeds
    ipu_random_normal_tmap=tile_random_normal ipu_random_uniform_tmap=tile_random_uniform
    ipu_set_hw_seeds_tmap=tile_set_hw_seeds"""

MODULES: dict[str, tuple[str, ...]] = {
    "core": (_ARRAYS, _MAPPING, _REGISTRY, _OF_PRIMITIVES, _CLOCK, _TYPES, _DESCRIPTIONS, _WORKERS,
             "tremula.frontends.jax.backend: tessellate_ipu_cleanup=forget_programs"),
    "core.tile_array": (_ARRAYS, f"{_HERE}.arrays: check_tile_array_multi_slice"),
    "core.tile_array_primitives": (
        _TYPES,
        _PARAMS,
        f"""{_HERE}.primitives: tile_data_barrier_prim_p=barrier_p tile_gather_prim_p=gather_p
        tile_put_replicated_prim_p=put_replicated_p tile_put_sharded_prim_p=put_sharded_p""",
        f"""{_HERE}.prims: make_tiles_raw_attributes tile_constant_replicated_prim
        tile_constant_replicated_prim_abstract_eval tile_constant_replicated_prim_impl
        tile_constant_replicated_prim_mlir_translation_default tile_constant_sharded_prim
        tile_constant_sharded_prim_abstract_eval tile_constant_sharded_prim_impl
        tile_constant_sharded_prim_mlir_translation_default tile_data_barrier_prim
        tile_data_barrier_prim_abstract_eval tile_data_barrier_prim_impl
        tile_data_barrier_prim_mlir_lowering_default tile_data_barrier_refdtype tile_gather_prim
        tile_gather_prim_abstract_eval tile_gather_prim_impl tile_gather_prim_mlir_lowering_default
        tile_put_replicated_prim tile_put_replicated_prim_abstract_eval
        tile_put_replicated_prim_impl tile_put_replicated_prim_mlir_translation_default
        tile_put_sharded_prim tile_put_sharded_prim_abstract_eval tile_put_sharded_prim_impl
        tile_put_sharded_prim_mlir_lowering_default""",
    ),
    "core.tile_common_utils": (_TYPES,),
    "core.tile_interpreter": (_MAPPING, _CHECKS, _REGISTRY),
    "core.tile_interpreter_hw_primitives": (_CLOCK,),
    "core.tile_interpreter_primitives": (
        _TYPES,
        _DESCRIPTIONS,
        _OF_PRIMITIVES,
        f"""{_HERE}.prims: get_primitive_arguments get_tile_map_ipu_arguments
        tile_map_equation_call_abstract_eval tile_map_equation_call_impl
        tile_map_equation_call_mlir_translation_default tile_map_equation_call_multi_out
        tile_map_equation_call_single_out tile_map_remove_ipu_attributes""",
    ),
    "core.tile_interpreter_vertex_utils": (_WORKERS,),
    "lax": (_OF_JAX, _REDUCED, _CUMULATIVE, _SCATTERS, _IN_PLACE, _FILLED, _SCALED, _ROTATED,
            f"{_HERE}.lax: tile_copy", f"{_HERE}.dot: IpuConvVertexType", _RANDOM),
    "lax.tile_lax_array": (
        "jax.lax: bitcast_convert_type_p reshape_p scatter_p",
        _FILLED,
        f"""{_HERE}.lax: fill_abstract_eval fill_mlir_translation_default fill_numpy_impl
        ipu_fill_primitive_translation_ipu""",
        f"""{_HERE}.translations: ipu_bitcast_convert_type_primitive_translation
        ipu_reshape_primitive_translation""",
    ),
    "lax.tile_lax_binary": (
        _IN_PLACE,
        _SCALED,
        f"""{_HERE}.lax: register_ipu_binary_inplace_tile_primitive scaled_add_numpy_impl
        scaled_op_abstract_eval scaled_sub_numpy_impl""",
        f"""{_HERE}.translations: ipu_binary_primitive_translation ipu_clamp_primitive_translation
        ipu_select_primitive_translation make_binary1d_vertex_fullname
        make_binary1d_vertex_io_infos make_scale_op_vertex_fullname scale_add_tile_translation_ipu
        scale_op_tile_translation_ipu scale_sub_tile_translation_ipu""",
    ),
    "lax.tile_lax_cumulative_ops": (
        _CUMULATIVE, f"{_HERE}.translations: ipu_cumop_primitive_translation",
    ),
    "lax.tile_lax_dot": (
        _STRIDES,
        "jax.lax: dot_general_p",
        f"""{_HERE}.dot: IpuConvPartial1x1Args IpuConvPartial1x1StaticArgs IpuConvPartialHMACArgs
        IpuConvPartialHMACStaticArgs IpuConvVertexType
        ipu_dot_general_conv_1x1_primitive_translation
        ipu_dot_general_conv_hmac_primitive_translation ipu_dot_general_primitive_translation
        make_conv_partial1x1_attributes make_conv_partial1x1_worklist_entry
        make_conv_partial1x1_worklists make_conv_partial_hmac_attributes
        make_conv_partial_hmac_worklist_entry""",
    ),
    "lax.tile_lax_gather": (
        "jax.lax: gather_p",
        f"""{_HERE}.translations: check_gather_dimension_numbers ipu_gather_primitive_translation
        make_gather_vertex_fullname""",
    ),
    "lax.tile_lax_reduce": (
        _REDUCED,
        f"""{_HERE}.translations: ipu_reduce_primitive_translation
        make_continuous_reduce_vertex_fullname""",
    ),
    "lax.tile_lax_scatter": (
        _SCATTERS,
        f"""{_HERE}.translations: check_scatter_dimension_numbers
        ipu_scatter_op_primitive_translation ipu_scatter_primitive_translation
        make_scatter_vertex_fullname""",
    ),
    "lax.tile_lax_small_dot": (_ROTATED,),
    "lax.tile_lax_unary": (
        _IN_PLACE,
        f"{_HERE}.lax: register_ipu_unary_inplace_tile_primitive tile_copy",
        f"""{_HERE}.translations: ipu_cast_primitive_translation ipu_integer_pow_translation
        ipu_iota_translation ipu_tile_memcpy ipu_unary_primitive_translation
        make_cast1d_vertex_fullname make_unary1d_vertex_fullname make_unary1d_vertex_io_infos""",
    ),
    "lax.tile_random": (
        _RANDOM,
        _RANDOM_BEFORE,
        f"{_HERE}.random: get_ipu_num_worker_contexts",
        f"""{_HERE}.random_descriptions: ipu_get_hw_seeds_abstract_eval
        ipu_get_hw_seeds_translation_ipu ipu_random_normal_abstract_eval
        ipu_random_normal_translation_ipu ipu_random_uniform_abstract_eval
        ipu_random_uniform_translation_ipu ipu_set_hw_seeds_abstract_eval
        ipu_set_hw_seeds_translation_ipu""",
    ),
    "lib": (),
    "lib.pytessellate_ipu_core": (
        f"{_HERE}.ipu_types: Base64Data IpuShapedArray IpuTensorSlice IpuType",
        f"""{_HERE}.equations: IpuTileMapEquation IpuVertexAttributeF32 IpuVertexAttributeI32
        IpuVertexIOInfo IpuVertexIOType""",
        _PARAMS,
        _STRIDES,
    ),
    "lib.pytessellate_ipu_ops_jax": (
        f"{_HERE}.equations: TileMapMaxInOutAliasingArgs=MAX_OVERWRITTEN",
    ),
    "linalg": (
        f"{_HERE}.jacobi: ipu_eigh",
        f"{_HERE}.householder: ipu_hessenberg ipu_qr",
        f"{_HERE}.tridiagonal: ipu_tridiag_solve",
    ),
    "linalg.tile_linalg_hessenberg": (
        f"""{_HERE}.householder: dot_product1d_p ipu_hessenberg ipu_hessenberg_body
        ipu_hessenberg_iterations ipu_hessenberg_shard_inputs""",
    ),
    "linalg.tile_linalg_jacobi": (
        f"""{_HERE}.jacobi: INDEX_PREFIX ipu_eigh ipu_jacobi_eigh ipu_jacobi_eigh_body
        ipu_jacobi_eigh_iteration jacobi_initial_pqindices jacobi_initial_rotation_set
        jacobi_next_rotation_set jacobi_sort_rotation_set jacobi_sym_schur2_p
        jacobi_update_eigenvectors_p jacobi_update_first_step_p jacobi_update_second_step_p
        permute_pq_indices tile_rotate_columns tile_sharded_pq_columns""",
    ),
    "linalg.tile_linalg_qr": (
        f"""{_HERE}.householder: dot_product1d_p ipu_qr ipu_qr_iterations ipu_qr_shard_inputs
        qr_correction_vector_p qr_householder_row_update_p""",
        f"{_HERE}.workers: make_ipu_vector1d_worker_offsets",
    ),
    "linalg.tile_linalg_tridiagonal_eigenvalue": (
        f"{_HERE}.tridiagonal: ipu_tridiagonal_eigenvalue",
    ),
    "linalg.tile_linalg_tridiagonal_eigh": (
        f"""{_HERE}.tridiagonal: ipu_eigh_hess ipu_eigh_tridiagonal=ipu_tridiagonal_eigenvalue
        ipu_hess_eigh ipu_tridiagonal_eigh""",
    ),
    "linalg.tile_linalg_tridiagonal_solver": (
        f"""{_HERE}.tridiagonal: ipu_tridiag_solve ipu_tridiag_solve_shard_inputs
        tridiagonal_solver_p""",
    ),
    "utils": (_DEVICES, _ENV, _TYPING),
    "utils.env": (_ENV,),
    "utils.ipu_device": (_DEVICES,),
    "utils.typing": (_TYPING,),
}  # fmt: skip
