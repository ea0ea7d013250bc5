"""Functions whose own code in PyTorch looks at values, written so that a recording needs none."""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional

from tremula.ir.recording import Recording

# -- torch.linalg.lstsq ----------------------------------------------------------------------------


def lstsq(
    _state: Recording, _func: Callable, input: Tensor, b: Tensor, rcond: float | None = None,
    *, driver: str | None = None,
) -> tuple:  # fmt: skip
    """The shortest of all best solutions, from the pseudo-inverse, whatever the driver.

    PyTorch's gradient is that of the pseudo-inverse too. What no one reads is not computed.
    """
    is_vector = b.dim() < input.dim()
    right = b.unsqueeze(-1) if is_vector else b
    found = torch.linalg.pinv(input, rtol=rcond) @ right
    none = input.new_zeros([0])
    is_plain = driver in (None, "gelsy")
    residuals = none
    if not is_plain and input.shape[-2] > input.shape[-1]:
        residuals = (input @ found - right).square().sum(-2)
    rank = none.long() if driver == "gels" else torch.linalg.matrix_rank(input, rtol=rcond)
    values = torch.linalg.svdvals(input) if driver in ("gelsd", "gelss") else none
    solution = found.squeeze(-1) if is_vector else found
    named = torch.return_types.linalg_lstsq  # pyright: ignore[reportAttributeAccessIssue]
    return named((solution, residuals, rank, values))


# -- torch.istft -----------------------------------------------------------------------------------


def istft(  # noqa: PLR0913, PLR0917 - as PyTorch
    _state: Recording, _func: Callable, input: Tensor, n_fft: int, hop_length: int | None = None,
    win_length: int | None = None, window: Tensor | None = None, center: bool = True,
    normalized: bool = False, onesided: bool | None = None, length: int | None = None,
    return_complex: bool = False,
) -> Tensor:  # fmt: skip
    """The same numbers; a window that leaves a place without any weight gives NaN, not an error."""
    hop = n_fft // 4 if hop_length is None else hop_length
    window = _window(input, n_fft, win_length, window)
    is_batch = input.dim() == 3
    x = (input if is_batch else input[None]).transpose(1, 2)
    frames = _frames(x, n_fft, normalized, onesided, return_complex) * window
    n_frames, n = frames.shape[1], n_fft + hop * (frames.shape[1] - 1)
    y = _overlapped(frames, n, hop)
    weights = _overlapped((window * window).expand(1, n_frames, n_fft), n, hop)
    begin = n_fft // 2 if center else 0
    end = n - begin if length is None else begin + length
    y = y[:, begin:end] / weights[:, begin:end]
    y = functional.pad(y, (0, end - n)) if end > n else y
    return y if is_batch else y[0]


def _window(input: Tensor, n_fft: int, win_length: int | None, window: Tensor | None) -> Tensor:
    """The window in the middle of n_fft places."""
    size = n_fft if win_length is None else win_length
    if window is None:
        window = torch.ones(size, dtype=input.dtype.to_real(), device=input.device)
    left = (n_fft - size) // 2
    return functional.pad(window, (left, n_fft - size - left)) if size != n_fft else window


def _frames(
    x: Tensor, n_fft: int, normalized: bool, onesided: bool | None, return_complex: bool
) -> Tensor:
    norm = "ortho" if normalized else "backward"
    if return_complex:
        return torch.fft.ifft(x, n_fft, norm=norm)
    is_half = x.shape[-1] != n_fft if onesided is None else onesided
    half = x if is_half else x[..., : n_fft // 2 + 1]
    return torch.fft.irfft(half, n_fft, norm=norm)


def _overlapped(frames: Tensor, n: int, hop: int) -> Tensor:
    """Frames [batch, n_frames, n_fft] added into [batch, n], each `hop` places further."""
    size = [frames.shape[0], n]
    return torch.ops.aten.unfold_backward(frames, size, 1, frames.shape[-1], hop)
