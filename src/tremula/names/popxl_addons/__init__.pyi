"""The names of popxl_addons for type checkers; at run time they are read from `_modules.py`."""

# ruff: noqa: I001, E501 - one line for each name, to read it beside the table

from tremula.frontends.popxl_addons.array_munging import (
    handle_negative_axis as handle_negative_axis,
    pad_axis as pad_axis,
    repeat as repeat,
    repeat_axis as repeat_axis,
    repeat_shard as repeat_shard,
    shard as shard,
    shard2D as shard2D,
    split2D as split2D,
    squeeze_safe as squeeze_safe,
    tensor_parallel_input as tensor_parallel_input,
    tensor_parallel_output as tensor_parallel_output,
    unshard as unshard,
    unshard2D as unshard2D,
    unshard_arrays as unshard_arrays,
)
from tremula.frontends.popxl_addons.debugging import (
    print_tensor as print_tensor,
    print_text as print_text,
)
from tremula.frontends.popxl_addons.graphs.cache import (
    GraphCache as GraphCache,
    argument_hash as argument_hash,
    bound_arguments as bound_arguments,
    function as function,
    get_function_hash as get_function_hash,
    tensor_hash as tensor_hash,
)
from tremula.frontends.popxl_addons.graphs.graph import (
    BoundGraph as BoundGraph,
    GradGraphInfoLike as GradGraphInfoLike,
    GraphLike as GraphLike,
    GraphWithNamedArgs as GraphWithNamedArgs,
)
from tremula.frontends.popxl_addons.graphs.module import (
    Module as Module,
    NameScopeMeta as NameScopeMeta,
)
from tremula.frontends.popxl_addons.graphs.own_gradients import (
    create_grad_graph_info as create_grad_graph_info,
)
from tremula.frontends.popxl_addons.graphs.route_tensor import (
    is_subgraph as is_subgraph,
    route_tensor_into_graph as route_tensor_into_graph,
)
from tremula.frontends.popxl_addons.named.dot_tree import (
    DotTree as DotTree,
)
from tremula.frontends.popxl_addons.named.factories import (
    NamedVariableFactories as NamedVariableFactories,
    VariableFactory as VariableFactory,
    add_replica_sharded_variable_input as add_replica_sharded_variable_input,
    add_variable_input as add_variable_input,
)
from tremula.frontends.popxl_addons.named.replica_groupings import (
    NamedReplicaGrouping as NamedReplicaGrouping,
    fill_none_group as fill_none_group,
    get_ild_replica_grouping as get_ild_replica_grouping,
    get_ild_size_from_popdist as get_ild_size_from_popdist,
    get_instance_replica_grouping as get_instance_replica_grouping,
    is_cross_ild as is_cross_ild,
    is_cross_instance as is_cross_instance,
)
from tremula.frontends.popxl_addons.named.tensors import (
    NamedTensorData as NamedTensorData,
    NamedTensors as NamedTensors,
    TensorMap as TensorMap,
    print_named_tensors as print_named_tensors,
)
from tremula.frontends.popxl_addons.ops.fp8_scales import (
    fp8_amax_scale as fp8_amax_scale,
)
from tremula.frontends.popxl_addons.ops.losses import (
    cross_entropy as cross_entropy,
    cross_entropy_with_grad as cross_entropy_with_grad,
)
from tremula.frontends.popxl_addons.ops.static_sparse import (
    dense_const_sparse_matmul as dense_const_sparse_matmul,
    random_sparse as random_sparse,
)
from tremula.frontends.popxl_addons.ops.streams import (
    host_load as host_load,
    host_store as host_store,
)
from tremula.frontends.popxl_addons.ops.tensor_parallel import (
    replicated_all_gather_strided as replicated_all_gather_strided,
    replicated_all_reduce as replicated_all_reduce,
    replicated_all_reduce_identical_grad_inputs as replicated_all_reduce_identical_grad_inputs,
    replicated_all_reduce_identical_inputs as replicated_all_reduce_identical_inputs,
    replicated_all_reduce_strided as replicated_all_reduce_strided,
    replicated_all_reduce_strided_graph as replicated_all_reduce_strided_graph,
    replicated_all_reduce_strided_identical_grad_inputs as replicated_all_reduce_strided_identical_grad_inputs,
    replicated_all_reduce_strided_identical_inputs as replicated_all_reduce_strided_identical_inputs,
    replicated_reduce_scatter_strided as replicated_reduce_scatter_strided,
)
from tremula.frontends.popxl_addons.performance_utils import (
    elementwise_binary_flops as elementwise_binary_flops,
    evaluate_FLOPs as evaluate_FLOPs,
    evaluate_ir_FLOPs as evaluate_ir_FLOPs,
    format_flops_scientific as format_flops_scientific,
    group_norm_flops as group_norm_flops,
    matmul_flops as matmul_flops,
    print_FLOPs as print_FLOPs,
    total_FLOPs as total_FLOPs,
)
from tremula.frontends.popxl_addons.remote import (
    NamedRemoteBuffers as NamedRemoteBuffers,
    create_remote_buffer as create_remote_buffer,
    load_remote as load_remote,
    load_remote_graph as load_remote_graph,
    named_buffers as named_buffers,
    named_variable_buffers as named_variable_buffers,
    store_remote as store_remote,
    store_remote_graph as store_remote_graph,
)
from tremula.frontends.popxl_addons.rts import (
    all_gather_replica_sharded_graph as all_gather_replica_sharded_graph,
    gather_replica_sharded_tensor as gather_replica_sharded_tensor,
    reduce_replica_sharded_graph as reduce_replica_sharded_graph,
    reduce_replica_sharded_tensor as reduce_replica_sharded_tensor,
    replica_sharded_spec as replica_sharded_spec,
)
from tremula.frontends.popxl_addons.seeds import (
    seed_variable as seed_variable,
)
from tremula.frontends.popxl_addons.settings import (
    apply_pre_alias_patterns as apply_pre_alias_patterns,
    disable_fc_pass as disable_fc_pass,
    enable_fc_pass as enable_fc_pass,
    set_available_memory_proportion_by_ipu as set_available_memory_proportion_by_ipu,
    set_graph_available_memory_proportion_by_ipu as set_graph_available_memory_proportion_by_ipu,
)
from tremula.frontends.popxl_addons.streams import (
    InputStreams as InputStreams,
    OutputStreams as OutputStreams,
)
from tremula.frontends.popxl_addons.task_session import (
    TaskSession as TaskSession,
    initialise_memmap_dir_from_checkpoint as initialise_memmap_dir_from_checkpoint,
    write_variables_pb as write_variables_pb,
)
from tremula.frontends.popxl_addons.transforms.autodiff import (
    autodiff as autodiff,
    autodiff_with_accumulation as autodiff_with_accumulation,
    recomputed as recomputed,
)
from tremula.frontends.popxl_addons.transforms.batch_serialisation import (
    RemoteHandle as RemoteHandle,
    batch_serial_buffer as batch_serial_buffer,
    batch_serialise as batch_serialise,
    batch_serialise_fwd_and_grad as batch_serialise_fwd_and_grad,
)
from tremula.frontends.popxl_addons.transforms.pipelining import (
    pipelined_execution as pipelined_execution,
)
from tremula.frontends.popxl_addons.transforms.recomputation import (
    recompute_graph as recompute_graph,
)
from tremula.frontends.popxl_addons.transforms.repeat_graph import (
    repeat_graph as repeat_graph,
)
from tremula.frontends.popxl_addons.utils import (
    OrderedDict as OrderedDict,
    WeightsDict as WeightsDict,
    duplicate_items as duplicate_items,
    null_context as null_context,
    overrides as overrides,
    suffix_graph_name as suffix_graph_name,
    timer as timer,
)
from tremula.frontends.popxl_addons.version import (
    GIT_COMMIT as GIT_COMMIT,
)
