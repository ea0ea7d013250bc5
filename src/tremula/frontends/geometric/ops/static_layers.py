"""Layers of PyG as classes whose shapes do not depend on values, inside and outside of models.

While a model is recorded, PyG's own classes compute the same way (`overrides.py`). PyG reads from
comments of a class which tensors its messages are made of.
"""

import torch_geometric.nn as pyg
from torch import Tensor
from torch_geometric.typing import OptPairTensor  # noqa: F401 — comments name it

from tremula.frontends.geometric.ops import layers


class Aggregation(pyg.aggr.Aggregation):
    """PyG's base of aggregations, which takes an index for sorted without a look at its values."""

    def assert_sorted_index(self, index: Tensor | None) -> None:
        layers.assert_sorted_index(self, index)


class ClusterGCNConv(pyg.ClusterGCNConv):
    """PyG's layer; loops that are there already count nothing instead of being removed."""

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        # propagate_type: (x: Tensor, edge_weight: Tensor)
        return layers.cluster_gcn_forward(self, x, edge_index)


class HeteroLinear(pyg.HeteroLinear):
    """PyG's layer; each row keeps the product of its type."""

    def forward(self, x: Tensor, type_vec: Tensor) -> Tensor:
        return layers.hetero_linear_forward(self, x, type_vec)


class InstanceNorm(pyg.InstanceNorm):
    """PyG's layer; `batch` needs `batch_size`."""

    def forward(
        self, x: Tensor, batch: Tensor | None = None, batch_size: int | None = None
    ) -> Tensor:
        return layers.instance_norm_forward(self, x, batch, batch_size)


class MFConv(pyg.MFConv):
    """PyG's layer; each node keeps the product of its degree."""

    def forward(  # pyright: ignore[reportIncompatibleMethodOverride] - no sparse matrix
        self,
        x: Tensor | tuple[Tensor, Tensor | None],
        edge_index: Tensor,
        size: tuple[int, int] | None = None,
    ) -> Tensor:
        # propagate_type: (x: OptPairTensor)
        return layers.mf_conv_forward(self, x, edge_index, size)
