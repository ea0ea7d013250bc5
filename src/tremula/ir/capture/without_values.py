"""Functions whose own code in PyTorch looks at values, written so that a recording needs none."""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional
from torch.utils._python_dispatch import _disable_current_modes as _outside_the_recording

from tremula.ir.errors import CaptureError
from tremula.ir.origin import model_line
from tremula.ir.recorder import known_value
from tremula.ir.recording import Recording

# -- counts and borders that are tensors -----------------------------------------------------------


def repeat_interleave(
    state: Recording, func: Callable, input: Tensor, repeats: int | Tensor | None = None,
    dim: int | None = None, *, output_size: int | None = None,
) -> Tensor:  # fmt: skip
    """By counts that are not known: a row's place is how many rows end before it."""
    if repeats is None or not isinstance(repeats, Tensor) or _is_known(state, repeats):
        args = () if repeats is None else (repeats, dim)
        return func(input, *args, output_size=output_size)
    if output_size is None:
        raise CaptureError(
            "repeat_interleave: how many rows the result has depends on values of `repeats`, which"
            " are not known while a model is recorded.",
            source=model_line(state.source_excludes),
            hint="give output_size=n, the sum of `repeats`, or `repeats` as a constant",
        )
    x = input.flatten() if dim is None else input
    dim = 0 if dim is None else dim
    ends = torch.cumsum(repeats.expand(x.shape[dim]), 0)
    rows = torch.arange(output_size, dtype=ends.dtype, device=ends.device)
    places = (ends.unsqueeze(0) <= rows.unsqueeze(1)).sum(1)
    return x.index_select(dim, places)


def tensor_split(
    state: Recording, func: Callable, input: Tensor, indices_or_sections: object = None,
    dim: int = 0, **named: object,
) -> tuple[Tensor, ...]:  # fmt: skip
    """With borders in a tensor: PyTorch reads them from the memory that it has on the host."""
    borders = indices_or_sections
    for name in ("tensor_indices_or_sections", "indices", "sections"):
        borders = named.get(name, borders)
    if not isinstance(borders, Tensor):
        return func(input, borders, dim)
    known = known_value(state.recorder, borders)
    if known is None:
        raise CaptureError(
            "tensor_split: the shapes of the parts depend on values of the tensor that splits,"
            " which are not known while a model is recorded.",
            source=model_line(state.source_excludes),
            hint="give the places as numbers: x.tensor_split((2, 5))",
        )
    with _outside_the_recording():
        where = known.tolist()
    return func(input, where if isinstance(where, int) else tuple(where), dim)


def _is_known(state: Recording, tensor: Tensor) -> bool:
    return known_value(state.recorder, tensor) is not None


# -- products of groups of rows, one matrix per group: experts of a model --------------------------


def grouped_mm(
    _state: Recording, func: Callable, x: Tensor, weights: Tensor, offs: Tensor | None = None,
    **named: object,
) -> Tensor:  # fmt: skip
    """Rows up to offs[0] times the first matrix, those up to offs[1] times the second, and so on.

    Where groups end is not known, so every matrix meets all rows, with zeros where they are not
    its own: as many times the work as there are matrices.
    """
    if offs is None or x.dim() != 2 or weights.dim() != 3:
        return func(x, weights, offs=offs, **named)
    rows = torch.arange(len(x), dtype=offs.dtype, device=x.device)
    begins = torch.cat([torch.zeros_like(offs[:1]), offs[:-1]])
    is_own = (rows >= begins.unsqueeze(1)) & (rows < offs.unsqueeze(1))  # [matrices, rows]
    return torch.bmm(torch.where(is_own.unsqueeze(-1), x, 0.0), weights).sum(0)


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
    result = torch.linalg.pinv(input, rtol=rcond) @ right
    none = input.new_zeros([0])
    is_plain = driver in (None, "gelsy")
    residuals = none
    if not is_plain and input.shape[-2] > input.shape[-1]:
        residuals = (input @ result - right).square().sum(-2)
    rank = none.long() if driver == "gels" else torch.linalg.matrix_rank(input, rtol=rcond)
    values = torch.linalg.svdvals(input) if driver in ("gelsd", "gelss") else none
    solution = result.squeeze(-1) if is_vector else result
    named = torch.return_types.linalg_lstsq  # pyright: ignore[reportAttributeAccessIssue]
    return named((solution, residuals, rank, values))


# -- torch.istft -----------------------------------------------------------------------------------


def istft(  # noqa: PLR0913, PLR0917 - as PyTorch
    _state: Recording, _func: Callable, input: Tensor, n_fft: int, hop_length: int | None = None,
    win_length: int | None = None, window: Tensor | None = None, center: bool = True,
    normalized: bool = False, onesided: bool | None = None, length: int | None = None,
    return_complex: bool = False,
) -> Tensor:  # fmt: skip
    """torch.istft without a check of values: samples to which no window contributes are NaN."""
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
