"""Inputs on their way from ordinary memory to a GPU while it computes: prefetched, or staged.

*Prefetching.* A loader that has its next batch ready says which tensor follows which (`announce`).
When a call has been launched, what follows its inputs is copied to the GPU on a separate stream;
the next call, if its inputs are these tensors, takes the copies. Other inputs are copied as usual,
so a wrong guess costs a transfer and nothing more. A tensor that PyTorch has changed meanwhile is
transferred again; changes through NumPy after a loader gave a batch away are not noticed.

*Staging.* A driver copies a tensor in ordinary memory with one thread, and the GPU waits for all of
it. Here PyTorch's threads copy a piece into pinned memory while the piece before it travels.
"""

import weakref
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

_N_KNOWN = 256  # pairs of tensors that are remembered
_following: OrderedDict[int, tuple[weakref.ref[Tensor], weakref.ref[Tensor]]] = OrderedDict()


def announce(pairs: Iterable[tuple[Tensor, Tensor]]) -> None:
    """Each of these tensors will be followed by the other one."""
    for tensor, following in pairs:
        _following[tensor.data_ptr()] = weakref.ref(tensor), weakref.ref(following)
    while len(_following) > _N_KNOWN:
        _following.popitem(last=False)


def follower(tensor: Tensor) -> Tensor | None:
    """The tensor announced to follow another, in its shape; None if there is none."""
    current, following = (ref() for ref in _following.get(tensor.data_ptr(), (_none, _none)))
    if current is None or following is None or following.numel() != tensor.numel():
        return None
    is_plain = tensor.is_contiguous() and following.is_contiguous()
    return following.view(tensor.shape) if is_plain and following.dtype == tensor.dtype else None


def _none() -> None:
    return None


@dataclass(frozen=True)
class _Fetched:
    source: Tensor  # a reference, so that its memory is not reused
    version: int  # how often PyTorch had written it
    copy: Tensor
    arrived: torch.cuda.Event


class InputPrefetcher:
    """Copies of the inputs that the next call is expected to have."""

    def __init__(self, device: torch.device):
        self._device = device
        self._stream = torch.cuda.Stream(device)
        self._buffers: dict[int, Tensor] = {}
        self._fetched: dict[int, _Fetched] = {}
        self.n_taken = 0

    def start(self, inputs: Sequence[Tensor | None], copied: torch.cuda.Event) -> None:
        """Start to copy what follows these inputs, once they have been copied themselves."""
        self._fetched = {}
        self._stream.wait_event(copied)
        for index, tensor in enumerate(inputs):
            source = follower(tensor) if tensor is not None else None
            if source is None or not source.is_pinned() or source.is_inference():
                continue
            copy = self._buffers.get(index)
            if copy is None or copy.shape != source.shape or copy.dtype != source.dtype:
                copy = torch.empty(source.shape, dtype=source.dtype, device=self._device)
                self._buffers[index] = copy
            arrived = torch.cuda.Event()
            with torch.cuda.stream(self._stream):
                copy.copy_(source, non_blocking=True)
                arrived.record()
            self._fetched[index] = _Fetched(source, source._version, copy, arrived)

    def take(self, index: int, tensor: Tensor) -> Tensor | None:
        """The copy of an input, if it was fetched."""
        fetched = self._fetched.get(index)
        if fetched is None or fetched.source.data_ptr() != tensor.data_ptr():
            return None
        is_changed = tensor.is_inference() or tensor._version != fetched.version
        if is_changed or tensor.shape != fetched.source.shape:
            return None
        torch.cuda.current_stream(self._device).wait_event(fetched.arrived)
        self.n_taken += 1
        return fetched.copy


# -- staging ---------------------------------------------------------------------------------------

_LEAST_BYTES = 1 << 20  # less is transferred before a piece could be copied
_MOST_BYTES = 1 << 28  # of pinned memory for one input
_PIECE_BYTES = 1 << 22


class PinnedStaging:
    """Pinned memory for each input of a program."""

    def __init__(self) -> None:
        self._pinned: dict[int, Tensor] = {}
        self._is_free: dict[int, torch.cuda.Event] = {}

    def copy(self, index: int, source: Tensor, target: Tensor) -> None:
        """Copy an input to the GPU; `source` may be changed as soon as this returns."""
        if not _is_staged(source, target):
            target.copy_(source, non_blocking=True)
            return
        pinned = self._pinned_memory(index, source)
        flat_source, flat_target = source.view(-1), target.view(-1)
        step = _PIECE_BYTES // source.element_size()
        for begin in range(0, source.numel(), step):
            piece = slice(begin, begin + step)
            pinned[piece].copy_(flat_source[piece])
            flat_target[piece].copy_(pinned[piece], non_blocking=True)
        self._is_free[index].record(torch.cuda.current_stream(target.device))

    def _pinned_memory(self, index: int, source: Tensor) -> Tensor:
        """Memory for an input, once the last transfer from it has ended."""
        pinned = self._pinned.get(index)
        if pinned is None or pinned.numel() != source.numel() or pinned.dtype != source.dtype:
            pinned = torch.empty(source.numel(), dtype=source.dtype, pin_memory=True)
            self._pinned[index], self._is_free[index] = pinned, torch.cuda.Event()
        self._is_free[index].synchronize()
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
