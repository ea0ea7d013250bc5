"""Kinds that are losses."""

import torch
from torch import Tensor


def reduced_loss(values: Tensor, reduction: str, count: Tensor | None = None) -> Tensor:
    """The losses themselves ("none"), their sum, or their mean over all or over a count."""
    if reduction == "none":
        return values
    if reduction == "sum":
        return values.sum()
    return values.mean() if count is None else values.sum() / count


def nll_loss(
    probabilities: Tensor,
    labels: Tensor,
    ignore_index: int | None,
    reduction: str,
    *,
    are_logs: bool,
) -> Tensor:
    """Minus the logarithm of the probability of each label, over those that are not ignored.

    A probability of zero counts as the smallest normal number of its type, as in PopART.
    """
    logs = probabilities if are_logs else safe_log(probabilities)
    labels = labels.to(torch.int64)
    if ignore_index is None:
        return reduced_loss(-_chosen(logs, labels), reduction)
    counts = labels != ignore_index
    losses = -_chosen(logs, torch.where(counts, labels, torch.zeros_like(labels)))
    losses = torch.where(counts, losses, torch.zeros_like(losses))
    return reduced_loss(losses, reduction, n_counted(counts, losses.dtype))


def safe_log(probabilities: Tensor) -> Tensor:
    """Logarithms, finite for probabilities of zero."""
    return torch.log(probabilities.clamp(min=torch.finfo(probabilities.dtype).tiny))


def n_counted(counts: Tensor, dtype: torch.dtype) -> Tensor:
    """How many labels count, at least 1, so that a loss of none is 0."""
    return counts.sum().clamp(min=1).to(dtype)


def _chosen(logs: Tensor, labels: Tensor) -> Tensor:
    return torch.gather(logs, -1, labels.unsqueeze(-1)).squeeze(-1)
