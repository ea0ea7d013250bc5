"""Normalisations and losses."""

import torch
from torch import Tensor
from torch.nn import functional

from tremula.frontends.popxl.core.registry import Hidden
from tremula.frontends.popxl.core.table import Indices, Operand, operation
from tremula.frontends.shared.kinds import losses, norms

PAGE_SECTION = (5, "Norms and losses")


@operation("GroupNormalization", class_name="GroupNorm")
def group_norm(
    t: Operand, weight: Operand, bias: Operand, num_groups: int, eps: float = 1e-05
) -> tuple[Tensor, Hidden, Hidden]:
    """Normalised over groups of channels (dimension 1), then scaled and shifted by channel."""
    if num_groups < 1 or t.shape[1] % num_groups:
        raise ValueError(f"num_groups={num_groups} must divide the {t.shape[1]} channels")
    return norms.group_norm(t, weight, bias, num_groups, eps)


@operation("GroupNormalization", class_name="GroupNorm", name="layer_norm")
def layer_norm(
    t: Operand, weight: Operand, bias: Operand, eps: float = 1e-05
) -> tuple[Tensor, Hidden, Hidden]:
    """A group normalisation with one group: of `[N, C]`, over each row."""
    return norms.group_norm(t, weight, bias, 1, eps)


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
    """Normalised by statistics that are given, for which there are gradients, too."""
    shape = [1, -1] + [1] * (t.dim() - 2)
    factor = scale * torch.rsqrt(var + epsilon)
    return (t - mean.reshape(shape)) * factor.reshape(shape) + bias.reshape(shape)


# -- losses ----------------------------------------------------------------------------------------

REDUCTIONS = ("mean", "sum", "none")


def _check_reduction(reduction: str) -> None:
    if reduction not in REDUCTIONS:
        raise ValueError(f"reduction must be one of {REDUCTIONS}, got {reduction!r}")


@operation("Nll")
def nll_loss(
    probs: Operand,
    labels: Indices,
    ignore_index: int | None = None,
    reduction: str = "mean",
    log_prob: bool = False,
) -> Tensor:
    """The negative log likelihood of labels, given probabilities, or their logarithms."""
    _check_reduction(reduction)
    return losses.nll_loss(probs, labels, ignore_index, reduction, are_logs=log_prob)


@operation("NlllWithSoftmaxGradDirect")
def nll_loss_with_softmax_grad(
    probs: Operand,
    labels: Indices,
    loss_grad: Operand = 1.0,  # type: ignore[assignment]
    ignore_index: int | None = None,
    reduction: str = "mean",
) -> tuple[Tensor, Tensor]:
    """The loss of a softmax's result, and the gradient by the softmax's operand."""
    _check_reduction(reduction)
    loss = losses.nll_loss(probs, labels, ignore_index, reduction, are_logs=False)
    flat, wanted = probs.reshape(-1, probs.shape[-1]), labels.reshape(-1).long()
    n = flat.shape[1]
    hot = functional.one_hot(wanted.clamp(0, n - 1), n).to(flat.dtype)
    grad = flat - hot
    count: Tensor | float = float(flat.shape[0])
    if ignore_index is not None:
        counts = wanted != ignore_index
        grad = grad * counts[:, None].to(flat.dtype)
        count = losses.n_counted(counts, flat.dtype)
    if reduction == "mean":
        grad = grad / count
    scale = loss_grad.to(grad.dtype)
    return loss, (grad * (scale.reshape(-1, 1) if scale.dim() else scale)).reshape(probs.shape)
