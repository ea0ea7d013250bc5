"""What of PyG is replaced while a model is recorded, so that no shape depends on values."""

import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

import torch_geometric.nn
from torch_geometric import experimental
from torch_geometric.nn.models import schnet

from tremula.frontends.geometric.common import call_once
from tremula.frontends.geometric.ops import layers, neighbours
from tremula.frontends.poptorch.executor.entry import (
    registerPostCompileHook,
    registerPreCompileHook,
)
from tremula.frontends.poptorch.ops.points import nearest

# Methods of classes.
METHODS: dict[tuple[type, str], Callable] = {
    (torch_geometric.nn.aggr.Aggregation, "assert_sorted_index"): layers.assert_sorted_index,
    (torch_geometric.nn.ClusterGCNConv, "forward"): layers.cluster_gcn_forward,
    (torch_geometric.nn.HeteroLinear, "forward"): layers.hetero_linear_forward,
    (torch_geometric.nn.InstanceNorm, "forward"): layers.instance_norm_forward,
    (torch_geometric.nn.MFConv, "forward"): layers.mf_conv_forward,
    (schnet.RadiusInteractionGraph, "forward"): layers.radius_interaction_forward,
}

# Functions, wherever a module holds them under a name.
FUNCTIONS: dict[Callable, Callable] = {
    torch_geometric.nn.knn: neighbours.knn,
    torch_geometric.nn.knn_graph: neighbours.knn_graph,
    torch_geometric.nn.radius: neighbours.radius,
    torch_geometric.nn.radius_graph: neighbours.radius_graph,
    torch_geometric.nn.knn_interpolate: neighbours.knn_interpolate,
    torch_geometric.nn.nearest: nearest,
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
        for module, name, function in _holders(FUNCTIONS):
            self._set(module, name, FUNCTIONS[function])

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


def _holders(functions: dict[Callable, Callable]) -> list[tuple[ModuleType, str, Callable]]:
    """Modules, PyG's and the user's, that hold one of the functions, under the name they use."""
    by_id = {id(function): function for function in functions}
    return [
        (module, name, by_id[id(value)])
        for module in list(sys.modules.values())
        if isinstance(module, ModuleType)
        for name, value in list(vars(module).items())
        if id(value) in by_id and module.__name__ != __name__
    ]


@call_once
def register_overrides() -> None:
    """Activate the replacements around every compilation of a model."""
    overrides = Overrides()
    registerPreCompileHook(overrides.replace)
    registerPostCompileHook(overrides.restore)
