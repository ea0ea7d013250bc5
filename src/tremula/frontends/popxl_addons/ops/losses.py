"""Cross entropy: of logits of one replica, or of logits that a group of replicas shares out."""

import numpy as np

import popxl
from popxl import ops
from tremula.frontends.popxl_addons.ops.tensor_parallel import (
    replicated_all_reduce_identical_grad_inputs,
)


def cross_entropy(
    logits: popxl.Tensor,
    labels: popxl.Tensor,
    ignore_index: int | None = None,
    reduction: str = "mean",
) -> popxl.Tensor:
    """The negative log-likelihood of labels, from logits [N, classes]."""
    return ops.nll_loss(ops.softmax(logits, axis=-1), labels, ignore_index, reduction)


def cross_entropy_with_grad(
    logits: popxl.Tensor,
    labels: popxl.Tensor,
    loss_grad: float = 1.0,
    ignore_index: int | None = None,
    reduction: str = "mean",
) -> tuple[popxl.Tensor, popxl.Tensor]:
    """The loss, and its gradient by the logits times `loss_grad`."""
    probabilities = ops.softmax(logits, axis=-1)
    return ops.nll_loss_with_softmax_grad(
        probabilities, labels, loss_grad, ignore_index=ignore_index, reduction=reduction
    )


def cross_entropy_sharded_loss(
    logits: popxl.Tensor,
    indices: popxl.Tensor,
    replica_grouping: popxl.ReplicaGrouping,
    reduction: str = "mean",
    ignore_index: int | popxl.Tensor | None = None,
) -> popxl.Tensor:
    """The cross entropy of logits [N, classes / members], of which each member has some classes.

    `indices` are labels less the number of the member's first class: out of range unless the class
    is here. The loss is the same on all members. Three all-reduces forward (maximum, denominator,
    logit of the label), none backward.
    """
    if reduction not in ("mean", "sum", "none"):
        raise ValueError(f"reduction must be 'mean', 'sum' or 'none', got {reduction!r}")
    wide = logits if logits.dtype == popxl.float32 else ops.cast(logits, popxl.float32)
    top = ops.detach(ops.max(wide, [1], keepdims=True))
    if replica_grouping.group_size > 1:
        top = ops.collectives.replicated_all_reduce(top, "max", replica_grouping)
    shifted = wide - top
    total = _whole(ops.sum(ops.exp(shifted), [1]), replica_grouping)
    picked = _whole(ops.sum(shifted * _is_label(indices, logits.shape[1]), [1]), replica_grouping)
    losses = ops.log(total) - picked
    losses, count = _without_ignored(losses, indices, ignore_index)
    if reduction == "none":
        result = losses
    elif reduction == "sum" or count is not None:
        result = ops.sum(losses)
        result = result / count if reduction == "mean" and count is not None else result
    else:
        result = ops.mean(losses)
    return result if result.dtype == logits.dtype else ops.cast(result, logits.dtype)


def _whole(t: popxl.Tensor, group: popxl.ReplicaGrouping) -> popxl.Tensor:
    if group.group_size == 1:
        return t
    return replicated_all_reduce_identical_grad_inputs(t, group=group)


def _is_label(indices: popxl.Tensor, n_classes: int) -> popxl.Tensor:
    """float32 [N, classes]: 1 at the label, if it is here."""
    numbers = popxl.constant(np.arange(n_classes, dtype=np.int32)[None], popxl.int32, "classes")
    column = ops.reshape(ops.cast(indices, popxl.int32), (indices.shape[0], 1))
    return ops.cast(ops.equal(column, numbers), popxl.float32)


def _without_ignored(
    losses: popxl.Tensor, indices: popxl.Tensor, ignore_index: int | popxl.Tensor | None
) -> tuple[popxl.Tensor, popxl.Tensor | None]:
    """Losses with zeros for ignored labels, and how many are left; None: all of them."""
    if ignore_index is None:
        return losses, None
    if not isinstance(ignore_index, popxl.Tensor):
        ignore_index = popxl.constant(ignore_index, indices.dtype, "ignore_index")
    kept = ops.cast(ops.logical_not(ops.equal(indices, ignore_index)), popxl.float32)
    return losses * kept, ops.detach(ops.sum(kept))
