"""The modules of popxl_addons: which names each has, and where the code is. One row each."""

_CODE = "tremula.frontends.popxl_addons"

# Names of the package itself.
NAMES: tuple[str, ...] = (
    f"""{_CODE}.array_munging: handle_negative_axis pad_axis repeat repeat_axis repeat_shard
        shard shard2D split2D squeeze_safe tensor_parallel_input tensor_parallel_output unshard
        unshard2D unshard_arrays""",
    f"{_CODE}.debugging: print_tensor print_text",
    f"""{_CODE}.graphs.cache: GraphCache argument_hash bound_arguments function
        get_function_hash tensor_hash""",
    f"{_CODE}.graphs.graph: BoundGraph GradGraphInfoLike GraphLike GraphWithNamedArgs",
    f"{_CODE}.graphs.module: Module NameScopeMeta",
    f"{_CODE}.graphs.own_gradients: create_grad_graph_info",
    f"{_CODE}.graphs.route_tensor: is_subgraph route_tensor_into_graph",
    f"{_CODE}.named.dot_tree: DotTree",
    f"""{_CODE}.named.factories: NamedVariableFactories VariableFactory
        add_replica_sharded_variable_input add_variable_input""",
    f"""{_CODE}.named.replica_groupings: NamedReplicaGrouping fill_none_group
        get_ild_replica_grouping get_ild_size_from_popdist get_instance_replica_grouping
        is_cross_ild is_cross_instance""",
    f"{_CODE}.named.tensors: NamedTensorData NamedTensors TensorMap print_named_tensors",
    f"{_CODE}.ops.fp8_scales: fp8_amax_scale",
    f"{_CODE}.ops.losses: cross_entropy cross_entropy_with_grad",
    f"{_CODE}.ops.static_sparse: dense_const_sparse_matmul random_sparse",
    f"{_CODE}.ops.streams: host_load host_store",
    f"""{_CODE}.ops.tensor_parallel: replicated_all_gather_strided replicated_all_reduce
        replicated_all_reduce_identical_grad_inputs replicated_all_reduce_identical_inputs
        replicated_all_reduce_strided replicated_all_reduce_strided_graph
        replicated_all_reduce_strided_identical_grad_inputs
        replicated_all_reduce_strided_identical_inputs replicated_reduce_scatter_strided""",
    f"""{_CODE}.performance_utils: elementwise_binary_flops evaluate_FLOPs evaluate_ir_FLOPs
        format_flops_scientific group_norm_flops matmul_flops print_FLOPs total_FLOPs""",
    f"""{_CODE}.remote: NamedRemoteBuffers create_remote_buffer load_remote load_remote_graph
        named_buffers named_variable_buffers store_remote store_remote_graph""",
    f"""{_CODE}.rts: all_gather_replica_sharded_graph gather_replica_sharded_tensor
        reduce_replica_sharded_graph reduce_replica_sharded_tensor replica_sharded_spec""",
    f"{_CODE}.seeds: seed_variable",
    f"""{_CODE}.settings: apply_pre_alias_patterns disable_fc_pass enable_fc_pass
        set_available_memory_proportion_by_ipu set_graph_available_memory_proportion_by_ipu""",
    f"{_CODE}.streams: InputStreams OutputStreams",
    f"""{_CODE}.task_session: TaskSession initialise_memmap_dir_from_checkpoint
        write_variables_pb""",
    f"{_CODE}.transforms.autodiff: autodiff autodiff_with_accumulation recomputed",
    f"""{_CODE}.transforms.batch_serialisation: RemoteHandle batch_serial_buffer batch_serialise
        batch_serialise_fwd_and_grad""",
    f"{_CODE}.transforms.pipelining: pipelined_execution",
    f"{_CODE}.transforms.recomputation: recompute_graph",
    f"{_CODE}.transforms.repeat_graph: repeat_graph",
    f"""{_CODE}.utils: OrderedDict WeightsDict duplicate_items null_context overrides
        suffix_graph_name timer""",
    f"{_CODE}.version: GIT_COMMIT",
)

