"""What of PyG is replaced while a model is recorded, so that no shape depends on values."""

from collections.abc import Callable
from importlib import import_module
from typing import Any

import torch_geometric.nn
from torch_geometric import experimental
from torch_geometric.nn.models import schnet

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
from tremula.frontends.geometric.pyg_lib_fallbacks import replace_everywhere
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

_FLAG = "disable_dynamic_shapes"


class Overrides:
    """Replaces and restores; both may be called again without harm."""

    def __init__(self) -> None:
        self._before: list[tuple[Any, str, Any]] = []

    def replace(self) -> None:
        """Put the replacements in place."""
        if self._before:
            return
        flags = experimental.__experimental_flag__
        self._before.append((flags, _FLAG, flags[_FLAG]))
        flags[_FLAG] = True
        for (owner, name), replacement in METHODS.items():
            self._set(owner, name, replacement)
        for (module, name), replacement in _IN_MODULES.items():
            self._set(import_module(f"torch_geometric.{module}"), name, replacement)
        self._before += replace_everywhere(FUNCTIONS)

    def restore(self) -> None:
        """Put back what was there."""
        while self._before:
            owner, name, value = self._before.pop()
            if isinstance(owner, dict):
                owner[name] = value
            else:
                setattr(owner, name, value)

    def _set(self, owner: Any, name: str, value: Any) -> None:  # noqa: ANN401
        self._before.append((owner, name, vars(owner)[name]))
        setattr(owner, name, value)


@call_once
def register_overrides() -> None:
    """Activate the replacements around every compilation of a model."""
    overrides = Overrides()
    registerPreCompileHook(overrides.replace)
    registerPostCompileHook(overrides.restore)
