"""Operations of the add-ons.

Names only, made by tools/redirect_modules.py; code is in tremula.frontends.
"""

from . import (
    cross_entropy_sharded_loss,
    cross_entropy_sharded_wr_loss,
    fp8_mse_scale,
    fp8_utils,
    grad_reduce_square_add,
    group_quantize_decompress,
    layer_norm_distributed,
    linear_layout,
    rotary_pos_embed,
)
from .cross_entropy import (
    cross_entropy,
    cross_entropy_with_grad,
)
from .fp8_amax_scale import (
    fp8_amax_scale,
)
from .replicated_all_reduce_TP import (
    replicated_all_reduce,
    replicated_all_reduce_identical_grad_inputs,
    replicated_all_reduce_identical_inputs,
)
from .replicated_strided_collectives import (
    replicated_all_gather_strided,
    replicated_all_reduce_strided,
    replicated_all_reduce_strided_graph,
    replicated_all_reduce_strided_identical_grad_inputs,
    replicated_all_reduce_strided_identical_inputs,
    replicated_reduce_scatter_strided,
)
from .static_sparse_ops import (
    dense_const_sparse_matmul,
    random_sparse,
)
from .streams import (
    host_load,
    host_store,
)

__all__ = [
    "cross_entropy",
    "cross_entropy_sharded_loss",
    "cross_entropy_sharded_wr_loss",
    "cross_entropy_with_grad",
    "dense_const_sparse_matmul",
    "fp8_amax_scale",
    "fp8_mse_scale",
    "fp8_utils",
    "grad_reduce_square_add",
    "group_quantize_decompress",
    "host_load",
    "host_store",
    "layer_norm_distributed",
    "linear_layout",
    "random_sparse",
    "replicated_all_gather_strided",
    "replicated_all_reduce",
    "replicated_all_reduce_TP",
    "replicated_all_reduce_identical_grad_inputs",
    "replicated_all_reduce_identical_inputs",
    "replicated_all_reduce_strided",
    "replicated_all_reduce_strided_graph",
    "replicated_all_reduce_strided_identical_grad_inputs",
    "replicated_all_reduce_strided_identical_inputs",
    "replicated_reduce_scatter_strided",
    "replicated_strided_collectives",
    "rotary_pos_embed",
    "static_sparse_ops",
    "streams",
]
