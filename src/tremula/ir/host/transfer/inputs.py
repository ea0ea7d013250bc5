"""Inputs on their way from ordinary memory to a GPU while it computes: prefetched, or staged.

*Prefetching.* A loader that has its next batch ready says which tensor follows which (`announce`).
When a call has been launched, what follows its inputs is copied to the GPU on a separate stream;
the next call, if its inputs are these tensors, takes the copies. Other inputs are copied as usual,
so a wrong guess costs a transfer and nothing more. A tensor that PyTorch has changed meanwhile is
transferred again; changes through NumPy after a loader gave a batch away are not noticed.

*Staging.* A driver copies a tensor in ordinary memory with one thread, once the GPU has done what
it was given before. Here PyTorch's threads copy a piece into pinned memory while the piece before
it travels, and the call before may still run.
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

_LEAST_BYTES = 1 << 15  # a driver takes less at once
_LEAST_BESIDE = 1 << 20  # less is transferred before it could be copied twice
_MOST_BYTES = 1 << 28  # of pinned memory for one input
_PIECE_BYTES = 1 << 22


@dataclass
class _Stage:
    """Memory between an input on the host and the one that a graph reads."""

    pinned: Tensor
    is_free: torch.cuda.Event  # `pinned`, when the last transfer from it has ended
    beside: Tensor | None = None  # on the GPU
    is_taken: torch.cuda.Event | None = None  # `beside`, when it has been copied


class PinnedStaging:
    """Pinned memory for each input of a program, and memory on the GPU for large ones.

    The call before may still run: large inputs travel to other memory beside it, on a separate
    stream, and small ones wait behind it without making the host wait.
    """

    def __init__(self) -> None:
        self._stages: dict[int, _Stage] = {}
        self._stream: torch.cuda.Stream | None = None

    def copy(self, index: int, source: Tensor, target: Tensor) -> None:
        """Copy an input to the GPU; `source` may be changed as soon as this returns."""
        if not _is_staged(source, target):
            target.copy_(source, non_blocking=True)
            return
        stage = self._stage(index, source)
        if source.nbytes < _LEAST_BESIDE:
            stage.pinned.copy_(source.view(-1))
            target.view(-1).copy_(stage.pinned, non_blocking=True)
            stage.is_free.record(torch.cuda.current_stream(target.device))
        else:
            self._copy_beside(stage, source, target)

    def _copy_beside(self, stage: _Stage, source: Tensor, target: Tensor) -> None:
        """By pieces: one is copied into pinned memory while the one before it travels."""
        current = torch.cuda.current_stream(target.device)
        if self._stream is None:
            self._stream = torch.cuda.Stream(target.device)
        if stage.beside is None or stage.is_taken is None:
            stage.beside = torch.empty(target.numel(), dtype=target.dtype, device=target.device)
            stage.is_taken = torch.cuda.Event()
            self._stream.wait_stream(current)  # which may still use that memory
        self._stream.wait_event(stage.is_taken)
        flat, step = source.view(-1), _PIECE_BYTES // source.element_size()
        with torch.cuda.stream(self._stream):
            for begin in range(0, flat.numel(), step):
                piece = slice(begin, begin + step)
                stage.pinned[piece].copy_(flat[piece])
                stage.beside[piece].copy_(stage.pinned[piece], non_blocking=True)
        stage.is_free.record(self._stream)
        current.wait_event(stage.is_free)
        target.view(-1).copy_(stage.beside)
        stage.is_taken.record(current)

    def _stage(self, index: int, source: Tensor) -> _Stage:
        """The memory of an input, once the last transfer from it has ended."""
        stage = self._stages.get(index)
        kind = source.numel(), source.dtype
        if stage is None or (stage.pinned.numel(), stage.pinned.dtype) != kind:
            pinned = torch.empty(source.numel(), dtype=source.dtype, pin_memory=True)
            stage = self._stages[index] = _Stage(pinned, torch.cuda.Event())
        stage.is_free.synchronize()
        return stage


def _is_staged(source: Tensor, target: Tensor) -> bool:
    return (
        source.device.type == "cpu"
        and _LEAST_BYTES <= source.nbytes <= _MOST_BYTES
        and source.dtype == target.dtype
        and source.is_contiguous()
        and target.is_contiguous()
        and not source.is_pinned()
    )
