"""Layer norms whose columns several replicas share out, and norms of gradients."""

import popxl
from popxl import ops
from tremula.frontends.popxl_addons.ops.tensor_parallel import replicated_all_reduce_summed_grad


def layer_norm_distributed(
    x: popxl.Tensor,
    weight: popxl.Tensor,
    bias: popxl.Tensor,
    epsilon: float,
    group: popxl.ReplicaGrouping,
) -> popxl.Tensor:
    """A layer norm of rows [N, C / members], of which each member of the group has some columns.

    One all-reduce each way: of the sums of each row and of its squares. Both are float32.
    """
    if x.rank != 2 or weight.shape != x.shape[1:] or bias.shape != x.shape[1:]:
        raise ValueError(
            f"A layer norm takes rows [N, C] with a weight and a bias [C], got {x.shape},"
            f" {weight.shape} and {bias.shape}"
        )
    n_columns = x.shape[1] * group.group_size
    wide = x if x.dtype == popxl.float32 else ops.cast(x, popxl.float32)
    sums = ops.concat(
        [ops.sum(wide, [1], keepdims=True), ops.sum(wide * wide, [1], keepdims=True)], axis=1
    )
    if group.group_size > 1:
        sums = replicated_all_reduce_summed_grad(sums, group=group)
    means = sums * (1 / n_columns)
    mean, square = ops.split(means, 2, axis=1)
    inverse = (square - mean * mean + epsilon) ** -0.5
    normal = (wide - mean) * inverse
    if x.dtype != popxl.float32:
        normal = ops.cast(normal, x.dtype)
    return normal * weight + bias


def grad_reduce_square_add(t: popxl.Tensor, loss_scaling: float | popxl.Tensor = 1) -> popxl.Tensor:
    """The sum of squares of a gradient, without its loss scaling: Σ (t / scaling)², float32."""
    wide = t if t.dtype == popxl.float32 else ops.cast(t, popxl.float32)
    if isinstance(loss_scaling, popxl.Tensor) or loss_scaling != 1:
        wide = wide * (1 / loss_scaling)
    return ops.sum(wide * wide)
