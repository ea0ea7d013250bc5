"""PopTorch's operations: marks, prints, losses, products, and those of other files."""

import json
from typing import Any

import torch
from torch import Tensor

from tremula.base.print_format import PrintTensorFmt
from tremula.frontends.poptorch.enums import MatMulSerializationMode, OverlapMode
from tremula.frontends.poptorch.exceptions import createPoptorchError
from tremula.frontends.poptorch.inputs.arguments import put_together, take_apart
from tremula.frontends.poptorch.ops.control import cond, dynamic_slice, dynamic_update, for_loop
from tremula.frontends.poptorch.ops.custom import CPU, accessAttributes, custom_op
from tremula.frontends.poptorch.ops.multi_conv import MultiConv
from tremula.frontends.poptorch.ops.points import fps, nearest
from tremula.ir.ops import ctc as beam_search  # noqa: F401  registers tremula::*
from tremula.ir.recording import active

__all__ = [
    "CPU",
    "MultiConv",
    "accessAttributes",
    "cond",
    "ctc_beam_search_decoder",
    "custom_op",
    "dynamic_slice",
    "dynamic_update",
    "for_loop",
    "fps",
    "identity_loss",
    "ipu_print_tensor",
    "nearest",
    "nop",
    "recomputationCheckpoint",
    "serializedMatMul",
    "set_available_memory",
    "set_overlap_for_input",
    "set_overlap_for_output",
]


def identity_loss(x: Tensor, reduction: str) -> Tensor:
    """Mark a tensor as the loss, which is summed ("sum"), averaged ("mean") or left ("none")."""
    assert reduction in ("sum", "mean", "none"), (
        f"the reduction of identity_loss must be 'sum', 'mean' or 'none', got {reduction!r}"
    )
    if reduction == "sum":
        x = x.sum()
    elif reduction == "mean":
        x = x.mean()
    recording = active()
    if recording is None:
        return x
    x = torch.ops.tremula.loss_mark(x, reduction)
    recording.mark_loss(x)
    return x


def ipu_print_tensor(  # noqa: PLR0913, PLR0917 - PopTorch's own signature
    tensor: Tensor,
    title: str = "",
    print_gradient: bool = True,
    summarise_threshold: int = 1000,
    edge_items: int = 3,
    max_line_width: int = 80,
    digits: int = 4,
    float_format: str = "auto",
    separator: str = ", ",
    open_bracket: str = "(",
    close_bracket: str = ")",
) -> Tensor:
    """The tensor itself; its value goes to standard error each time it is computed.

    In training the gradient is printed, too, under `<title>_gradient`. Use the result, or
    nothing may be printed.
    """
    form = {
        "summarise_threshold": summarise_threshold,
        "edge_items": edge_items,
        "max_line_width": max_line_width,
        "digits": digits,
        "float_format": float_format,
        "separator": separator,
        "open_bracket": open_bracket,
        "close_bracket": close_bracket,
    }
    PrintTensorFmt(**form)  # rejects wrong values now, not when the program prints
    return torch.ops.tremula.print_tensor(tensor, title, json.dumps(form), print_gradient)


def nop(tensor: Tensor) -> Tensor:
    """The tensor itself, by an operation that does nothing and stays in the program."""
    if not isinstance(tensor, Tensor):
        raise createPoptorchError(
            f"nop must take a torch.tensor argument. {type(tensor)} is not supported."
        )
    return torch.ops.tremula.nop(tensor) if active() is not None else tensor


def recomputationCheckpoint(*tensors: object) -> Any:  # noqa: ANN401, N802
    """Keep these values for the backward pass; values between checkpoints are recomputed.

    One tensor comes back as a tensor, several as a tuple, a list or tuple as the same container.
    """
    if len(tensors) != 1:
        return tuple(recomputationCheckpoint(tensor) for tensor in tensors)
    (value,) = tensors
    if isinstance(value, list | tuple):
        return type(value)(recomputationCheckpoint(tensor) for tensor in value)
    if not isinstance(value, Tensor):
        raise ValueError(f"All inputs must be tensors, got {type(value)}")  # noqa: TRY004
    return torch.ops.tremula.checkpoint(value) if active() is not None else value


