"""GPSConv with static shapes: attention over all nodes of a batch, masked between graphs.

PyG puts each graph into a row that is as long as the largest one. Attention over all pairs of
nodes, with those of different graphs masked, is the same function and needs no sizes.
"""

from typing import Any

from torch import Tensor, nn
from torch.nn import functional

Layer = Any  # the layer of PyG whose forward it replaces


def gps_forward(
    layer: Layer, x: Tensor, edge_index: Tensor, batch: Tensor | None = None, **kwargs: object
) -> Tensor:
    """Local messages and global attention, added up, and a small network."""
    if not isinstance(layer.attn, nn.MultiheadAttention):
        raise ValueError(  # noqa: TRY004 — it is the argument that is wrong
            "Dynamic shapes disabled. GPSConv has static shapes with attn_type='multihead' only."
        )
    if layer.norm_with_batch:
        raise ValueError(
            "Dynamic shapes disabled. GPSConv gives its norm no batch_size: use one without a "
            "batch, such as norm='batch_norm' or norm=None."
        )
    parts = []
    if layer.conv is not None:
        parts.append(_residual(layer, layer.conv(x, edge_index, **kwargs), x, layer.norm1))
    mask = None if batch is None else batch.unsqueeze(1) != batch
    row = x.unsqueeze(0)
    attended, _ = layer.attn(row, row, row, attn_mask=mask, need_weights=False)
    parts.append(_residual(layer, attended.squeeze(0), x, layer.norm2))
    out = sum(parts[1:], parts[0])
    out = out + layer.mlp(out)
    return out if layer.norm3 is None else layer.norm3(out)


def _residual(layer: Layer, hidden: Tensor, x: Tensor, norm: nn.Module | None) -> Tensor:
    hidden = functional.dropout(hidden, p=layer.dropout, training=layer.training) + x
    return hidden if norm is None else norm(hidden)
