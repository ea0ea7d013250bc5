"""PyTorch's own decompositions that lead to operations with a lowering."""

from collections.abc import Callable

import torch
from torch import _decomp
from torch._decomp import get_decompositions
from torch._export.utils import _get_decomp_for_cia, _is_preservable_cia_op
from torch._ops import OpOverload
from torch.export.decomp_utils import PRESERVED_ATEN_CIA_OPS

from tremula.ir.op_table import enter_finder, enter_pytorchs

aten = torch.ops.aten

# Beyond its core set.
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


def _of_core_set(func: object) -> Callable | None:
    """What PyTorch's core set has for an operation that autograd takes apart itself.

    As `torch.export.default_decompositions` has it, which takes long to list them all.
    """
    if not isinstance(func, OpOverload) or func in PRESERVED_ATEN_CIA_OPS:
        return None
    return _get_decomp_for_cia(func) if _is_preservable_cia_op(func) else None


# Those that autograd leaves to do.
_after_autograd = getattr(_decomp, "_core_aten_decompositions_post_autograd", dict)
enter_pytorchs({**_after_autograd(), **get_decompositions(_FURTHER)})
enter_finder(_of_core_set)
