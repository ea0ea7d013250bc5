"""What of PyG is replaced while a model is recorded, so that no shape depends on values."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType

import torch_geometric.nn
from torch_geometric import experimental
from torch_geometric.nn.models import schnet

from tremula.base.libraries.patching import replaced, replaced_for_all, replaced_in_place
from tremula.frontends.geometric.common import call_once
from tremula.frontends.geometric.ops import (
    attention,
    dynamic_graphs,
    layers,
    missing,
    neighbours,
    relations,
    self_loops,
)
from tremula.frontends.poptorch.executor.entry import (
    registerPostCompileHook,
    registerPreCompileHook,
)
from tremula.frontends.poptorch.ops.points import nearest

# Methods of classes.
METHODS: dict[tuple[type, str], Callable] = {
    (torch_geometric.nn.aggr.Aggregation, "assert_sorted_index"): layers.assert_sorted_index,
    (torch_geometric.nn.ChebConv, "__norm__"): layers.cheb_norm,
    (torch_geometric.nn.ClusterGCNConv, "forward"): layers.cluster_gcn_forward,
    (torch_geometric.nn.DynamicEdgeConv, "forward"): dynamic_graphs.dynamic_edge_forward,
    (torch_geometric.nn.FiLMConv, "forward"): relations.film_forward,
    (torch_geometric.nn.GPSConv, "forward"): attention.gps_forward,
    (torch_geometric.nn.GravNetConv, "forward"): dynamic_graphs.gravnet_forward,
    (torch_geometric.nn.HeteroBatchNorm, "forward"): layers.hetero_batch_norm_forward,
    (torch_geometric.nn.HeteroLinear, "forward"): layers.hetero_linear_forward,
    (torch_geometric.nn.InstanceNorm, "forward"): layers.instance_norm_forward,
    (torch_geometric.nn.MFConv, "forward"): layers.mf_conv_forward,
    (torch_geometric.nn.MeshCNNConv, "message"): layers.mesh_message,
    (torch_geometric.nn.MessagePassing, "_check_input"): missing.check_input,
    (torch_geometric.nn.MessagePassing, "_index_select"): missing.index_select,
    (torch_geometric.nn.MessagePassing, "aggregate"): missing.aggregate,
    (torch_geometric.nn.RGCNConv, "forward"): relations.rgcn_forward,
    (torch_geometric.nn.XConv, "forward"): dynamic_graphs.x_conv_forward,
    (schnet.RadiusInteractionGraph, "forward"): layers.radius_interaction_forward,
}

# Functions that one module holds.
_IN_MODULES: dict[tuple[str, str], Callable] = {
    ("nn.conv.gcn_conv", "add_remaining_self_loops"): self_loops.add_remaining_self_loops,
    ("utils.laplacian", "remove_self_loops"): self_loops.remove_self_loops,
} | {
    (f"nn.conv.{module}", name): self_loops.refuse_self_loops
    for module, name in (
        ("agnn_conv", "remove_self_loops"),
        ("eg_conv", "add_remaining_self_loops"),
        ("feast_conv", "remove_self_loops"),
        ("gat_conv", "remove_self_loops"),
        ("gatv2_conv", "remove_self_loops"),
        ("point_conv", "remove_self_loops"),
        ("point_transformer_conv", "remove_self_loops"),
        ("ppf_conv", "remove_self_loops"),
    )
}

# Functions of torch_geometric.nn, wherever a module holds them.
FUNCTIONS: dict[str, Callable] = {
    "knn": neighbours.knn,
    "knn_graph": neighbours.knn_graph,
    "radius": neighbours.radius,
    "radius_graph": neighbours.radius_graph,
    "knn_interpolate": neighbours.knn_interpolate,
    "nearest": nearest,
}

# Libraries besides PyG that define some of these functions; see `register_torch_cluster`.
_MORE_LIBRARIES: list[ModuleType] = []

_FLAG = "disable_dynamic_shapes"


@contextmanager
def static_shapes() -> Iterator[None]:
    """Inside, layers of PyG that this thread runs have shapes that do not depend on values."""
    flags = experimental.__experimental_flag__
    label = "torch_geometric.experimental.__experimental_flag__"
    with ExitStack() as stack:
        stack.enter_context(replaced_for_all(flags, _FLAG, True, label))
        for (owner, name), replacement in METHODS.items():
            stack.enter_context(replaced(owner, name, replacement))
        for (module, name), replacement in _IN_MODULES.items():
            owner = import_module(f"torch_geometric.{module}")
            stack.enter_context(replaced(owner, name, replacement))
        stack.enter_context(replaced_in_place(torch_geometric.nn, FUNCTIONS))
        for library in _MORE_LIBRARIES:
            names = [name for name in FUNCTIONS if hasattr(library, name)]
            for name in names:
                stack.enter_context(replaced(library, name, FUNCTIONS[name]))
        yield


class Overrides:
    """`static_shapes` as two calls, of one thread; each may be repeated without harm."""

    def __init__(self) -> None:
        self._block: ContextVar[ExitStack | None] = ContextVar("overrides", default=None)

    def replace(self) -> None:
        """Enter the block."""
        if self._block.get() is None:
            stack = ExitStack()
            stack.enter_context(static_shapes())
            self._block.set(stack)

    def restore(self) -> None:
        """Leave the block."""
        stack = self._block.get()
        if stack is not None:
            self._block.set(None)
            stack.close()


@call_once
def register_torch_cluster() -> None:
    """Replace functions of `torch_cluster` as well, where it is installed."""
    if find_spec("torch_cluster") is not None:
        _MORE_LIBRARIES.append(import_module("torch_cluster"))


@call_once
def register_overrides() -> None:
    """Activate the replacements around every compilation of a model."""
    register_torch_cluster()
    overrides = Overrides()
    registerPreCompileHook(overrides.replace)
    registerPostCompileHook(overrides.restore)
