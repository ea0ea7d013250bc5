"""Forward functions of PyG's layers with static shapes: a mask where PyG picks rows by value."""

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from torch_geometric.utils import degree, get_laplacian, scatter

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


def cheb_norm(
    _layer: Layer,
    edge_index: Tensor,
    num_nodes: int,
    edge_weight: Tensor | None,
    normalization: str | None,
    lambda_max: Tensor | float | None = None,
    dtype: torch.dtype | None = None,
    batch: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """ChebConv: the scaled Laplacian minus one on its diagonal, which are the last edges."""
    edge_index, weight = get_laplacian(edge_index, edge_weight, normalization, dtype, num_nodes)
    if lambda_max is None:
        lambda_max = 2.0 * weight.max()
    if batch is not None and isinstance(lambda_max, Tensor) and lambda_max.numel() > 1:
        lambda_max = lambda_max[batch[edge_index[0]]]
    weight = 2.0 * weight / lambda_max
    weight = weight.masked_fill(weight == float("inf"), 0)
    diagonal = weight[-num_nodes:] - 1
    return edge_index, torch.cat([weight[:-num_nodes], diagonal])


def hetero_linear_forward(layer: Layer, x: Tensor, type_vec: Tensor) -> Tensor:
    """HeteroLinear: all products, of which each row keeps that of its type."""
    out = x.new_zeros(x.size(0), layer.out_channels)
    for kind in range(layer.num_types):
        product = x @ layer.weight[kind]
        if layer.bias is not None:
            product = product + layer.bias[kind]
        out = torch.where((type_vec == kind).unsqueeze(1), product, out)
    return out


def mesh_message(layer: Layer, x_j: Tensor) -> Tensor:
    """MeshCNNConv: an edge's four neighbours, whose order within each pair must not matter."""
    first, second, third, fourth = x_j.unflatten(0, (-1, 4)).unbind(1)
    pairs = ((first - third).abs(), first + third, (second - fourth).abs(), second + fourth)
    messages = [kernel(pair) for kernel, pair in zip(layer.kernels[1:], pairs, strict=True)]
    return torch.stack(messages, 1).flatten(0, 1)


def mf_conv_forward(
    layer: Layer,
    x: Tensor | tuple[Tensor, Tensor | None],
    edge_index: Tensor,
    size: tuple[int, int] | None = None,
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


def hetero_batch_norm_forward(layer: Layer, x: Tensor, type_vec: Tensor) -> Tensor:
    """HeteroBatchNorm: types that do not occur keep their statistics."""
    if not layer.training and layer.track_running_stats:
        mean, var = layer.running_mean, layer.running_var
    else:
        with torch.no_grad():
            mean, var = layer.mean_var(x, type_vec, dim_size=layer.num_types)
        if layer.track_running_stats and layer.momentum is None:
            raise ValueError(
                "HeteroBatchNorm with momentum=None divides by a count of batches, which is not "
                "known while a model is recorded: give it a momentum."
            )
        if layer.track_running_stats:
            occurs = (degree(type_vec, layer.num_types, dtype=x.dtype) > 0).unsqueeze(1)
            for running, value in ((layer.running_mean, mean), (layer.running_var, var)):
                _follow(running, torch.where(occurs, value, running), layer.momentum)
    out = (x - mean[type_vec]) / var.clamp(layer.eps).sqrt()[type_vec]
    return out * layer.weight[type_vec] + layer.bias[type_vec] if layer.affine else out


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
