"""Operations of the addons; each is also in a separate module, as in popxl-addons."""

from popxl_addons.ops.cross_entropy import (
    cross_entropy,
    cross_entropy_with_grad,
)
from popxl_addons.ops.cross_entropy_sharded_loss import (
    cross_entropy_sharded_loss,
)
from popxl_addons.ops.fp8_amax_scale import (
    fp8_amax_scale,
)
from popxl_addons.ops.fp8_mse_scale import (
    fp8_mse_scale,
)
from popxl_addons.ops.grad_reduce_square_add import (
    grad_reduce_square_add,
)
from popxl_addons.ops.group_quantize_decompress import (
    group_quantize_compress_numpy,
    group_quantize_decompress,
    group_quantize_decompress_numpy,
)
from popxl_addons.ops.layer_norm_distributed import (
    layer_norm_distributed,
)
from popxl_addons.ops.replicated_all_reduce_TP import (
    replicated_all_reduce_identical_grad_inputs,
    replicated_all_reduce_identical_inputs,
    replicated_all_reduce_summed_grad,
)
from popxl_addons.ops.replicated_strided_collectives import (
    replicated_all_gather_strided,
    replicated_all_reduce_strided,
    replicated_reduce_scatter_strided,
)
from popxl_addons.ops.rotary_pos_embed import (
    rotary_pos_embed,
    trig_table_constants,
    trig_tables,
)
from popxl_addons.ops.static_sparse_ops import (
    dense_const_sparse_matmul,
    random_sparse,
)
from popxl_addons.ops.streams import (
    host_load,
    host_store,
)

__all__ = [
    "cross_entropy",
    "cross_entropy_sharded_loss",
    "cross_entropy_with_grad",
    "dense_const_sparse_matmul",
    "fp8_amax_scale",
    "fp8_mse_scale",
    "grad_reduce_square_add",
    "group_quantize_compress_numpy",
    "group_quantize_decompress",
    "group_quantize_decompress_numpy",
    "host_load",
    "host_store",
    "layer_norm_distributed",
    "random_sparse",
    "replicated_all_gather_strided",
    "replicated_all_reduce_identical_grad_inputs",
    "replicated_all_reduce_identical_inputs",
    "replicated_all_reduce_strided",
    "replicated_all_reduce_summed_grad",
    "replicated_reduce_scatter_strided",
    "rotary_pos_embed",
    "trig_table_constants",
    "trig_tables",
]
