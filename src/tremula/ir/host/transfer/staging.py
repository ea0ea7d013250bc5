"""Inputs in ordinary memory, on their way to the GPU through pinned memory, piece after piece.

A driver copies such a tensor with one thread, and the GPU waits for all of it. Here PyTorch's
threads copy a piece into pinned memory while the piece before it travels.
"""

import torch
from torch import Tensor

_LEAST_BYTES = 1 << 20  # less is on its way before a piece could be copied
_MOST_BYTES = 1 << 28  # of pinned memory for one input
_PIECE_BYTES = 1 << 22


class Staging:
    """Pinned memory of the inputs of a program, by their places."""

    def __init__(self) -> None:
        self._pinned: dict[int, Tensor] = {}
        self._is_free: dict[int, torch.cuda.Event] = {}

    def copy(self, place: int, source: Tensor, target: Tensor) -> None:
        """Copy an input to the GPU; `source` may be changed as soon as this returns."""
        if not _is_staged(source, target):
            target.copy_(source, non_blocking=True)
            return
        pinned = self._memory(place, source)
        flat_source, flat_target = source.view(-1), target.view(-1)
        step = _PIECE_BYTES // source.element_size()
        for begin in range(0, source.numel(), step):
            piece = slice(begin, begin + step)
            pinned[piece].copy_(flat_source[piece])
            flat_target[piece].copy_(pinned[piece], non_blocking=True)
        self._is_free[place].record(torch.cuda.current_stream(target.device))

    def _memory(self, place: int, source: Tensor) -> Tensor:
        """Memory for an input, once the transfer before has ended."""
        pinned = self._pinned.get(place)
        if pinned is None or pinned.numel() != source.numel() or pinned.dtype != source.dtype:
            pinned = torch.empty(source.numel(), dtype=source.dtype, pin_memory=True)
            self._pinned[place], self._is_free[place] = pinned, torch.cuda.Event()
        self._is_free[place].synchronize()
        return pinned


def _is_staged(source: Tensor, target: Tensor) -> bool:
    n_bytes = source.numel() * source.element_size()
    return (
        source.device.type == "cpu"
        and _LEAST_BYTES <= n_bytes <= _MOST_BYTES
        and source.dtype == target.dtype
        and source.is_contiguous()
        and target.is_contiguous()
        and not source.is_pinned()
    )