MODULES: dict[str, tuple[str, ...]] = {
    "array_munging": (
        f"""{_CODE}.array_munging: handle_negative_axis pad_axis repeat repeat_axis repeat_shard
            shard shard2D split2D squeeze_safe tensor_parallel_input tensor_parallel_output
            unshard unshard2D unshard_arrays""",
    ),
    "debugging": (f"{_CODE}.debugging: print_tensor print_text",),
    "dot_tree": (f"{_CODE}.named.dot_tree: DotTree sanitise to_mapping",),
    "graph": (f"{_CODE}.graphs.graph: BoundGraph GraphWithNamedArgs",),
    "graph_cache": (
        f"""{_CODE}.graphs.cache: GraphCache argument_hash bound_arguments function
            get_function_hash tensor_hash""",
    ),
    "layers": (
        f"{_CODE}.layers.conv: Conv2D",
        f"{_CODE}.layers.embedding: Embedding",
        f"{_CODE}.layers.linear: Linear",
        f"{_CODE}.layers.low_precision: LinearFP8 LinearGQ",
        f"{_CODE}.layers.norms: GroupNorm LayerNorm LayerNormDistributed",
    ),
    "layers.conv": (f"{_CODE}.layers.conv: Conv2D",),
    "layers.embedding": (f"{_CODE}.layers.embedding: Embedding",),
    "layers.group_norm": (f"{_CODE}.layers.norms: GroupNorm",),
    "layers.layer_norm": (f"{_CODE}.layers.norms: LayerNorm",),
    "layers.layer_norm_distributed": (f"{_CODE}.layers.norms: LayerNormDistributed",),
    "layers.linear": (f"{_CODE}.layers.linear: Linear",),
    "layers.linear_fp8": (f"{_CODE}.layers.low_precision: LinearFP8",),
    "layers.linear_gq": (
        f"{_CODE}.layers.low_precision: LinearGQ",
        f"{_CODE}.ops.group_quantised: group_quantize_compress_numpy group_quantize_decompress",
    ),
    "module": (
        f"{_CODE}.graphs.cache: GraphCache",
        f"{_CODE}.graphs.graph: BoundGraph GradGraphInfoLike GraphLike GraphWithNamedArgs",
        f"{_CODE}.graphs.module: Module NameScopeMeta",
        f"{_CODE}.graphs.own_gradients: create_grad_graph_info",
        f"""{_CODE}.named.factories: NamedVariableFactories VariableFactory
            add_replica_sharded_variable_input add_variable_input""",
        f"{_CODE}.named.tensors: NamedTensors",
        f"{_CODE}.utils: OrderedDict duplicate_items overrides",
    ),
    "named_replica_grouping": (
        f"""{_CODE}.named.replica_groupings: NamedReplicaGrouping fill_none_group
            get_ild_replica_grouping get_ild_size_from_popdist get_instance_replica_grouping
            is_cross_ild is_cross_instance""",
    ),
    "named_tensors": (
        f"{_CODE}.named.tensors: NamedTensorData NamedTensors TensorMap print_named_tensors",
    ),
    "ops": (
        f"{_CODE}.ops.fp8_scales: fp8_amax_scale",
        f"{_CODE}.ops.losses: cross_entropy cross_entropy_with_grad",
        f"{_CODE}.ops.static_sparse: dense_const_sparse_matmul random_sparse",
        f"{_CODE}.ops.streams: host_load host_store",
        f"""{_CODE}.ops.tensor_parallel: replicated_all_gather_strided replicated_all_reduce
            replicated_all_reduce_identical_grad_inputs replicated_all_reduce_identical_inputs
            replicated_all_reduce_strided replicated_all_reduce_strided_graph
            replicated_all_reduce_strided_identical_grad_inputs
            replicated_all_reduce_strided_identical_inputs replicated_reduce_scatter_strided""",
    ),
    "ops.cross_entropy": (f"{_CODE}.ops.losses: cross_entropy cross_entropy_with_grad",),
    "ops.cross_entropy_sharded_loss": (f"{_CODE}.ops.losses: cross_entropy_sharded_loss",),
    "ops.cross_entropy_sharded_loss.cross_entropy_sharded_loss": (
        f"{_CODE}.ops.losses: cross_entropy_sharded_loss",
    ),
    "ops.cross_entropy_sharded_wr_loss": (
        f"{_CODE}.ops.losses: cross_entropy_sharded_wr_loss handle_ipus",
    ),
    "ops.cross_entropy_sharded_wr_loss.cross_entropy_sharded_wr_loss": (
        f"{_CODE}.ops.losses: cross_entropy_sharded_wr_loss handle_ipus",
    ),
    "ops.fp8_amax_scale": (f"{_CODE}.ops.fp8_scales: fp8_amax_scale",),
    "ops.fp8_mse_scale": (f"{_CODE}.ops.fp8_scales: CandidateConfig fp8_mse_scale",),
    "ops.fp8_mse_scale.fp8_mse_scale": (f"{_CODE}.ops.fp8_scales: CandidateConfig fp8_mse_scale",),
    "ops.fp8_utils": (
        f"""{_CODE}.ops.fp8_scales: float8_143_def float8_152_def ieee_fp16_denorms
            ieee_fp32_no_denorms""",
    ),
    "ops.grad_reduce_square_add": (f"{_CODE}.ops.norms: grad_reduce_square_add",),
    "ops.grad_reduce_square_add.grad_reduce_square_add": (
        f"{_CODE}.ops.norms: grad_reduce_square_add",
    ),
    "ops.group_quantize_decompress": (
        f"""{_CODE}.ops.group_quantised: group_quantize_compress_numpy group_quantize_decompress
            group_quantize_decompress_numpy""",
    ),
    "ops.group_quantize_decompress.group_quantize_decompress": (
        f"""{_CODE}.ops.group_quantised: group_quantize_compress_numpy group_quantize_decompress
            group_quantize_decompress_numpy""",
    ),
    "ops.layer_norm_distributed": (f"{_CODE}.ops.norms: layer_norm_distributed",),
    "ops.layer_norm_distributed.layer_norm_distributed": (
        f"{_CODE}.ops.norms: layer_norm_distributed",
    ),
    "ops.linear_layout": (f"{_CODE}.ops.layouts: linear_layout",),
    "ops.linear_layout.linear_layout": (f"{_CODE}.ops.layouts: linear_layout",),
    "ops.replicated_all_reduce_TP": (
        f"""{_CODE}.ops.tensor_parallel: replicated_all_reduce
            replicated_all_reduce_identical_grad_inputs replicated_all_reduce_identical_inputs""",
    ),
    "ops.replicated_all_reduce_TP.replicated_all_reduce_TP": (
        f"""{_CODE}.ops.tensor_parallel: replicated_all_reduce
            replicated_all_reduce_identical_grad_inputs replicated_all_reduce_identical_inputs""",
    ),
    "ops.replicated_strided_collectives": (
        f"""{_CODE}.ops.tensor_parallel: replicated_all_gather_strided
            replicated_all_reduce_strided replicated_all_reduce_strided_graph
            replicated_all_reduce_strided_identical_grad_inputs
            replicated_all_reduce_strided_identical_inputs replicated_reduce_scatter_strided""",
    ),
    "ops.replicated_strided_collectives.replicated_all_gather_strided": (
        f"{_CODE}.ops.tensor_parallel: replicated_all_gather_strided",
    ),
    "ops.replicated_strided_collectives.replicated_all_reduce_strided": (
        f"""{_CODE}.ops.tensor_parallel: replicated_all_reduce_strided
            replicated_all_reduce_strided_graph
            replicated_all_reduce_strided_identical_grad_inputs
            replicated_all_reduce_strided_identical_inputs""",
    ),
    "ops.replicated_strided_collectives.replicated_reduce_scatter_strided": (
        f"{_CODE}.ops.tensor_parallel: replicated_reduce_scatter_strided",
    ),
    "ops.rotary_pos_embed": (
        f"{_CODE}.ops.rotary: rotary_pos_embed trig_table_constants trig_tables",
    ),
    "ops.rotary_pos_embed.rotary_pos_embed": (
        f"{_CODE}.ops.rotary: rotary_pos_embed trig_table_constants trig_tables",
    ),
    "ops.static_sparse_ops": (
        f"{_CODE}.ops.static_sparse: dense_const_sparse_matmul random_sparse",
    ),
    "ops.static_sparse_ops.dense_sparse_matmul": (
        f"{_CODE}.ops.static_sparse: dense_const_sparse_matmul random_sparse",
    ),
    "ops.streams": (f"{_CODE}.ops.streams: host_load host_store",),
    "optimizers": (
        f"{_CODE}.optimizers.adam: AdamOptimizerStep",
        f"{_CODE}.optimizers.lamb: LambOptimizerStep",
    ),
    "optimizers.adam": (f"{_CODE}.optimizers.adam: AdamOptimizerStep",),
    "optimizers.lamb": (f"{_CODE}.optimizers.lamb: LambOptimizerStep",),
    "patterns": (f"{_CODE}.settings: apply_pre_alias_patterns",),
    "performance_utils": (
        f"""{_CODE}.performance_utils: elementwise_binary_flops evaluate_FLOPs evaluate_ir_FLOPs
            format_flops_scientific group_norm_flops matmul_flops print_FLOPs total_FLOPs""",
    ),
    "remote": (
        f"""{_CODE}.remote: NamedRemoteBuffers create_remote_buffer load_remote
            load_remote_graph named_buffers named_variable_buffers store_remote
            store_remote_graph""",
    ),
    "route_tensor": (
        f"""{_CODE}.graphs.route_tensor: called_graph_paths connect_call_op connect_loop_op
            connect_tensor_to_ops_on_path is_subgraph route_tensor_into_graph""",
    ),
    "rts": (
        f"""{_CODE}.rts: all_gather_replica_sharded_graph gather_replica_sharded_tensor
            reduce_replica_sharded_graph reduce_replica_sharded_tensor replica_sharded_spec""",
    ),
    "seed_variable": (f"{_CODE}.seeds: seed_variable",),
    "streams": (f"{_CODE}.streams: InputStreams OutputStreams",),
    "task_session": (
        f"""{_CODE}.task_session: TaskSession initialise_memmap_dir_from_checkpoint
            write_variables_pb""",
    ),
    "testing_utils": (f"{_CODE}.testing_utils: TensorInput ops_of_type run_module",),
    "transforms": (
        f"""{_CODE}.settings: disable_fc_pass enable_fc_pass
            set_available_memory_proportion_by_ipu set_graph_available_memory_proportion_by_ipu""",
        f"{_CODE}.transforms.autodiff: autodiff autodiff_with_accumulation recomputed",
        f"""{_CODE}.transforms.batch_serialisation: RemoteHandle batch_serial_buffer
            batch_serialise batch_serialise_fwd_and_grad""",
        f"{_CODE}.transforms.pipelining: pipelined_execution",
        f"{_CODE}.transforms.recomputation: recompute_graph",
    ),
    "transforms.autodiff": (
        f"""{_CODE}.transforms.autodiff: autodiff autodiff_with_accumulation recomputed
            remap_grad_info""",
    ),
    "transforms.available_memory_proportion": (
        f"""{_CODE}.settings: set_available_memory_proportion_by_ipu
            set_graph_available_memory_proportion_by_ipu""",
    ),
    "transforms.batch_serialisation": (
        f"""{_CODE}.transforms.batch_serialisation: BatchSerialResult RemoteHandle
            batch_serial_buffer batch_serialise batch_serialise_fwd_and_grad
            batch_serialise_non_overlapped batch_serialise_overlapped""",
        f"{_CODE}.utils: null_context",
    ),
    "transforms.pipelining": (
        f"{_CODE}.transforms.pipelining: PipelineBoundGraph Pipelining pipelined_execution",
        f"{_CODE}.transforms.stages: Restore StageContext Stash get_op_pipeline_stage",
    ),
    "transforms.recomputation": (
        f"{_CODE}.transforms.recomputation: add_recompute_inputs recompute_graph",
    ),
    "transforms.repeat_graph": (f"{_CODE}.transforms.repeat_graph: repeat_graph",),
    "transforms.use_fc_pass": (f"{_CODE}.settings: disable_fc_pass enable_fc_pass",),
    "utils": (
        f"""{_CODE}.utils: OrderedDict WeightsDict duplicate_items null_context overrides
            suffix_graph_name timer""",
    ),
    "variable_factory": (
        f"""{_CODE}.named.factories: NamedVariableFactories VariableFactory
            add_replica_sharded_variable_input add_variable_input""",
    ),
}
