"""Normalisations and losses."""

import torch
from torch import Tensor
from torch.nn import functional

from tremula.frontends.popxl.core.table import Indices, Operand, operation


def _group_norm(t: Tensor, weight: Tensor, bias: Tensor, num_groups: int, eps: float) -> Tensor:
    """Statistics in float32, whatever the type."""
    wide = functional.group_norm(t.float(), num_groups, weight.float(), bias.float(), eps)
    return wide.to(t.dtype)


def _statistics(t: Tensor, num_groups: int, eps: float) -> tuple[Tensor, Tensor]:
    groups = t.float().reshape(t.shape[0] * num_groups, -1)
    variance, mean = torch.var_mean(groups, 1, correction=0)
    return mean, torch.rsqrt(variance + eps)


@operation("GroupNormalization", class_name="GroupNorm", hidden=2)
def group_norm(
    t: Operand, weight: Operand, bias: Operand, num_groups: int, eps: float = 1e-05
) -> tuple[Tensor, Tensor, Tensor]:
    """Normalised over groups of channels (dimension 1), then scaled and shifted by channel."""
    mean, inverse = _statistics(t, num_groups, eps)
    return _group_norm(t, weight, bias, num_groups, eps), mean, inverse


@operation("GroupNormalization", class_name="GroupNorm", name="layer_norm", hidden=2)
def layer_norm(
    t: Operand, weight: Operand, bias: Operand, eps: float = 1e-05
) -> tuple[Tensor, Tensor, Tensor]:
    """A group normalisation with one group: of `[N, C]`, over each row."""
    mean, inverse = _statistics(t, 1, eps)
    return _group_norm(t, weight, bias, 1, eps), mean, inverse


@operation("BatchNormalization", class_name="BatchNorm")
def batch_norm_inference(
    t: Operand,
    scale: Operand,
    bias: Operand,
    mean: Operand,
    var: Operand,
    epsilon: float = 1e-05,
    momentum: float = 0.9,  # noqa: ARG001
) -> Tensor:
    """Normalised by statistics that are given."""
    shape = [1, -1] + [1] * (t.dim() - 2)
    factor = scale * torch.rsqrt(var + epsilon)
    return (t - mean.reshape(shape)) * factor.reshape(shape) + bias.reshape(shape)


# -- losses ----------------------------------------------------------------------------------------

REDUCTIONS = ("mean", "sum", "none")


def _check_reduction(reduction: str) -> None:
    if reduction not in REDUCTIONS:
        raise ValueError(f"reduction must be one of {REDUCTIONS}, got {reduction!r}")


def _nll(logs: Tensor, labels: Tensor, ignore_index: int | None, reduction: str) -> Tensor:
    """The negative logarithms of the labels' probabilities."""
    _check_reduction(reduction)
    flat, wanted = logs.reshape(-1, logs.shape[-1]), labels.reshape(-1).long()
    inside = wanted.clamp(0, flat.shape[1] - 1)
    picked = -torch.gather(flat, 1, inside[:, None])[:, 0]
    if ignore_index is not None:
        counts = (wanted != ignore_index).to(picked.dtype)
        picked = picked * counts
        if reduction == "mean":
            return picked.sum() / counts.sum()
    if reduction == "none":
        return picked.reshape(labels.shape)
    return picked.sum() if reduction == "sum" else picked.mean()


@operation("Nll")
def nll_loss(
    probs: Operand,
    labels: Indices,
    ignore_index: int | None = None,
    reduction: str = "mean",
    log_prob: bool = False,
) -> Tensor:
    """The negative log likelihood of labels, given probabilities, or their logarithms."""
    logs = probs if log_prob else torch.log(probs)
    return _nll(logs, labels, ignore_index, reduction)


@operation("NlllWithSoftmaxGradDirect")
def nll_loss_with_softmax_grad(
    probs: Operand,
    labels: Indices,
    loss_grad: Operand = 1.0,  # type: ignore[assignment]
    ignore_index: int | None = None,
    reduction: str = "mean",
) -> tuple[Tensor, Tensor]:
    """The loss of a softmax's result, and the gradient by the softmax's operand."""
    loss = _nll(torch.log(probs), labels, ignore_index, reduction)
    flat, wanted = probs.reshape(-1, probs.shape[-1]), labels.reshape(-1).long()
    n = flat.shape[1]
    hot = functional.one_hot(wanted.clamp(0, n - 1), n).to(flat.dtype)
    grad = flat - hot
    count: Tensor | float = float(flat.shape[0])
    if ignore_index is not None:
        counts = (wanted != ignore_index).to(flat.dtype)
        grad, count = grad * counts[:, None], counts.sum()
    if reduction == "mean":
        grad = grad / count
    scale = loss_grad.to(grad.dtype)
    return loss, (grad * (scale.reshape(-1, 1) if scale.dim() else scale)).reshape(probs.shape)
