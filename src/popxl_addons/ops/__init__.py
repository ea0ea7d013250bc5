"""Operations of the addons: tensor parallel collectives, distributed norms and losses."""

from tremula.frontends.popxl_addons.ops.losses import (
    cross_entropy,
    cross_entropy_sharded_loss,
    cross_entropy_with_grad,
)
from tremula.frontends.popxl_addons.ops.norms import (
    grad_reduce_square_add,
    layer_norm_distributed,
)
from tremula.frontends.popxl_addons.ops.tensor_parallel import (
    replicated_all_gather_strided,
    replicated_all_reduce_identical_grad_inputs,
    replicated_all_reduce_identical_inputs,
    replicated_all_reduce_strided,
    replicated_all_reduce_summed_grad,
    replicated_reduce_scatter_strided,
)

__all__ = [
    "cross_entropy",
    "cross_entropy_sharded_loss",
    "cross_entropy_with_grad",
    "grad_reduce_square_add",
    "layer_norm_distributed",
    "replicated_all_gather_strided",
    "replicated_all_reduce_identical_grad_inputs",
    "replicated_all_reduce_identical_inputs",
    "replicated_all_reduce_strided",
    "replicated_all_reduce_summed_grad",
    "replicated_reduce_scatter_strided",
]
