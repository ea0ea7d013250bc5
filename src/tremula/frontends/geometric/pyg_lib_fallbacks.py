"""Fallbacks for what PyG leaves to `pyg_lib`: installed only where that is missing.

Without them, PyG raises an ImportError on every machine that `pyg_lib` has no wheel for. PyG 2.7
takes searches, clusters and splines from `torch_cluster` and `torch_spline_conv` instead.
"""

import warnings
from collections.abc import Callable
from functools import wraps
from types import ModuleType
from typing import Any

import torch
import torch_geometric.nn
import torch_geometric.typing
from torch import Tensor
from torch_geometric.loader import ClusterData
from torch_geometric.nn.conv import edge_conv, gravnet_conv, spline_conv, x_conv
from torch_geometric.sampler import HeteroSamplerOutput, NeighborSampler, SamplerOutput
from torch_geometric.sampler.base import SubgraphType
from torch_geometric.utils import sort_edge_index
from torch_geometric.utils.sparse import index2ptr

from tremula.base.libraries.patching import install, install_in_place
from tremula.frontends.geometric.common import call_once
from tremula.frontends.geometric.ops import clusters, dynamic_graphs, neighbours
from tremula.frontends.geometric.ops.missing import MISSING
from tremula.frontends.geometric.sampling.neighbours import Incoming, sample_neighbours
from tremula.frontends.geometric.sampling.partition import partition
from tremula.frontends.poptorch.ops import points
from tremula.frontends.shared import splines

_ONLY = ("", "to", "")  # the type of edges of a graph without types


