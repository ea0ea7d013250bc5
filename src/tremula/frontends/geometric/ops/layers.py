"""Forward functions of PyG's layers with static shapes: a mask where PyG picks rows by value."""

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from torch_geometric.utils import degree, scatter

from tremula.frontends.geometric.ops.neighbours import radius_interactions

Layer = Any  # the layer of PyG whose forward it replaces


def assert_sorted_index(_layer: Layer, _index: Tensor | None) -> None:
    """Nothing: whether an index is sorted is known only when it has values."""


def cluster_gcn_forward(layer: Layer, x: Tensor, edge_index: Tensor) -> Tensor:
    """ClusterGCNConv: the diagonal gets `diag_lambda` more weight."""
    n_nodes = x.size(layer.node_dim)
    row, col = edge_index[0], edge_index[1]
    is_loop = row == col
    keep = x.new_ones(col.shape)
    if layer.add_self_loops:  # those that are there already count nothing
        keep = (~is_loop).to(x.dtype)
        nodes = torch.arange(n_nodes, device=x.device)
        edge_index = torch.cat([edge_index, torch.stack([nodes, nodes])], 1)
        col = edge_index[1]
        keep = torch.cat([keep, x.new_ones(n_nodes)])
        is_loop = torch.cat([is_loop & False, nodes >= 0])
    count = scatter(keep, col, 0, n_nodes, reduce="sum")
    weight = (1.0 / count.clamp(min=1.0))[col] * keep
    weight = torch.where(is_loop, weight * (1 + layer.diag_lambda), weight)
    out = layer.propagate(edge_index, x=x, edge_weight=weight)
    return layer.lin_out(out) + layer.lin_root(x)


def hetero_linear_forward(layer: Layer, x: Tensor, type_vec: Tensor) -> Tensor:
    """HeteroLinear: all products, of which each row keeps that of its type."""
    out = x.new_zeros(x.size(0), layer.out_channels)
    for kind in range(layer.num_types):
        product = x @ layer.weight[kind]
        if layer.bias is not None:
            product = product + layer.bias[kind]
        out = torch.where((type_vec == kind).unsqueeze(1), product, out)
    return out


def mf_conv_forward(
    layer: Layer,
    x: Tensor | tuple[Tensor, Tensor | None],
    edge_index: Tensor,
    size: Any = None,  # noqa: ANN401
) -> Tensor:
    """MFConv: all products, of which each node keeps that of its degree."""
    pair = (x, x) if isinstance(x, Tensor) else x
    own = pair[1]
    n_nodes = pair[0].size(layer.node_dim) if size is None else size[1]
    n_nodes = n_nodes if own is None else own.size(layer.node_dim)
    targets = edge_index[1 if layer.flow == "source_to_target" else 0]
    # Counted in float32: exact, and every device can sum it.
    count = degree(targets, n_nodes, dtype=torch.float32).clamp(max=layer.max_degree)
    hidden = layer.propagate(edge_index, x=pair, size=size)
    out = hidden.new_zeros([*hidden.shape[:-1], layer.out_channels])
    for i, (left, right) in enumerate(zip(layer.lins_l, layer.lins_r, strict=True)):
        product = left(hidden) if own is None else left(hidden) + right(own)
        out = torch.where((count == i).unsqueeze(-1), product, out)
    return out


def instance_norm_forward(
    layer: Layer, x: Tensor, batch: Tensor | None = None, batch_size: int | None = None
) -> Tensor:
    """InstanceNorm: statistics in place, which a recorded program can follow."""
    if batch is None:
        return _norm_of_one(layer, x)
    if batch_size is None:
        raise ValueError("Dynamic shapes disabled. Argument 'batch_size' needs to be set")
    if layer.training or not layer.track_running_stats:
        norm = degree(batch, batch_size, dtype=x.dtype).clamp(min=1).view(-1, 1)
        mean = scatter(x, batch, dim=0, dim_size=batch_size, reduce="sum") / norm
        x = x - mean.index_select(0, batch)
        squares = scatter(x * x, batch, dim=0, dim_size=batch_size, reduce="sum")
        var = squares / norm
        if layer.running_mean is not None:
            unbiased = squares / (norm - 1).clamp(min=1)
            _follow(layer.running_mean, mean.mean(0), layer.momentum)
            _follow(layer.running_var, unbiased.mean(0), layer.momentum)
    else:
        x = x - layer.running_mean
        var = layer.running_var.view(1, -1).expand(batch_size, -1)
    out = x / (var + layer.eps).sqrt().index_select(0, batch)
    if layer.weight is not None and layer.bias is not None:
        out = out * layer.weight.view(1, -1) + layer.bias.view(1, -1)
    return out


def _norm_of_one(layer: Layer, x: Tensor) -> Tensor:
    uses_own = layer.training or not layer.track_running_stats
    out = functional.instance_norm(
        x.t().unsqueeze(0), layer.running_mean, layer.running_var, layer.weight, layer.bias,
        uses_own, layer.momentum, layer.eps,
    )  # fmt: skip
    return out.squeeze(0).t()


def _follow(running: Tensor, value: Tensor, momentum: float) -> None:
    with torch.no_grad():
        running.copy_((1 - momentum) * running + momentum * value)


def radius_interaction_forward(layer: Layer, pos: Tensor, batch: Tensor) -> tuple[Tensor, Tensor]:
    """SchNet's own interaction graph."""
    return radius_interactions(pos, batch, layer.cutoff, layer.max_num_neighbors)