def set_available_memory(tensor: Tensor, available_memory_proportion: float) -> Tensor:
    """The share of a tile's memory that the product or convolution of this tensor may use."""
    if not isinstance(tensor, Tensor):
        raise createPoptorchError(
            "You may only set available memory for torch.tensor values. "
            f"{type(tensor)} is not supported."
        )
    proportion = float(available_memory_proportion)
    if not 0 <= proportion <= 1:
        raise ValueError(f"available_memory_proportion must be between 0 and 1, got {proportion}.")
    if active() is None:
        return tensor
    return torch.ops.tremula.set_available_memory(tensor, proportion)


# Which dimension of which operand a mode cuts.
_CUT = {
    MatMulSerializationMode.InputChannels: (0, -2),
    MatMulSerializationMode.ReducingDim: (0, -1),
    MatMulSerializationMode.OutputChannels: (1, -1),
}


def serializedMatMul(  # noqa: N802
    lhs: Tensor,
    rhs: Tensor,
    mode: MatMulSerializationMode,
    factor: int = 0,
    keep_precision: bool = False,
) -> Tensor:
    """The product lhs @ rhs, on tiles in `factor` parts one after the other to save memory."""
    assert isinstance(mode, MatMulSerializationMode), (
        f"mode must be a poptorch.MatMulSerializationMode, got {mode!r}"
    )
    assert isinstance(keep_precision, bool), f"keep_precision must be a bool, got {keep_precision}"
    if active() is None or mode is MatMulSerializationMode.Disabled or factor in (0, 1):
        return torch.matmul(lhs, rhs)
    operand, dim = _CUT[mode]
    size = (lhs, rhs)[operand].shape[dim]
    if factor < 0 or size % factor:
        raise createPoptorchError(
            f"serializedMatMul cannot cut {mode.name} of size {size} into {factor} equal parts."
        )
    return torch.ops.tremula.serialized_mm(lhs, rhs, mode.value, factor, keep_precision)


def set_overlap_for_input(input_tensors: object, mode: OverlapMode) -> Any:  # noqa: ANN401
    """Let the transfer of inputs overlap with computing; the only use of an input."""
    return _overlapped(input_tensors, mode, output=False)


def set_overlap_for_output(output_tensors: object, mode: OverlapMode) -> Any:  # noqa: ANN401
    """Let the transfer of outputs overlap with computing; return exactly these from forward."""
    return _overlapped(output_tensors, mode, output=True)


def _overlapped(value: object, mode: OverlapMode, *, output: bool) -> Any:  # noqa: ANN401
    assert isinstance(mode, OverlapMode), f"mode must be a poptorch.OverlapMode, got {mode!r}"
    if active() is None:
        return value
    tensors: list[Tensor] = []
    structure = take_apart(value, tensors.append)
    if not tensors:
        what = "outputs" if output else "inputs"
        raise createPoptorchError(
            f"You may only set overlap for torch.tensor {what}. {type(value)} is not supported."
        )
    marked = [torch.ops.tremula.overlap(tensor, mode.value, output) for tensor in tensors]
    return put_together(structure, iter(marked))


def ctc_beam_search_decoder(
    probs: Tensor, lengths: Tensor, blank: int = 0, beam_width: int = 100, top_paths: int = 1
) -> tuple[Tensor, Tensor, Tensor]:
    """The likeliest label sequences of log probabilities [T, N, C]: probability, length, labels.

    Of shapes [N, top_paths], [N, top_paths] and [N, top_paths, T], the likeliest first; labels
    beyond a path's length are blank.
    """
    if probs.dim() != 3 or lengths.shape != probs.shape[1:2]:
        raise createPoptorchError(
            "ctc_beam_search_decoder needs probs [T, N, C] and lengths [N], got"
            f" {list(probs.shape)} and {list(lengths.shape)}."
        )
    if not 0 <= blank < probs.shape[2] or not 0 < top_paths <= beam_width:
        raise createPoptorchError(
            f"ctc_beam_search_decoder needs a blank class below {probs.shape[2]} and top_paths up"
            f" to beam_width, got {blank}, {top_paths} and {beam_width}."
        )
    return torch.ops.tremula.ctc_beam_search(probs, lengths, blank, beam_width, top_paths)
