"""Which ATen operations are spelled out in simpler ones before they are lowered to tiles."""

from collections.abc import Callable
from functools import cache

import torch
from torch._decomp import core_aten_decompositions, get_decompositions

aten = torch.ops.aten

# PyTorch's own decompositions beyond its core set that lead to operations we have.
_FURTHER = (
    aten.nll_loss_forward,
    aten.nll_loss_backward,
    aten.native_dropout_backward,
    aten.select_backward,
    aten.slice_backward,
    aten.embedding_dense_backward,
    aten.addmm,
    aten.baddbmm,
    aten.addmv,
    aten.addr,
    aten.addbmm,
    aten.addcmul,
    aten.addcdiv,
    aten.lerp,
    aten.elu_backward,
    aten.leaky_relu_backward,
    aten.hardtanh_backward,
    aten.softplus,
    aten.softplus_backward,
    aten.gelu_backward,
    aten.silu,
    aten.silu_backward,
    aten.mish,
    aten.mish_backward,
    aten.hardswish,
    aten.hardswish_backward,
    aten.hardsigmoid,
    aten.hardsigmoid_backward,
    aten.smooth_l1_loss,
    aten.smooth_l1_loss_backward,
    aten.huber_loss,
    aten.huber_loss_backward,
    aten.mse_loss,
    aten.mse_loss_backward,
    aten.binary_cross_entropy,
    aten.binary_cross_entropy_backward,
    aten.binary_cross_entropy_with_logits,
    aten.soft_margin_loss,
    aten.soft_margin_loss_backward,
    aten.sigmoid_backward,
    aten.tanh_backward,
    aten.threshold_backward,
    aten._softmax_backward_data,
    aten._log_softmax_backward_data,
    aten.native_layer_norm_backward,
    aten.native_group_norm_backward,
    aten.var,
    aten.var_mean,
    aten.std,
    aten.std_mean,
    aten.logsumexp,
    aten.glu,
    aten.glu_backward,
    aten.masked_fill,
    aten.rsub,
    aten.tril,
    aten.triu,
    aten.new_zeros,
    aten.new_ones,
    aten.new_full,
    aten.new_empty,
    aten.zeros_like,
    aten.ones_like,
    aten.trace,
    aten.diag_embed,
    aten.linspace,
    aten.eye,
    aten.square,
    aten.norm,
    aten.dist,
    aten.roll,
    aten.rot90,
    aten.take,
    aten.index_add,
    aten.index_fill,
    aten.index_copy,
    aten.upsample_bilinear2d,
    aten.pixel_shuffle,
    aten.reflection_pad1d,
    aten.reflection_pad2d,
    aten.replication_pad1d,
    aten.replication_pad2d,
    aten._prelu_kernel,
    aten._prelu_kernel_backward,
    aten.logit,
    aten.logit_backward,
    aten.xlogy,
    aten.special_xlog1py,
    aten.heaviside,
    aten.frac,
    aten.hypot,
    aten.grid_sampler_2d,
    aten.cauchy,
    aten.geometric,
    aten.log_normal,
)


@cache
def _table() -> dict[object, Callable]:
    """PyTorch's table with our own entries over it; ours win."""
    import tremula.ir.decompositions.attention
    import tremula.ir.decompositions.geometry
    import tremula.ir.decompositions.lookups
    import tremula.ir.decompositions.losses
    import tremula.ir.decompositions.order
    import tremula.ir.decompositions.pooling
    import tremula.ir.decompositions.sampling  # noqa: F401 - all fill OWN
    from tremula.ir.decompositions.table import OWN

    return {**core_aten_decompositions(), **get_decompositions(_FURTHER), **OWN}


def decomposition_of(func: object) -> Callable | None:
    """The function that spells `func` out, or None."""
    return _table().get(func)
