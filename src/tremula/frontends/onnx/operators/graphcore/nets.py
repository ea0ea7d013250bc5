"""Norms, recurrent nets, convolutions, splines and decoding of ai.graphcore."""

from typing import Any

import torch
from torch import Tensor

from tremula.frontends.onnx.context import NodeContext
from tremula.frontends.onnx.errors import OnnxError
from tremula.frontends.onnx.operators.nn import conv
from tremula.frontends.onnx.operators.norms import BatchStatistics, batch_norm_of_graph
from tremula.frontends.onnx.table import GRAPHCORE_DOMAIN as DOMAIN
from tremula.frontends.onnx.table import operator
from tremula.frontends.shared import splines
from tremula.frontends.shared.kinds import norms, windows
from tremula.ir.ops import ctc  # noqa: F401 - registers tremula::ctc_beam_search
from tremula.ir.origin import Choices
from tremula.ir.recording import choosing


@operator("GroupNormalization", domain=DOMAIN, role="norm")
def group_norm(
    x: Tensor, scale: Tensor, bias: Tensor, *, num_groups: int, epsilon: float = 1e-5
) -> tuple[Tensor, Tensor, Tensor]:
    """Normalised within groups of channels; and mean and inverse deviation of each group.

    Statistics are computed in float32.
    """
    result, mean, inverse = norms.group_norm(x, scale, bias, num_groups, epsilon)
    return result, mean.to(x.dtype), inverse.to(x.dtype)


@operator("BatchNormalization", domain=DOMAIN, role="norm", max_outputs=5)
def batch_norm(
    x: Tensor,
    scale: Tensor,
    bias: Tensor,
    mean: Tensor,
    var: Tensor,
    *,
    epsilon: float = 1e-5,
    momentum: float = 0.9,
    context: NodeContext,
) -> tuple[Tensor, ...]:
    """As ONNX's before version 14; the running variance is unbiased, it divides by n - 1."""
    how = BatchStatistics(epsilon, momentum, is_unbiased=True)
    return batch_norm_of_graph(x, (scale, bias, mean, var), how, context)


@operator("NormalizeImage", domain=DOMAIN, method="normalize_image")
def normalize_image(image: Tensor, offsets: Tensor, scales: Tensor, *, scale: float) -> Tensor:
    """(image · scale - offsets) · scales, with a fourth channel of zeros."""
    result = (image.to(offsets.dtype) * scale - offsets) * scales
    return torch.cat([result, torch.zeros_like(result[..., :1])], -1)


def _lstm_outline(
    x: Tensor, weights: Tensor, *_others: Tensor, outputFullSequence: int = 1
) -> tuple[Tensor, Tensor]:
    """Without a round for each step."""
    cell = x.new_empty(x.shape[1], weights.shape[-1])
    return cell.expand(x.shape[0], *cell.shape) if outputFullSequence else cell, cell


@operator("LSTM", domain=DOMAIN, outline=_lstm_outline)
def lstm(
    x: Tensor,
    weights: Tensor,
    biases: Tensor | None = None,
    initial: Tensor | None = None,
    *,
    outputFullSequence: int = 1,
) -> tuple[Tensor, Tensor]:
    """An LSTM with weights [4, inputs + hidden, hidden]: forget, input, candidate, output gates."""
    steps, batch, _ = x.shape
    hidden = weights.shape[-1]
    zeros = x.new_zeros(batch, hidden)
    cell, state = (zeros, zeros) if initial is None else (initial[1], initial[0])
    joined = weights.permute(1, 0, 2).reshape(-1, 4 * hidden)
    shift = x.new_zeros(4 * hidden) if biases is None else biases.reshape(-1)
    outputs = []
    for t in range(steps):
        gates = torch.cat([x[t], state], 1) @ joined + shift
        forget, enter, candidate, out = gates.chunk(4, 1)
        cell = cell * torch.sigmoid(forget) + torch.sigmoid(enter) * torch.tanh(candidate)
        state = torch.sigmoid(out) * torch.tanh(cell)
        outputs.append(state)
    return torch.stack(outputs) if outputFullSequence else state, cell


