"""popxl_addons: named variables, modules, transforms. Names only; code is in tremula.frontends."""

from tremula.frontends.popxl_addons.graphs.cache import (
    GraphCache,
)
from tremula.frontends.popxl_addons.graphs.graph import (
    BoundGraph,
    GraphWithNamedArgs,
)
from tremula.frontends.popxl_addons.graphs.module import (
    Module,
)
from tremula.frontends.popxl_addons.graphs.route_tensor import (
    route_tensor_into_graph,
)
from tremula.frontends.popxl_addons.named.dot_tree import (
    DotTree,
)
from tremula.frontends.popxl_addons.named.factories import (
    NamedVariableFactories,
    VariableFactory,
    add_replica_sharded_variable_input,
    add_variable_input,
)
from tremula.frontends.popxl_addons.named.tensors import (
    NamedReplicaGrouping,
    NamedTensorData,
    NamedTensors,
)
from tremula.frontends.popxl_addons.ops.streams import (
    host_load,
    host_store,
)
from tremula.frontends.popxl_addons.remote import (
    NamedRemoteBuffers,
    create_remote_buffer,
    load_remote,
    load_remote_graph,
    named_buffers,
    named_variable_buffers,
    store_remote,
    store_remote_graph,
)
from tremula.frontends.popxl_addons.rts import (
    all_gather_replica_sharded_graph,
    gather_replica_sharded_tensor,
    reduce_replica_sharded_graph,
    reduce_replica_sharded_tensor,
    replica_sharded_spec,
)
from tremula.frontends.popxl_addons.seeds import (
    seed_variable,
)
from tremula.frontends.popxl_addons.settings import (
    apply_pre_alias_patterns,
    set_available_memory_proportion_by_ipu,
)
from tremula.frontends.popxl_addons.streams import (
    InputStreams,
    OutputStreams,
)
from tremula.frontends.popxl_addons.task_session import (
    TaskSession,
)
from tremula.frontends.popxl_addons.transforms.autodiff import (
    autodiff,
    autodiff_with_accumulation,
    recompute_graph,
    recomputed,
)
from tremula.frontends.popxl_addons.transforms.batch_serialisation import (
    RemoteHandle,
    batch_serial_buffer,
    batch_serialise,
    batch_serialise_fwd_and_grad,
)
from tremula.frontends.popxl_addons.transforms.pipelining import (
    pipelined_execution,
)
from tremula.frontends.popxl_addons.transforms.repeat_graph import (
    repeat_graph,
)

from . import array_munging, layers, ops, optimizers, remote, rts, transforms

__all__ = [
    "BoundGraph",
    "DotTree",
    "GraphCache",
    "GraphWithNamedArgs",
    "InputStreams",
    "Module",
    "NamedRemoteBuffers",
    "NamedReplicaGrouping",
    "NamedTensorData",
    "NamedTensors",
    "NamedVariableFactories",
    "OutputStreams",
    "RemoteHandle",
    "TaskSession",
    "VariableFactory",
    "add_replica_sharded_variable_input",
    "add_variable_input",
    "all_gather_replica_sharded_graph",
    "apply_pre_alias_patterns",
    "array_munging",
    "autodiff",
    "autodiff_with_accumulation",
    "batch_serial_buffer",
    "batch_serialise",
    "batch_serialise_fwd_and_grad",
    "create_remote_buffer",
    "gather_replica_sharded_tensor",
    "host_load",
    "host_store",
    "layers",
    "load_remote",
    "load_remote_graph",
    "named_buffers",
    "named_variable_buffers",
    "ops",
    "optimizers",
    "pipelined_execution",
    "recompute_graph",
    "recomputed",
    "reduce_replica_sharded_graph",
    "reduce_replica_sharded_tensor",
    "remote",
    "repeat_graph",
    "replica_sharded_spec",
    "route_tensor_into_graph",
    "rts",
    "seed_variable",
    "set_available_memory_proportion_by_ipu",
    "store_remote",
    "store_remote_graph",
    "transforms",
]
