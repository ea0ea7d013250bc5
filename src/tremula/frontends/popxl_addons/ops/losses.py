"""Cross entropy: of logits of one replica, or of logits sharded over replicas or over IPUs."""

from collections.abc import Callable, Iterable, Sequence
from typing import Literal

import numpy as np

import popxl
from popxl import ops
from tremula.frontends.popxl.errors import UndefinedValue
from tremula.frontends.popxl_addons.ops.tensor_parallel import (
    replicated_all_reduce_identical_grad_inputs,
)

Reduction = Literal["mean", "sum", "none"]
Combine = Callable[[popxl.Tensor, popxl.Tensor], popxl.Tensor]


def cross_entropy(
    x: popxl.Tensor,
    labels: popxl.Tensor,
    ignore_index: int | None = None,
    reduction: Reduction = "mean",
) -> popxl.Tensor:
    """The negative log-likelihood of labels […], from logits […, classes].

    Labels that are `ignore_index` do not count.
    """
    return ops.nll_loss(ops.softmax(x, axis=-1), labels, ignore_index, reduction)


def cross_entropy_with_grad(
    x: popxl.Tensor,
    labels: popxl.Tensor,
    loss_scaling: float | popxl.Tensor = 1,
    ignore_index: int | None = None,
    reduction: Reduction = "mean",
) -> tuple[popxl.Tensor, popxl.Tensor]:
    """The loss, and its gradient by the logits times `loss_scaling`; the loss is not scaled."""
    if not isinstance(loss_scaling, popxl.Tensor):
        loss_scaling = popxl.constant(loss_scaling, popxl.float32, "loss_scaling")
    probabilities = ops.softmax(x, axis=-1)
    return ops.nll_loss_with_softmax_grad(
        probabilities, labels, loss_scaling, ignore_index=ignore_index, reduction=reduction
    )


def cross_entropy_sharded_loss(
    logits: popxl.Tensor,
    indices: popxl.Tensor,
    ignore_index: int | popxl.Tensor | None = None,
    replica_grouping: popxl.ReplicaGrouping | None = None,
    reduction: Reduction = "mean",
    available_memory_proportion: float = 0.4,
) -> popxl.Tensor:
    """The cross entropy of logits [N, classes / members], of which each member has some classes.

    `indices` are labels less the number of the member's first class: out of range unless the class
    is here. The loss is the same on all members. Three all-reduces forward (maximum, denominator,
    logit of the label), none backward. The memory proportion is a hint for lookups on hardware; the
    label's logit is chosen by a comparison here.
    """
    if not 0 < available_memory_proportion <= 1:
        raise ValueError(
            "available_memory_proportion must be above 0 and at most 1,"
            f" got {available_memory_proportion}"
        )
    whole: popxl.ReplicaGrouping = popxl.gcg().ir.replica_grouping()
    group = whole if replica_grouping is None else replica_grouping
    if reduction not in ("mean", "sum", "none"):
        raise ValueError(f"reduction must be 'mean', 'sum' or 'none', got {reduction!r}")
    wide = logits if logits.dtype == popxl.float32 else ops.cast(logits, popxl.float32)
    top = ops.detach(ops.max(wide, [1], keepdims=True))
    if group.group_size > 1:
        top = ops.collectives.replicated_all_reduce(top, "max", group)
    shifted = wide - top
    total = _whole(ops.sum(ops.exp(shifted), [1]), group)
    picked = _whole(ops.sum(shifted * _is_label(indices, logits.shape[1]), [1]), group)
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
    counts = ops.cast(ops.logical_not(ops.equal(indices, ignore_index)), popxl.float32)
    return losses * counts, ops.detach(ops.sum(counts))


# -- logits sharded over the IPUs of a replica -----------------------------------------------------


def handle_ipus(ts: Sequence[popxl.Tensor], ipus: Iterable[int] | None) -> list[int]:
    """The IPU of each tensor: those that are given, or those the tensors are on."""
    if ipus is None:
        try:
            chosen = [t.ipu for t in ts]
        except UndefinedValue as error:
            raise ValueError(
                "Could not infer the IPU of all tensors: specify them by `ipus`"
            ) from error
    else:
        chosen = list(ipus)
    if len(ts) != len(chosen):
        raise ValueError(f"Expected an IPU for each of {len(ts)} tensors, got {len(chosen)}")
    return chosen


def cross_entropy_sharded_wr_loss(
    logits: Sequence[popxl.Tensor],
    indices: Sequence[popxl.Tensor],
    ipus: Iterable[int] | None = None,
) -> popxl.Tensor:
    """The losses [N] of logits [N, classes] of which each IPU of a replica has some classes.

    `logits` and `indices` have a tensor for each IPU; labels are those of all classes, the same on
    each. The result is on the first IPU, and not reduced.
    """
    if len(logits) != len(indices):
        raise ValueError(
            "You must provide the same number of logits and indices,"
            f" got {len(logits)} and {len(indices)}"
        )
    places = handle_ipus(logits, None if ipus is None else list(ipus))
    top = _over_ipus([ops.max(t, [1], keepdims=True) for t in logits], places, ops.maximum)
    top, parts, first = ops.detach(top), [], 0
    for t, labels, ipu in zip(logits, indices, places, strict=True):
        with popxl.ipu(ipu):
            shifted = ops.cast(t, popxl.float32) - ops.cast(_on(top, places[0], ipu), popxl.float32)
            here = ops.cast(labels, popxl.int32) - first
            chosen = ops.sum(shifted * _is_label(here, t.shape[1]), [1])
            parts.append((ops.sum(ops.exp(shifted), [1]), chosen))
        first += t.shape[1]
    total = _over_ipus([part[0] for part in parts], places, ops.add)
    picked = _over_ipus([part[1] for part in parts], places, ops.add)
    with popxl.ipu(places[0]):
        losses = ops.log(total) - picked
        return losses if losses.dtype == logits[0].dtype else ops.cast(losses, logits[0].dtype)


def _over_ipus(ts: list[popxl.Tensor], ipus: list[int], combine: Combine) -> popxl.Tensor:
    """Tensors of several IPUs combined on the first."""
    result = ts[0]
    for t, ipu in zip(ts[1:], ipus[1:], strict=True):
        moved = _on(t, ipu, ipus[0])
        with popxl.ipu(ipus[0]):
            result = combine(result, moved)
    return result


def _on(t: popxl.Tensor, source: int, target: int) -> popxl.Tensor:
    return t if source == target else ops.ipu_copy(t, target, source)