def _without_missing(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """The operation with static shapes, and then only the neighbours that exist."""

    def existing(*args: object, **kwargs: object) -> Tensor:
        pairs = function(*args, **kwargs)
        return pairs[:, (pairs != MISSING).all(0)]

    return existing


def _fps(
    x: Tensor,
    batch: Tensor | None = None,
    ratio: float = 0.5,
    random_start: bool = True,
    batch_size: int | None = None,
) -> Tensor:
    """Farthest points, a share of each example."""
    if batch is None:
        starts = [0, x.size(0)]
    else:
        size = int(batch.max()) + 1 if batch_size is None else batch_size
        starts = index2ptr(batch, size).tolist()
    return points.fps(x, starts, ratio, random_start)


def _sample(
    sampler: Any,  # noqa: ANN401 — a NeighborSampler: PyG declares unions of what it holds
    seed: Tensor | dict[str, Tensor],
    seed_time: object = None,
    **_kwargs: object,
) -> SamplerOutput | HeteroSamplerOutput:
    """Uniform sampling of neighbours for PyG's NeighborSampler."""
    for is_requested, what in (
        (sampler.is_temporal or seed_time is not None, "temporal sampling"),
        (sampler.edge_weight is not None, "weighted sampling"),
        (sampler.disjoint, "disjoint subgraphs"),
        (sampler.subgraph_type == SubgraphType.induced, "induced subgraphs"),
        (sampler.sample_direction == "backward", "sampling backwards"),
    ):
        if is_requested:
            raise ImportError(
                f"'NeighborSampler' does {what} only with 'pyg-lib', which is not installed: "
                "without it, there is uniform sampling of directional subgraphs."
            )
    if isinstance(seed, dict):
        return _hetero_output(sampler, seed)
    result = sample_neighbours(
        {_ONLY: Incoming(sampler.colptr, sampler.row)},
        {"": seed},
        {_ONLY: sampler.num_neighbors.get_mapped_values()},
        sampler.replace,
    )
    return SamplerOutput(
        node=result.nodes[""],
        row=result.rows[_ONLY],
        col=result.cols[_ONLY],
        edge=result.edges[_ONLY],
        num_sampled_nodes=result.n_nodes[""],
        num_sampled_edges=result.n_edges[_ONLY],
    )


def _without_advice(method: Callable, advice: str) -> Callable:
    """A method that does not ask for `pyg_lib` or a GPU, as there is a fallback for it."""

    @wraps(method)
    def quiet(*args: object, **kwargs: object) -> object:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", advice)
            return method(*args, **kwargs)

    return quiet


def _hetero_output(sampler: Any, seed: dict[str, Tensor]) -> HeteroSamplerOutput:  # noqa: ANN401
    names = {kind: sampler.to_rel_type[kind] for kind in sampler.edge_types}
    counts = sampler.num_neighbors.get_mapped_values(sampler.edge_types)
    result = sample_neighbours(
        {k: Incoming(sampler.colptr_dict[n], sampler.row_dict[n]) for k, n in names.items()},
        seed,
        {kind: counts[name] for kind, name in names.items()},
        sampler.replace,
    )
    return HeteroSamplerOutput(
        node=result.nodes,
        row=result.rows,
        col=result.cols,
        edge=dict(result.edges),
        num_sampled_nodes=result.n_nodes,
        num_sampled_edges=result.n_edges,
    )


def _clusters(data: ClusterData, edge_index: Tensor, num_nodes: int) -> Tensor:
    """The cluster of each node, for PyG's ClusterData."""
    both = torch.cat([edge_index, edge_index.flip(0)], 1)
    row, column = sort_edge_index(both, num_nodes=num_nodes)
    return partition(index2ptr(row, size=num_nodes), column, data.num_parts)


# Layers that call `pyg_lib` without a function between.
_FORWARDS: dict[type, Callable] = {
    torch_geometric.nn.DynamicEdgeConv: dynamic_graphs.dynamic_edge_forward,
    torch_geometric.nn.GravNetConv: dynamic_graphs.gravnet_forward,
    torch_geometric.nn.XConv: dynamic_graphs.x_conv_forward,
}

# Names that these layers of PyG 2.7 look for in their module when they are made.
_NAMES_OF_2_7 = {edge_conv: "knn", gravnet_conv: "knn", x_conv: "knn_graph"}

# What PyG looks at to know whether there is a function, and the functions of torch_geometric.nn.
_BY_FLAG: dict[str, dict[str, Callable]] = {
    "WITH_KNN": {
        "knn": _without_missing(neighbours.knn),
        "knn_graph": _without_missing(neighbours.knn_graph),
    },
    "WITH_RADIUS": {
        "radius": _without_missing(neighbours.radius),
        "radius_graph": _without_missing(neighbours.radius_graph),
    },
    "WITH_NEAREST": {"nearest": points.nearest},
    "WITH_FPS": {"fps": _fps},
    "WITH_GRID_CLUSTER": {"voxel_grid": clusters.voxel_grid},
    "WITH_GRACLUS": {"graclus": clusters.graclus},
}


@call_once
def install_fallbacks() -> None:
    """Install replacements for what `pyg_lib` would provide, where it is missing."""
    has = torch_geometric.typing
    if hasattr(has, "WITH_KNN"):
        _install_by_flag(has)
    elif not has.WITH_TORCH_CLUSTER:  # pyright: ignore[reportAttributeAccessIssue] - PyG 2.7
        _install_for_2_7()
    if not getattr(has, "WITH_SPLINE", getattr(has, "WITH_TORCH_SPLINE_CONV", False)):
        _install_splines(has)
    if not (has.WITH_PYG_LIB or has.WITH_TORCH_SPARSE):
        install(NeighborSampler, "_sample", _sample)
        advice = "Using 'NeighborSampler' without a 'pyg-lib'"
        install(NeighborSampler, "__init__", _without_advice(NeighborSampler.__init__, advice))
    if not (has.WITH_METIS or has.WITH_TORCH_SPARSE):
        install(ClusterData, "_metis", _clusters)


def _install_by_flag(has: ModuleType) -> None:
    """PyG 2.8 and newer: each function has a flag, which layers look at when they are made."""
    if not has.WITH_KNN:
        _install_layers()
    for flag, fallbacks in _BY_FLAG.items():
        if not getattr(has, flag):
            install(has, flag, True)
            install_in_place(torch_geometric.nn, fallbacks)


def _install_for_2_7() -> None:
    """All functions at once: they are those of `torch_cluster`."""
    _install_layers()
    for module, name in _NAMES_OF_2_7.items():
        install(module, name, getattr(torch_geometric.nn, name))
    for fallbacks in _BY_FLAG.values():
        install_in_place(torch_geometric.nn, fallbacks)


def _install_layers() -> None:
    for layer, forward in _FORWARDS.items():
        install(layer, "forward", forward)


def _install_splines(has: ModuleType) -> None:
    if hasattr(has, "WITH_SPLINE"):
        install(has, "WITH_SPLINE", True)
    install(spline_conv, "spline_basis", splines.spline_basis)
    install(spline_conv, "spline_weighting", splines.spline_weighting)
    layer, advice = spline_conv.SplineConv, "We do not recommend using the non-optimized CPU"
    install(layer, "forward", _without_advice(layer.forward, advice))
