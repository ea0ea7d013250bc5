"""Layers with variables: linear, embedding, layer norms."""

import math
from functools import partial

import numpy as np

import popxl
from popxl import ops
from tremula.frontends.popxl_addons.graphs.module import Module
from tremula.frontends.popxl_addons.ops.norms import layer_norm_distributed

Grouping = popxl.ReplicaGrouping | None


def _uniform(shape: tuple[int, ...], bound: float) -> np.ndarray:
    return np.random.default_rng().uniform(-bound, bound, shape).astype(np.float32)


class Linear(Module):
    """x @ weight + bias."""

    def __init__(self, out_features: int, bias: bool = True, replica_grouping: Grouping = None):
        super().__init__()
        self.out_features, self.has_bias, self.group = out_features, bias, replica_grouping

    def build(self, x: popxl.Tensor) -> popxl.Tensor:
        """[…, in] → […, out]."""
        shape = (x.shape[-1], self.out_features)
        bound = 1 / math.sqrt(shape[0])
        weight = self.add_variable_input(
            "weight", partial(_uniform, shape, bound), x.dtype, replica_grouping=self.group
        )
        y = x @ weight
        if not self.has_bias:
            return y
        bias = self.add_variable_input(
            "bias", partial(_uniform, shape[1:], bound), x.dtype, replica_grouping=self.group
        )
        return y + bias


class Embedding(Module):
    """Rows of a table; with `axis_offset`, indices out of range give zeros."""

    def __init__(
        self,
        dtype: popxl.dtype,
        vocab_size: int,
        hidden_size: int,
        replica_grouping: Grouping = None,
        zero_out_of_range: bool = False,
    ):
        super().__init__()
        self.dtype, self.shape, self.group = dtype, (vocab_size, hidden_size), replica_grouping
        self.zero_out_of_range = zero_out_of_range

    def build(self, indices: popxl.Tensor) -> popxl.Tensor:
        """Integers […] → […, hidden]."""

        def normal() -> np.ndarray:
            return np.random.default_rng().normal(0, 0.02, self.shape).astype(np.float32)

        weight = self.add_variable_input("weight", normal, self.dtype, replica_grouping=self.group)
        return ops.gather(weight, indices, axis=0, zero_OOR=self.zero_out_of_range)


class LayerNorm(Module):
    """A layer norm over the last dimension."""

    def __init__(self, eps: float = 1e-5):
        super().__init__()
        self.eps = eps

    def build(self, x: popxl.Tensor) -> popxl.Tensor:
        """[N, C] → the same."""
        if x.rank != 2:
            raise ValueError(f"A layer norm takes rows [N, C], got {x.shape}: reshape them")
        shape = x.shape[-1:]
        weight = self.add_variable_input("weight", partial(np.ones, shape), x.dtype)
        bias = self.add_variable_input("bias", partial(np.zeros, shape), x.dtype)
        return ops.layer_norm(x, weight, bias, self.eps)


class LayerNormDistributed(Module):
    """A layer norm of rows whose columns a group of replicas shares out."""

    def __init__(self, replica_grouping: popxl.ReplicaGrouping, eps: float = 1e-5):
        super().__init__()
        self.group, self.eps = replica_grouping, eps

    def build(self, x: popxl.Tensor) -> popxl.Tensor:
        """[N, C / members] → the same."""
        shape, holding = x.shape[-1:], self.group.transpose()
        weight, bias = (
            self.add_variable_input(name, partial(fill, shape), x.dtype, replica_grouping=holding)
            for name, fill in (("weight", np.ones), ("bias", np.zeros))
        )
        return layer_norm_distributed(x, weight, bias, self.eps, self.group)
