"""Signals: Fourier transforms, and the matrices and windows of audio."""

import numpy as np
import torch
from torch import Tensor

from tremula.frontends.onnx.context import known
from tremula.frontends.onnx.element_types import element_type
from tremula.frontends.onnx.table import operator


@operator("DFT", since=17, until=19, static=("dft_length",))
def dft_before_20(
    x: Tensor,
    dft_length: Tensor | None = None,
    *,
    axis: int = 1,
    inverse: int = 0,
    onesided: int = 0,
) -> Tensor:
    """Along an axis that is an attribute."""
    length = None if dft_length is None else int(dft_length)
    return _dft(x, length, axis, bool(inverse), bool(onesided))


@operator("DFT", since=20, static=("dft_length", "axis"))
def dft(
    x: Tensor,
    dft_length: Tensor | None = None,
    axis: Tensor | None = None,
    *,
    inverse: int = 0,
    onesided: int = 0,
) -> Tensor:
    """The discrete Fourier transform; the last axis is [real part, imaginary part]."""
    length = None if dft_length is None else int(dft_length)
    place = -2 if axis is None else int(axis)
    return _dft(x, length, place, bool(inverse), bool(onesided))


def _dft(x: Tensor, length: int | None, axis: int, inverse: bool, onesided: bool) -> Tensor:
    axis = axis % x.dim()
    if inverse and onesided:
        whole = _as_complex(x)
        n = length if length is not None else 2 * (whole.shape[axis] - 1)
        return torch.fft.irfft(whole, n, axis).unsqueeze(-1)
    if x.shape[-1] == 1 and onesided:
        return torch.view_as_real(torch.fft.rfft(x[..., 0], length, axis).resolve_conj())
    transform = torch.fft.ifft if inverse else torch.fft.fft
    result = transform(_as_complex(x), length, axis)
    if onesided:
        result = result.narrow(axis, 0, result.shape[axis] // 2 + 1)
    return torch.view_as_real(result.resolve_conj())


def _as_complex(x: Tensor) -> Tensor:
    if x.shape[-1] == 1:
        return torch.complex(x[..., 0], torch.zeros_like(x[..., 0]))
    return torch.complex(x[..., 0], x[..., 1])


@operator("STFT", since=17, static=("frame_step", "frame_length"))
def stft(
    signal: Tensor,
    frame_step: Tensor,
    window: Tensor | None = None,
    frame_length: Tensor | None = None,
    *,
    onesided: int = 1,
) -> Tensor:
    """Fourier transforms of overlapping frames."""
    if frame_length is not None:
        length = int(frame_length)
    else:
        assert window is not None, "a frame has a length or a window"
        length = window.shape[0]
    parts = (
        [
            part.unfold(1, length, int(frame_step)) * (1 if window is None else window)
            for part in signal.unbind(-1)
        ]
        if signal.dim() == 3
        else [signal.unfold(1, length, int(frame_step)) * (1 if window is None else window)]
    )
    frames = torch.stack(parts, -1)
    is_real = len(parts) == 1
    return _dft(frames, None, 2, False, bool(onesided) and is_real)


@operator("MelWeightMatrix", since=17, static=("n_bins", "dft_length", "rate", "low", "high"))
def mel_weight_matrix(
    n_bins: Tensor,
    dft_length: Tensor,
    rate: Tensor,
    low: Tensor,
    high: Tensor,
    *,
    output_datatype: int = 1,
) -> Tensor:
    """What turns a spectrum into one of mel frequencies: triangles, evenly spread."""
    count, n_fft = int(n_bins), int(dft_length)
    edges = [2595 * np.log10(1 + float(f) / 700) for f in (low, high)]
    mels = np.arange(count + 2) * (edges[1] - edges[0]) / (count + 2) + edges[0]
    hertz = 700 * (10 ** (mels / 2595) - 1)
    places = ((n_fft + 1) * hertz // float(rate)).astype(int)
    result = np.zeros((n_fft // 2 + 1, count), np.float32)
    for i in range(count):
        begin, middle, end = places[i : i + 3]
        if middle == begin:
            result[middle, i] = 1
        else:
            result[begin : middle + 1, i] = (np.arange(begin, middle + 1) - begin) / (
                middle - begin
            )
        if end > middle:
            result[middle:end, i] = (end - np.arange(middle, end)) / (end - middle)
    return known(result).to(element_type(output_datatype).tensor_type)