@operator("MultiConv", domain=DOMAIN)
def multi_conv(
    *operands: Tensor | None,
    dilations: list[int] | None = None,
    inDilations: list[int] | None = None,
    pads: list[int] | None = None,
    outPads: list[int] | None = None,
    strides: list[int] | None = None,
    availableMemoryProportions: list[float] | None = None,
    partialsTypes: list[str] | None = None,
    planType: str | None = None,
    perConvReservedTiles: int | None = None,
    cycleBackOff: float | None = None,
    enableConvDithering: list[int] | None = None,
) -> tuple[Tensor, ...]:
    """Several convolutions, each of data, weights and a bias or none.

    Attributes of all of them are joined in order. Of those that say how they are planned, one value
    may be for all.
    """
    del planType, perConvReservedTiles, cycleBackOff
    choices = _choices(
        len(operands) // 3, availableMemoryProportions, partialsTypes, enableConvDithering
    )
    result, begin = [], 0
    for i in range(0, len(operands), 3):
        data, weight, bias = operands[i : i + 3]
        assert data is not None, "a convolution has data"
        assert weight is not None, "and weights"
        n = data.dim() - 2
        part, both = slice(begin, begin + n), slice(2 * begin, 2 * (begin + n))
        begin += n
        data = _spread(data, inDilations[part] if inDilations else [1] * n)
        with choosing(choices[i // 3]):
            y = conv(
                data,
                weight,
                bias,
                group=data.shape[1] // weight.shape[1],
                dilations=dilations[part] if dilations else None,
                pads=pads[both] if pads else None,
                strides=strides[part] if strides else None,
            )
        result.append(windows.padded(y, outPads[both] if outPads else []))
    return tuple(result)


def _choices(
    n: int, shares: list[float] | None, partials: list[str] | None, dithering: list[int] | None
) -> list[Choices]:
    """How each of n convolutions is planned."""
    types = None if partials is None else [name.lower() for name in partials]
    if not set(types or ()) <= {"half", "float"}:
        raise OnnxError(f"partialsTypes of MultiConv are 'half' or 'float', got {partials}.")
    dithers = None if dithering is None else [bool(value) for value in dithering]
    columns = (
        _of_each("availableMemoryProportions", n, shares),
        _of_each("partialsTypes", n, types),
        _of_each("enableConvDithering", n, dithers),
    )
    return [Choices(*row) for row in zip(*columns, strict=True)]


def _of_each(name: str, n: int, values: list[Any] | None) -> list[Any]:
    """A value for each of n convolutions; None: as the session says."""
    if not values:
        return [None] * n
    if len(values) not in {1, n}:
        raise OnnxError(f"MultiConv has {len(values)} {name}, but {n} convolutions.")
    return values * n if len(values) == 1 else values


def _spread(x: Tensor, dilations: list[int]) -> Tensor:
    """With zeros between elements."""
    for axis, dilation in enumerate(dilations, 2):
        if dilation > 1:
            wide = torch.stack([x, *[torch.zeros_like(x)] * (dilation - 1)], axis + 1)
            x = wide.flatten(axis, axis + 1).narrow(axis, 0, (x.shape[axis] - 1) * dilation + 1)
    return x


@operator("ShapedDropout", domain=DOMAIN)
def shaped_dropout(x: Tensor, *, shape: list[int], ratio: float = 0.5) -> Tensor:
    """Identity; a session that trains drops whole slices where the shape has a 1."""
    del ratio
    torch.broadcast_to(x.new_zeros(shape), x.shape)  # raises for a shape that does not fit
    return x


@operator("CtcBeamSearchDecoder", domain=DOMAIN)
def beam_search(
    logs: Tensor, lengths: Tensor, *, blank: int = 0, beam_width: int = 100, top_paths: int = 1
) -> tuple[Tensor, Tensor, Tensor]:
    """The likeliest label sequences: probability, length, labels."""
    result = torch.ops.tremula.ctc_beam_search(logs, lengths, blank, beam_width, top_paths)
    return result[0], result[1].to(torch.int32), result[2].to(torch.int32)


@operator("SplineBasis", domain=DOMAIN)
def spline_basis(
    pseudo: Tensor, kernel_size: Tensor, is_open: Tensor, *, degree: int = 1
) -> tuple[Tensor, Tensor]:
    """Products of B-splines at pseudo-coordinates in [0, 1], and the kernels they weigh."""
    basis, index = splines.spline_basis(pseudo, kernel_size, is_open, degree)
    return basis, index.to(torch.int32)


@operator("SplineWeighting", domain=DOMAIN)
def spline_weighting(x: Tensor, weight: Tensor, basis: Tensor, index: Tensor) -> Tensor:
    """Features times the kernels that splines weigh."""
    return splines.spline_weighting(x, weight, basis, index)
