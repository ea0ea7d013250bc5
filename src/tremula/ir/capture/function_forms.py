"""Functions of torch that are recorded in another form: theirs look at values, or write several."""

from collections.abc import Callable

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from tremula.ir.capture import packed_sequences
from tremula.ir.capture.recording import Recording


def _rrelu(
    _state: Recording, _func: Callable, x: Tensor, lower: float = 1 / 8, upper: float = 1 / 3,
    training: bool = False, inplace: bool = False,
) -> Tensor:  # fmt: skip
    """Below zero a slope: drawn for each element in training, else the one in the middle."""
    slope = torch.empty_like(x).uniform_(lower, upper) if training else (lower + upper) / 2
    result = torch.where(x >= 0, x, x * slope)
    return x.copy_(result) if inplace else result


def _gaussian_nll_loss(
    state: Recording, _func: Callable, x: Tensor, target: Tensor, var: Tensor | float,
    full: bool = False, eps: float = 1e-6, reduction: str = "mean",
) -> Tensor:  # fmt: skip
    """Without PyTorch's look at the variances: a negative one counts as `eps`."""
    variances = var if isinstance(var, Tensor) else torch.full_like(x, var)
    if variances.dim() == x.dim() - 1:  # one for each row
        variances = variances.unsqueeze(-1)
    variances = variances + (variances.clamp(min=eps) - variances).detach()
    loss = 0.5 * (variances.log() + (x - target) ** 2 / variances)
    if full:
        loss = loss + 0.9189385332046727  # half the logarithm of 2π
    loss = loss if reduction == "none" else getattr(loss, reduction)()
    state.mark_loss(loss)
    return loss


def _embedding_bag(  # noqa: PLR0913, PLR0917 - as PyTorch
    _state: Recording, _func: Callable, rows: Tensor, table: Tensor,
    offsets: Tensor | None = None, max_norm: float | None = None, norm_type: float = 2,
    scale_grad_by_freq: bool = False, mode: str = "mean", sparse: bool = False,  # noqa: ARG001
    per_sample_weights: Tensor | None = None, include_last_offset: bool = False,
    padding_idx: int | None = None,
) -> Tensor:  # fmt: skip
    """A lookup, and what its bags sum up to."""
    found = F.embedding(rows, table, padding_idx, max_norm, norm_type, scale_grad_by_freq)
    is_counted = torch.ones_like(rows, dtype=torch.bool)
    if padding_idx is not None:
        is_counted = rows != padding_idx % len(table)
    if per_sample_weights is not None:
        found = found * per_sample_weights.unsqueeze(-1)
    if offsets is None:
        return _of_equal_bags(found, is_counted, mode)
    offsets = offsets[:-1] if include_last_offset else offsets
    places = torch.arange(len(rows), device=rows.device)
    bags = (offsets.unsqueeze(0) <= places.unsqueeze(1)).sum(1) - 1
    return _of_bags(found, is_counted, bags, len(offsets), mode)


def _of_equal_bags(found: Tensor, is_counted: Tensor, mode: str) -> Tensor:
    mask = is_counted.unsqueeze(-1)
    if mode == "max":
        most = torch.where(mask, found, -torch.inf).amax(1)
        return torch.where(mask.any(1), most, 0)
    total = torch.where(mask, found, 0).sum(1)
    return total if mode == "sum" else total / mask.sum(1).clamp(min=1)


def _of_bags(found: Tensor, is_counted: Tensor, bags: Tensor, n: int, mode: str) -> Tensor:
    mask, zeros = is_counted.unsqueeze(-1), found.new_zeros(n, found.shape[1])
    if mode == "max":
        places = bags.unsqueeze(1).expand(found.shape)
        most = torch.where(mask, found, -torch.inf)
        most = zeros.scatter_reduce(0, places, most, "amax", include_self=False)
        return torch.where(most == -torch.inf, 0, most)
    total = zeros.index_add(0, bags, torch.where(mask, found, 0))
    if mode == "sum":
        return total
    counts = found.new_zeros(n).index_add(0, bags, is_counted.to(found.dtype))
    return total / counts.clamp(min=1).unsqueeze(1)


def _as_tensor(_state: Recording, func: Callable, data: object, **how: object) -> Tensor:
    """Numbers become a constant of the recording, which as_tensor itself would pass by."""
    make: Callable[..., Tensor] = func if isinstance(data, Tensor) else torch.tensor
    return make(data, **how)


FORMS: dict[Callable, Callable[..., object]] = {
    torch.as_tensor: _as_tensor,
    F.rrelu: _rrelu,
    F.gaussian_nll_loss: _gaussian_nll_loss,
    F.embedding_bag: _embedding_bag,
    torch._VF._pack_padded_sequence: packed_sequences.pack,  # pyright: ignore[reportAttributeAccessIssue]
    torch._VF._pad_packed_sequence: packed_sequences.pad,  # pyright: ignore[reportAttributeAccessIssue]
}
