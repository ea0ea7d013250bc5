"""The modules of popxl: which names each has, and where the code is. One row for each module."""

_CODE = "tremula.frontends.popxl"
_CORE, _OPS, _TRANSFORMS = f"{_CODE}.core", f"{_CODE}.ops", f"{_CODE}.transforms"
_OPERATIONS = f"{_OPS}.by_name"
_DTYPES = """
    dtype bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 half float16 float float32 double
    float64 float8_143 float8_152 complex64 complex128 np_dtype_float8_143 np_dtype_float8_152
    _NP_TO_POPXL _PT_TO_POPXL
"""
_COLLECTIVES = """
    all_reduce all_reduce_identical_grad_inputs all_reduce_identical_inputs replica_sharded_slice
    replicated_all_gather replicated_all_reduce replicated_all_reduce_ replicated_reduce_scatter
    replicated_slice
"""
_VAR_UPDATES = """
    accumulate_ accumulate_mean_ accumulate_moving_average_ accumulate_moving_average_square_
    accumulate_square_ accumulator_scale_ accumulator_zero_ adam_updater adam_var_update
    adamax_updater copy_var_update_ lamb_updater sparse_accumulate_
"""

MODULES: dict[str, str | tuple[str, ...]] = {
    "context": (
        f"""{_CORE}.current: Context get_current_context debug_context_frame_offset
            get_source_location op_debug_context""",
        f"""{_CORE}.context: gcg get_current_graph get_ir get_main_graph gir gmg io_tiles ipu
            name_scope pipeline_stage""",
        f"{_CORE}.order: in_sequence",
    ),
    "dtypes": f"{_CODE}.dtypes: {_DTYPES}",
    "errors": f"{_CODE}.errors: UndefinedValue",
    "fp8_utils": (
        f"""{_CODE}.fp8_utils: host_fp8_mse_scale host_fp8_mse_scale_pb host_pow2scale_cast_from_fp8
            host_pow2scale_cast_to_fp8"""
    ),
    "graph": f"{_CORE}.graph: Graph",
    "ir": f"{_CORE}.ir: Ir",
    "module": f"{_CORE}.module: Module",
    "random_seed": f"{_CORE}.seeds: create_seeds uint64_to_two_uint32 two_uint32_to_uint64",
    "remote_buffer": f"{_CORE}.remote_buffer: RemoteBuffer remote_buffer replica_sharded_buffer",
    "replica_grouping": f"{_CODE}.replica_grouping: ReplicaGrouping",
    "session": f"{_CODE}.run.session: Session",
    "streams": (
        f"{_CORE}.streams: Stream DeviceToHostStream HostToDeviceStream d2h_stream h2d_stream"
    ),
    "tensor": (
        f"""{_CORE}.constructors: constant graph_input graph_output remote_replica_sharded_variable
            remote_variable replica_sharded_variable variable""",
        f"{_CORE}.remote_buffer: replica_sharded_buffer",
        f"""{_CORE}.tensor: Constant HostScalarTensor HostTensor ScalarType Tensor TensorByRef
            TensorLike TensorSpec Variable""",
    ),
    "tensorlocation": (
        f"""{_CODE}.locations:
            ExecutionContext ReplicatedTensorSharding TensorLocation TensorStorage""",
        "tremula.frontends.popart.enums: TileSet",
    ),
    "testing": f"""{_CODE}.dtypes:
            get_all_complex_dtypes get_all_dtypes get_all_floating_point_dtypes
            get_all_int_dtypes""",
    "typing_": f"{_CODE}.text: NewAliasAnnotation",
    "utils": (
        f"{_CODE}.dtypes: downcast_np_dtypes np_dtype_float8_143 np_dtype_float8_152",
        f"{_CORE}.host_data: to_numpy",
        f"""{_CODE}.fp8_utils: host_pow2scale_then_cast=host_pow2scale_cast_to_fp8
            host_cast_then_pow2scale=host_pow2scale_cast_from_fp8""",
        f"{_CODE}.text: table_to_string",
        f"{_CODE}.run.session: _to_device_info=device_info",
    ),
    "ops.abs": f"{_OPERATIONS}: abs",
    "ops.add": f"{_OPERATIONS}: add add_",
    "ops.argminmax": f"{_OPERATIONS}: argmax argmin",
    "ops.batch_norm": f"{_OPERATIONS}: batch_norm_inference",
    "ops.call": (f"{_OPERATIONS}: call call_with_info", f"{_CORE}.call_site: CallSiteInfo"),
    "ops.cast": f"{_OPERATIONS}: cast pow2scale_cast_to_fp8 pow2scale_cast_from_fp8",
    "ops.ceil": f"{_OPERATIONS}: ceil",
    "ops.clip": f"{_OPERATIONS}: clip clamp",
    "ops.code_copy": (f"{_OPERATIONS}: remote_code_load", f"{_OPS}.helpers: code_copy"),
    "ops.concat": f"{_OPERATIONS}: concat concat_",
    "ops.conditional": (
        f"{_OPERATIONS}: conditional conditional_with_info",
        f"{_CORE}.call_site: ConditionalSiteInfo CallSiteInfo",
    ),
    "ops.conv": (
        f"{_OPERATIONS}: conv conv_pow2scaled conv_transpose conv_transpose_pow2scaled",
        f"{_OPS}.products: PadType",
    ),
    "ops.cos": f"{_OPERATIONS}: cos",
    "ops.cumsum": f"{_OPERATIONS}: cumsum",
    "ops.detach": f"{_OPERATIONS}: detach detach_",
    "ops.div": f"{_OPERATIONS}: div",
    "ops.dropout": f"{_OPERATIONS}: dropout",
    "ops.dynamic_slice": f"{_OPERATIONS}: dynamic_slice",
    "ops.dynamic_update": f"{_OPERATIONS}: dynamic_update dynamic_update_",
    "ops.equal": f"{_OPERATIONS}: equal",
    "ops.exp": f"{_OPERATIONS}: exp exp_",
    "ops.floor": f"{_OPERATIONS}: floor",
    "ops.fmod": f"{_OPERATIONS}: fmod",
    "ops.gather": f"{_OPERATIONS}: gather groupedgather tied_gather",
    "ops.gelu": f"{_OPERATIONS}: gelu gelu_",
    "ops.geluerf": f"{_OPERATIONS}: geluerf geluerf_",
    "ops.greater": f"{_OPERATIONS}: greater",
    "ops.group_norm": f"{_OPERATIONS}: group_norm layer_norm",
    "ops.histogram": (f"{_OPERATIONS}: histogram", f"{_OPS}.indexing: check_increment"),
    "ops.host_load": f"{_OPERATIONS}: host_load",
    "ops.host_store": f"{_OPERATIONS}: host_store",
    "ops.identity": f"{_OPERATIONS}: identity rename",
    "ops.increment_mod": f"{_OPERATIONS}: increment_mod increment_mod_",
    "ops.init": f"{_OPERATIONS}: init",
    "ops.interpolate": f"{_OPERATIONS}: interpolate",
    "ops.io_tile_copy": f"{_OPERATIONS}: io_tile_copy",
    "ops.ipu_copy": f"{_OPERATIONS}: ipu_copy",
    "ops.isfinite": f"{_OPERATIONS}: isfinite",
    "ops.isinf": f"{_OPERATIONS}: isinf",
    "ops.isnan": f"{_OPERATIONS}: isnan",
    "ops.l1": f"{_OPERATIONS}: l1",
    "ops.l2": f"{_OPERATIONS}: l2",
    "ops.lamb": f"{_OPERATIONS}: lamb_square",
    "ops.log": f"{_OPERATIONS}: log log2",
    "ops.logical_and": f"{_OPERATIONS}: logical_and",
    "ops.logical_not": f"{_OPERATIONS}: logical_not",
    "ops.logical_or": f"{_OPERATIONS}: logical_or",
    "ops.logsum": f"{_OPERATIONS}: logsum",
    "ops.logsumexp": f"{_OPERATIONS}: logsumexp",
    "ops.matmul": f"{_OPERATIONS}: matmul matmul_pow2scaled",
    "ops.max": f"{_OPERATIONS}: max maximum",
    "ops.mean": f"{_OPERATIONS}: mean",
    "ops.median": f"{_OPERATIONS}: median",
    "ops.min": f"{_OPERATIONS}: min",
    "ops.mul": f"{_OPERATIONS}: mul",
    "ops.negate": f"{_OPERATIONS}: negate",
    "ops.negative_log_likelihood": f"{_OPERATIONS}: nll_loss nll_loss_with_softmax_grad",
    "ops.onehot": f"{_OPERATIONS}: onehot",
    "ops.pool": f"{_OPERATIONS}: average_pool max_pool",
    "ops.pow": f"{_OPERATIONS}: pow",
    "ops.print_tensor": f"{_OPERATIONS}: print_tensor",
    "ops.prod": f"{_OPERATIONS}: prod",
    "ops.random": f"{_OPERATIONS}: random_normal random_uniform",
    "ops.random_seed": (f"{_OPERATIONS}: split_random_seed", f"{_OPS}.helpers: create_random_seed"),
    "ops.relu": f"{_OPERATIONS}: relu relu_",
    "ops.remote_load": (
        f"{_OPERATIONS}: remote_load remote_load_",
        f"{_OPS}.helpers: multiply_tuple",
    ),
    "ops.remote_store": f"{_OPERATIONS}: remote_store",
    "ops.repeat": (f"{_OPERATIONS}: repeat repeat_with_info", f"{_CORE}.call_site: CallSiteInfo"),
    "ops.reshape": (
        f"{_OPERATIONS}: flatten flatten_ reshape reshape_",
        f"{_OPS}.helpers: reshape_handle_negative_axis",
    ),
    "ops.roialign": f"{_OPERATIONS}: roi_align",
    "ops.scaled_add": f"{_OPERATIONS}: scaled_add scaled_add_",
    "ops.scatter": f"{_OPERATIONS}: scatter",
    "ops.scatter_reduce": f"{_OPERATIONS}: grouped_scatter_reduce scatter_reduce",
    "ops.shaped_dropout": f"{_OPERATIONS}: shaped_dropout",
    "ops.sign": f"{_OPERATIONS}: sign",
    "ops.sin": f"{_OPERATIONS}: sin",
    "ops.slice": (f"{_OPERATIONS}: slice slice_", f"{_OPS}.helpers: process_args"),
    "ops.softmax": f"{_OPERATIONS}: softmax",
    "ops.split": f"{_OPERATIONS}: split",
    "ops.sqrt": f"{_OPERATIONS}: sqrt",
    "ops.squeeze": f"{_OPERATIONS}: squeeze",
    "ops.sub": f"{_OPERATIONS}: sub",
    "ops.subsample": f"{_OPERATIONS}: subsample",
    "ops.sum": f"{_OPERATIONS}: sum",
    "ops.sumsquare": f"{_OPERATIONS}: sumsquare",
    "ops.swish": f"{_OPERATIONS}: swish swish_",
    "ops.tanh": f"{_OPERATIONS}: tanh",
    "ops.topk": f"{_OPERATIONS}: topk",
    "ops.transpose": f"{_OPERATIONS}: transpose transpose_",
    "ops.where": f"{_OPERATIONS}: where",
    "ops.collectives": (
        f"{_OPS}.collectives: {_COLLECTIVES}",
        "tremula.frontends.popart.enums: CommGroupType",
        "tremula.frontends.popart.groups: CommGroup",
    ),
    "ops.var_updates": f"{_OPS}.var_updates: {_VAR_UPDATES}",
    "ops.utils": (
        f"""{_OPS}.helpers: cast_if_needed convert_optional_dtype convert_optional_float
            convert_optional_int convert_optional_int64_list handle_negative_axis""",
        f"{_CORE}.places: check_in_graph check_tensor_ipu_and_tile_set",
    ),
    "ops.collectives.all_reduce": (
        f"""{_OPS}.collectives: all_reduce all_reduce_identical_grad_inputs
            all_reduce_identical_inputs"""
    ),
    "ops.collectives.collectives": (
        "tremula.frontends.popart.enums: CommGroupType",
        "tremula.frontends.popart.groups: CommGroup",
        f"{_OPS}.helpers: to_collective_op",
    ),
    "ops.collectives.replicated_all_gather": f"{_OPS}.collectives: replicated_all_gather",
    "ops.collectives.replicated_all_reduce": (
        f"{_OPS}.collectives: replicated_all_reduce replicated_all_reduce_"
    ),
    "ops.collectives.replicated_reduce_scatter": (
        f"{_OPS}.collectives: replicated_reduce_scatter replica_sharded_slice replicated_slice"
    ),
    "ops.var_updates.accumulate": (
        f"""{_OPS}.var_updates: accumulate_ accumulate_mean_ accumulate_moving_average_
            accumulate_moving_average_square_ accumulate_square_ accumulator_scale_
            accumulator_zero_ sparse_accumulate_"""
    ),
    "ops.var_updates.adam_updater": (
        f"{_OPS}.var_updates: adam_updater adamax_updater lamb_updater",
        f"{_OPS}.helpers: weight_decay_is_required",
    ),
    "ops.var_updates.adam_var_update": f"{_OPS}.var_updates: adam_var_update",
    "ops.var_updates.copy_var_update": f"{_OPS}.var_updates: copy_var_update_",
    "transforms.autodiff": (
        f"{_TRANSFORMS}.grad_info: ExpectedConnection ExpectedConnectionType GradGraphInfo",
        f"{_TRANSFORMS}.autodiff: autodiff",
    ),
    "transforms.decompose_sum": f"{_TRANSFORMS}.decompose_sum: decompose_sum",
    "transforms.merge_exchange": f"{_TRANSFORMS}.merge_exchange: io_tile_exchange merge_exchange",
}
