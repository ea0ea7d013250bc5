"""Losses that are operators."""

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from tremula.frontends.onnx.context import NodeContext
from tremula.frontends.onnx.table import operator


@operator("NegativeLogLikelihoodLoss", since=12)
def nll_loss(
    x: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    *,
    ignore_index: int | None = None,
    reduction: str = "mean",
) -> Tensor:
    """Minus the log-probability of the target; classes may be weighted or ignored."""
    return _nll(x, target, weight, ignore_index, reduction)


@operator("SoftmaxCrossEntropyLoss", since=12)
def softmax_cross_entropy(
    scores: Tensor,
    labels: Tensor,
    weights: Tensor | None = None,
    *,
    ignore_index: int | None = None,
    reduction: str = "mean",
    context: NodeContext,
) -> tuple[Tensor, ...]:
    """The negative log likelihood of a softmax; and the log-probabilities."""
    log_probability = torch.log_softmax(scores, 1)
    loss = _nll(log_probability, labels, weights, ignore_index, reduction)
    return (loss, log_probability) if context.wants(1) else (loss,)


def _nll(
    x: Tensor, target: Tensor, weight: Tensor | None, ignore_index: int | None, reduction: str
) -> Tensor:
    target = target.to(torch.int64)
    shape = target.shape
    if x.dim() > 4:
        x, target = x.flatten(2), target.flatten(1)
    ignored = -(1 << 30) if ignore_index is None else ignore_index
    loss = F.nll_loss(x, target, weight, ignore_index=ignored, reduction=reduction)
    return loss.reshape(shape) if reduction == "none" else loss
