"""Layer norms whose columns are sharded over replicas, and norms of gradients."""

import popxl
from popxl import ops
from tremula.frontends.popxl_addons.ops.tensor_parallel import replicated_all_reduce


def layer_norm_distributed(
    t: popxl.Tensor,
    w: popxl.Tensor,
    b: popxl.Tensor,
    epsilon: float = 1e-5,
    group: popxl.ReplicaGrouping | None = None,
) -> popxl.Tensor:
    """A layer norm of rows [N, C / members], of which each member of the group has some columns.

    One all-reduce each way: of the sums of each row and of its squares. Both are float32. Without a
    group all replicas together have the columns.
    """
    if t.rank != 2 or w.shape != t.shape[1:] or b.shape != t.shape[1:]:
        raise ValueError(
            f"A layer norm takes rows [N, C] with a weight and a bias [C], got {t.shape},"
            f" {w.shape} and {b.shape}"
        )
    group = popxl.gcg().ir.replica_grouping() if group is None else group
    assert group is not None
    n_columns = t.shape[1] * group.group_size
    wide = t if t.dtype == popxl.float32 else ops.cast(t, popxl.float32)
    sums = ops.concat(
        [ops.sum(wide, [1], keepdims=True), ops.sum(wide * wide, [1], keepdims=True)], axis=1
    )
    if group.group_size > 1:
        sums = replicated_all_reduce(sums, group=group)
    means = sums * (1 / n_columns)
    mean, square = ops.split(means, 2, axis=1)
    inverse = (square - mean * mean + epsilon) ** -0.5
    normal = (wide - mean) * inverse
    if t.dtype != popxl.float32:
        normal = ops.cast(normal, t.dtype)
    return normal * w + b


def grad_reduce_square_add(t: popxl.Tensor, loss_scaling: float | popxl.Tensor) -> popxl.Tensor:
    """The sum of squares of a gradient, without its loss scaling: Σ (t / scaling)², float32."""
    wide = t if t.dtype == popxl.float32 else ops.cast(t, popxl.float32)
    if isinstance(loss_scaling, popxl.Tensor) or loss_scaling != 1:
        wide = wide * (1 / loss_scaling)
    return ops.sum(wide * wide)
