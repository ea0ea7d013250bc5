"""The CTC loss, its gradient and beam search as operations: shapes of ATen's depend on values.

What ATen's forward pass keeps for its gradient hangs on the *tape*, an empty tensor.
"""

from typing import Any

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from tremula.ir.ops.tapes import kept_on, new_tape

_library = torch.library.Library("tremula", "FRAGMENT")
_OPERANDS = (
    "Tensor log_probs, Tensor targets, Tensor input_lengths, Tensor target_lengths, int blank,"
    " bool zero_infinity"
)
_library.define(f"ctc_loss({_OPERANDS}, bool is_differentiated) -> (Tensor, Tensor)")
_library.define(
    f"ctc_loss_backward(Tensor gradient, Tensor tape, Tensor loss, {_OPERANDS}) -> Tensor"
)


def _wide(x: Tensor) -> Tensor:
    return x.float() if x.dtype in (torch.float16, torch.bfloat16) else x


def _run(log_probs: Tensor, *operands: object) -> tuple[Tensor, Tensor]:
    """Losses [batch] and the tape."""
    *arguments, is_differentiated = operands
    results = torch.ops.aten._ctc_loss.Tensor(_wide(log_probs), *arguments)  # losses, alphas
    tape = new_tape(log_probs, results if is_differentiated else None)
    return results[0].to(log_probs.dtype, copy=True), tape


def _run_backward(
    gradient: Tensor, tape: Tensor, _loss: Tensor, log_probs: Tensor, targets: Tensor,
    *operands: object,
) -> Tensor:  # fmt: skip
    *lengths, blank, zero_infinity = operands
    loss, alphas = kept_on(tape)
    result = torch.ops.aten._ctc_loss_backward.Tensor(
        _wide(gradient), _wide(log_probs), targets, *lengths, loss, alphas, blank, zero_infinity
    )
    return result.to(log_probs.dtype).contiguous()


def _shapes(log_probs: Tensor, *_operands: object) -> tuple[Tensor, Tensor]:
    return log_probs.new_empty(log_probs.shape[1]), log_probs.new_empty(0)


def _backward_shape(
    _gradient: Tensor, _tape: Tensor, _loss: Tensor, log_probs: Tensor, *_: object
) -> Tensor:
    return log_probs.new_empty(log_probs.shape)


_library.impl("ctc_loss", _run, "CompositeExplicitAutograd")
_library.impl("ctc_loss_backward", _run_backward, "CompositeExplicitAutograd")
torch.library.register_fake("tremula::ctc_loss", _shapes, lib=_library)
torch.library.register_fake("tremula::ctc_loss_backward", _backward_shape, lib=_library)


class _CtcLoss(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, log_probs: Tensor, targets: Tensor, *operands) -> Tensor:  # noqa: ANN401 - as torch types it
        loss, tape = torch.ops.tremula.ctc_loss(log_probs, targets, *operands, True)
        input_lengths, target_lengths, *ctx.settings = operands
        ctx.save_for_backward(tape, loss, log_probs, targets, input_lengths, target_lengths)
        return loss

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple:  # noqa: ANN401
        operands = (*ctx.saved_tensors, *ctx.settings)
        result = torch.ops.tremula.ctc_loss_backward(*gradients, *operands)
        return (result, *(None for _ in range(5)))


CTC_FUNCTIONS = frozenset({F.ctc_loss, torch.ctc_loss})
_REDUCTIONS: dict[str | int, str] = {0: "none", 1: "mean", 2: "sum"}


def record(
    log_probs: Tensor, targets: Tensor, input_lengths: object, target_lengths: object,
    blank: int = 0, reduction: str | int = "mean", zero_infinity: bool = False,
) -> Tensor:  # fmt: skip
    """torch.nn.functional.ctc_loss (and torch.ctc_loss, which numbers its reductions)."""
    is_alone = log_probs.dim() == 2
    if is_alone:
        log_probs = log_probs.unsqueeze(1)
    lengths = [_as_vector(values, targets) for values in (input_lengths, target_lengths)]
    rows = _in_rows(targets, log_probs.shape[1], lengths[1])
    operands = (log_probs, rows, *lengths, blank, zero_infinity)
    if torch.is_grad_enabled() and log_probs.requires_grad:
        loss = _CtcLoss.apply(*operands)
    else:
        loss = torch.ops.tremula.ctc_loss(*operands, False)[0]
    if zero_infinity:
        loss = torch.where(loss == float("inf"), 0.0, loss)
    named = _REDUCTIONS.get(reduction, reduction)
    if named == "mean":
        return (loss / lengths[1].clamp(min=1).to(loss.dtype)).mean()
    if named == "sum":
        return loss.sum()
    return loss.squeeze(0) if is_alone else loss


