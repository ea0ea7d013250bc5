"""Decompositions of margin losses and their gradients."""

from importlib.util import find_spec

import torch
from torch import Tensor

from tremula.ir.decompositions.autograd import gradients_by_autograd
from tremula.ir.op_table import decomposes

aten = torch.ops.aten
_NONE, _MEAN = 0, 1  # as ATen numbers reductions; 2 is the sum


def _reduced(loss: Tensor, reduction: int) -> Tensor:
    if reduction == _NONE:
        return loss
    return loss.mean() if reduction == _MEAN else loss.sum()


@decomposes(aten.multilabel_margin_loss_forward.default)
def multilabel_margin(x: Tensor, target: Tensor, reduction: int) -> tuple[Tensor, Tensor]:
    """Labels end at the first -1. The second result is 1 where a class is a label."""
    shape = target.shape
    x, target = (torch.atleast_1d(t) for t in (x, target))
    n = x.shape[-1]
    is_label = (target == -1).to(torch.int32).cumsum(-1) == 0
    classes = torch.arange(n, device=x.device)
    hits = (target.unsqueeze(-1) == classes) & is_label.unsqueeze(-1)
    is_target = hits.any(-2)
    of_labels = x.gather(-1, torch.where(is_label, target, 0))
    margins = (1 - of_labels.unsqueeze(-1) + x.unsqueeze(-2)).clamp(min=0)
    is_counted = is_label.unsqueeze(-1) & ~is_target.unsqueeze(-2)
    loss = torch.where(is_counted, margins, 0).sum((-2, -1)) / n
    return _reduced(loss, reduction), is_target.to(x.dtype).reshape(shape)


@decomposes(aten.multilabel_margin_loss_backward.default)
def multilabel_margin_backward(
    gradient: Tensor, x: Tensor, target: Tensor, reduction: int, _is_target: Tensor
) -> Tensor:
    loss = lambda x: multilabel_margin(x, target, reduction)[0]  # noqa: E731
    return gradients_by_autograd(loss, gradient, x)[0]


@decomposes(aten.multi_margin_loss.default)
def multi_margin(
    x: Tensor, target: Tensor, p: float = 1, margin: float = 1, weight: Tensor | None = None,
    reduction: int = _MEAN,
) -> Tensor:  # fmt: skip
    """How far other classes come within the margin of the right one."""
    x = torch.atleast_1d(x)
    if x.dim() == 1:
        target = target.reshape(())
    is_target = target.unsqueeze(-1) == torch.arange(x.shape[-1], device=x.device)
    of_target = torch.where(is_target, x, 0).sum(-1, keepdim=True)
    over = (margin - of_target + x).clamp(min=0)
    over = over if p == 1 else over * over
    if weight is not None:
        over = over * torch.where(is_target, weight, 0).sum(-1, keepdim=True)
    return _reduced(torch.where(is_target, 0, over).sum(-1) / x.shape[-1], reduction)


@decomposes(aten.multi_margin_loss_backward.default)
def multi_margin_backward(
    gradient: Tensor, x: Tensor, target: Tensor, p: float, margin: float,
    weight: Tensor | None = None, reduction: int = _MEAN,
) -> Tensor:  # fmt: skip
    loss = lambda x: multi_margin(x, target, p, margin, weight, reduction)  # noqa: E731
    return gradients_by_autograd(loss, gradient, x)[0]


# -- of a linear layer, computed in chunks ---------------------------------------------------------

# PyTorch's own code of the operations: products and softmax, one chunk of the batch after another.
# PyTorch 2.11 has none of them.
if find_spec("torch.nn.modules.linear_cross_entropy") is not None:
    from torch.nn.modules import linear_cross_entropy as chunked_losses

    for _operation in (
        chunked_losses._linear_cross_entropy_batch_chunked,
        chunked_losses._linear_cross_entropy_batch_chunked_no_reduction,
    ):
        decomposes(getattr(torch.ops.torch_nn, _operation._name).default)(_operation._init_fn)