def _as_vector(lengths: object, like: Tensor) -> Tensor:
    if isinstance(lengths, Tensor):
        return lengths.reshape(-1)
    return torch.tensor(lengths, dtype=torch.int64, device=like.device).reshape(-1)


def _in_rows(targets: Tensor, n_batch: int, lengths: Tensor) -> Tensor:
    """[batch, most labels]: concatenated targets as one row each."""
    if targets.dim() == 2 or n_batch == 1:
        return targets.reshape(n_batch, -1)
    start = lengths.cumsum(0) - lengths
    most = max(targets.numel(), 1)
    places = start.unsqueeze(1) + torch.arange(most, device=targets.device)
    return targets[places.clamp(max=most - 1)]


# -- beam search: the likeliest label sequences of log probabilities -------------------------------


_library.define(
    "ctc_beam_search(Tensor log_probs, Tensor lengths, int blank, int beam_width, int top_paths)"
    " -> (Tensor, Tensor, Tensor)"
)
Beam = dict[tuple[int, ...], tuple[float, float]]  # labels -> log probability ending blank, not so


def search(
    data: np.ndarray, blank: int, beam_width: int, top_paths: int
) -> list[tuple[tuple[int, ...], float]]:
    """The best label sequences of [n_steps, n_classes] log probabilities, each with its own."""
    beam: Beam = {(): (0.0, -np.inf)}
    for row in data.astype(np.float64):
        grown = _grown(beam, row, blank)
        best = sorted(grown, key=lambda labels: -np.logaddexp(*grown[labels]))
        beam = {labels: grown[labels] for labels in best[:beam_width]}
    ranked = [(labels, float(np.logaddexp(*beam[labels]))) for labels in beam]
    return sorted(ranked, key=lambda pair: -pair[1])[:top_paths]


def _grown(beam: Beam, row: np.ndarray, blank: int) -> Beam:
    """All sequences one step later: kept by a blank or a repetition, or longer by one label."""
    grown: Beam = {}

    def add(labels: tuple[int, ...], ends_blank: float, ends_label: float) -> None:
        before = grown.get(labels, (-np.inf, -np.inf))
        grown[labels] = (
            float(np.logaddexp(before[0], ends_blank)),
            float(np.logaddexp(before[1], ends_label)),
        )

    for labels, (ends_blank, ends_label) in beam.items():
        total = np.logaddexp(ends_blank, ends_label)
        add(labels, total + row[blank], -np.inf)
        if labels:
            add(labels, -np.inf, ends_label + row[labels[-1]])
        for label in range(len(row)):
            if label != blank:
                # A label that repeats the last one is new only after a blank.
                before = ends_blank if labels and labels[-1] == label else total
                add((*labels, label), -np.inf, before + row[label])
    return grown


def _decode(
    log_probs: Tensor, lengths: Tensor, blank: int, beam_width: int, top_paths: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Paths that do not exist have a log probability of minus infinity and only blanks."""
    n_steps, n_batches, _ = log_probs.shape
    data = log_probs.detach().float().cpu().numpy()
    result = np.full((n_batches, top_paths), -np.inf, np.float32)
    counts = np.zeros((n_batches, top_paths), np.int32)
    paths = np.full((n_batches, top_paths, n_steps), blank, np.int32)
    for batch, length in enumerate(lengths.tolist()):
        best = search(data[:length, batch], blank, beam_width, top_paths)
        for index, (labels, probability) in enumerate(best):
            result[batch, index], counts[batch, index] = probability, len(labels)
            paths[batch, index, : len(labels)] = labels
    device, type = log_probs.device, log_probs.dtype
    on_device = [torch.from_numpy(array).to(device) for array in (result, counts, paths)]
    return on_device[0].to(type), on_device[1], on_device[2]


for _key in ("CPU", "CUDA"):
    _library.impl("ctc_beam_search", _decode, _key)


@torch.library.register_fake("tremula::ctc_beam_search", lib=_library)
def _fake(
    log_probs: Tensor,
    lengths: Tensor,  # noqa: ARG001
    blank: int,  # noqa: ARG001
    beam_width: int,  # noqa: ARG001
    top_paths: int,
) -> tuple[Tensor, Tensor, Tensor]:
    n_steps, n_batches, _ = log_probs.shape
    shape = (n_batches, top_paths)
    return (
        log_probs.new_empty(shape),
        log_probs.new_empty(shape, dtype=torch.int32),
        log_probs.new_empty((*shape, n_steps), dtype=torch.int32),
    )
